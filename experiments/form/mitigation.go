package form

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"lameduck/harness"
)

// Catalogue is what can be named in a file.
type Catalogue struct {
	// Mitigation makes a mitigation from its name, such as prestop-sleep-15s.
	Mitigation func(name string) (harness.Mitigation, error)
	// Forms are those of the names, with D for a duration and N for a number.
	Forms     []string
	Scenarios map[string]harness.Scenario
}

// mitigation is one of the catalogue, or edits of the user's own.
type mitigation struct{ harness.Mitigation }

type ownMitigation struct {
	Name  name   `json:"name" jsonschema_description:"Name of the mitigation, for the result, exclude and expect; not one of the catalogue."`
	Edits edited `json:"edits" jsonschema_description:"Fields and what they are set to."`
}

// edited are the edits of a mitigation, in the order of the file.
type edited []harness.Edit

func (edited) wants() string {
	return "a mapping of fields to values, like {workload.gracePeriod: 60s}"
}

func (e *edited) fromNode(d *decoder, n *yaml.Node, path string) {
	if n.Kind != yaml.MappingNode {
		d.problem(n, path, "is %s: want %s", kindOf(n), e.wants())
		return
	}
	if len(n.Content) == 0 {
		d.problem(n, path, "is {}: want %s", e.wants())
	}
	known := harness.EditableFields()
	for _, kv := range d.inOrder(n, path) {
		field := kv.key.Value
		at := join(path, field)
		d.lines[at] = kv.key.Line
		if !slices.Contains(known, field) {
			d.problem(kv.key, at, "can not be edited%s: want one of %s", hint(field, known), strings.Join(known, ", "))
			continue
		}
		to, ok := d.scalar(kv.value, at, "the value, like 10s, true or ip")
		if took, err := time.ParseDuration(to); err == nil && took > longest {
			d.problem(kv.value, at, "is %s: want at most %s", to, harness.Dur(longest))
		} else if ok {
			*e = append(*e, harness.Edit{Field: field, To: to})
		}
	}
}

func (m *mitigation) fromNode(d *decoder, n *yaml.Node, path string) {
	isOwn := func(kv keyValue) bool { return kv.key.Value == "name" || kv.key.Value == "edits" }
	if n.Kind == yaml.MappingNode && slices.ContainsFunc(pairs(n), isOwn) {
		var own ownMitigation
		d.decodeStruct(n, path, reflect.ValueOf(&own).Elem())
		m.Mitigation = harness.Mitigation{Name: string(own.Name), Edits: own.Edits}
		if _, err := d.catalogue.Mitigation(m.Name); err == nil {
			d.at(join(path, "name"), "is %q, which is a mitigation of the catalogue: want another name for edits of your own", m.Name)
		}
		return
	}
	name, ok := d.mitigationName(n, path)
	if !ok {
		return
	}
	var err error
	if m.Mitigation, err = d.catalogue.Mitigation(name); err != nil {
		d.problem(n, path, "%s", strings.TrimPrefix(err.Error(), "mitigation "))
	}
}

// mitigationName is the name of a mitigation where one is chosen.
type mitigationName string

func (mitigationName) wants() string { return "none, prestop-sleep-15s or {prestop-sleep: 15s}" }

func (m *mitigationName) fromNode(d *decoder, n *yaml.Node, path string) {
	name, _ := d.mitigationName(n, path)
	*m = mitigationName(name)
}

// mitigationName reads a name that is written as such, or with its parameters in
// any order: {prestop-sleep: 40s, grace: 30s} is prestop-sleep-40s-grace-30s. A
// part of the name without a parameter is a key that is true.
func (d *decoder) mitigationName(n *yaml.Node, path string) (string, bool) {
	want := mitigationName("").wants()
	if n.Kind != yaml.MappingNode {
		return d.scalar(n, path, want)
	}
	var parts []string
	for _, kv := range d.catalogue.ordered(d.inOrder(n, path)) {
		parts = append(parts, kv.key.Value)
		value, ok := d.scalar(kv.value, join(path, kv.key.Value), "a duration, a number or true")
		if !ok {
			return "", false
		}
		if kv.value.ShortTag() != "!!bool" {
			parts = append(parts, value)
		} else if value != "true" {
			d.problem(kv.value, join(path, kv.key.Value), "is %s: want true, or leave it out", value)
			return "", false
		}
	}
	if len(parts) == 0 {
		d.problem(n, path, "is {}: want %s", want)
		return "", false
	}
	return strings.Join(parts, "-"), true
}

// ordered are the keys of a mitigation in the order of the form that has them.
func (c Catalogue) ordered(all []keyValue) []keyValue {
	for _, form := range c.Forms {
		keys := keysOfForm(form)
		place := func(kv keyValue) int { return slices.Index(keys, kv.key.Value) }
		if len(keys) == len(all) && !slices.ContainsFunc(all, func(kv keyValue) bool { return place(kv) < 0 }) {
			slices.SortStableFunc(all, func(a, b keyValue) int { return cmp.Compare(place(a), place(b)) })
			break
		}
	}
	return all
}

// keysOfForm are the parts of a form between its places.
func keysOfForm(form string) []string {
	var keys []string
	for part := range strings.SplitSeq(strings.ReplaceAll(form, "-N", "-D"), "-D") {
		if key := strings.Trim(part, "-"); key != "" {
			keys = append(keys, key)
		}
	}
	return keys
}

// inOrder are the keys and values of a mapping; those that are there twice are
// noted.
func (d *decoder) inOrder(n *yaml.Node, path string) []keyValue {
	d.keys(n, path)
	return pairs(n)
}

func pairs(n *yaml.Node) []keyValue {
	var all []keyValue
	for i := 0; i+1 < len(n.Content); i += 2 {
		all = append(all, keyValue{n.Content[i], n.Content[i+1]})
	}
	return all
}
