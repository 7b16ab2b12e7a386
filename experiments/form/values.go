package form

import (
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"lameduck/harness"
)

// name is one that is part of paths, tables and flags.
type name string

const namePattern = `^[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}$`

func (name) wants() string {
	return "at most 63 letters, digits, . _ and -, the first a letter or a digit"
}

func (m *name) fromNode(d *decoder, n *yaml.Node, path string) {
	*m = name(d.text(n, path, namePattern, m.wants()))
}

// line is text of one line.
type line string

const linePattern = `^[^\x00-\x1f\x7f-\x9f]{0,200}$`

func (line) wants() string {
	return "one line of at most 200 characters, none of them a control character"
}

func (l *line) fromNode(d *decoder, n *yaml.Node, path string) {
	*l = line(d.text(n, path, linePattern, l.wants()))
}

// text is matching for what must not be a number or another type of YAML.
func (d *decoder) text(n *yaml.Node, path, pattern, want string) string {
	if n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null" && n.ShortTag() != "!!str" {
		d.problem(n, path, "is %s: want text (in quotes if it looks like a number)", quote(n))
		return ""
	}
	return d.matching(n, path, pattern, want)
}

// quantity is an amount of CPU as Kubernetes writes it.
type quantity string

const quantityPattern = `^([1-9][0-9]*m|[1-9][0-9]*(\.[0-9]+)?|0\.[0-9]*[1-9][0-9]*)$`

func (quantity) wants() string { return "CPUs above 0, like 50m, 0.5 or 1" }

func (q *quantity) fromNode(d *decoder, n *yaml.Node, path string) {
	*q = quantity(d.matching(n, path, quantityPattern, q.wants()))
}

// podsOrPercent is a number of pods or a percentage (intstr.IntOrString).
type podsOrPercent string

const podsOrPercentPattern = `^([0-9]+|[0-9]{1,2}%|100%)$`

func (podsOrPercent) wants() string { return "a number of pods or a percentage, like 1 or 25%" }

func (p *podsOrPercent) fromNode(d *decoder, n *yaml.Node, path string) {
	*p = podsOrPercent(d.matching(n, path, podsOrPercentPattern, p.wants()))
}

// rate is a number of requests per second.
type rate int

const ratePattern = `^[1-9][0-9]*(/s)?$`

func (rate) wants() string { return "requests per second, 1 to 5000, like 100 or 100/s" }

func (r *rate) fromNode(d *decoder, n *yaml.Node, path string) {
	text, ok := d.scalar(n, path, r.wants())
	if !ok {
		return
	}
	per, err := strconv.Atoi(strings.TrimSuffix(text, "/s"))
	if err != nil || per < 1 || per > 5000 {
		d.problem(n, path, "is %s: want %s", quote(n), r.wants())
		return
	}
	*r = rate(per)
}

// matching is the text of a scalar of a certain look, "" if it has another.
func (d *decoder) matching(n *yaml.Node, path, pattern, want string) string {
	text, ok := d.scalar(n, path, want)
	if ok && !regexp.MustCompile(pattern).MatchString(text) {
		d.problem(n, path, "is %s: want %s", quote(n), want)
		return ""
	}
	return text
}

// connections are one kind or several.
type connections []string

var connectionKinds = []string{
	string(harness.ConnectionsPooled), string(harness.ConnectionsNew), string(harness.ConnectionsLongLived),
}

func (c *connections) fromNode(d *decoder, n *yaml.Node, path string) {
	list := reflect.ValueOf((*[]string)(c)).Elem()
	kinds := limits{enum: connectionKinds}
	if n.Kind == yaml.SequenceNode {
		d.decodeList(n, path, list, kinds)
		return
	}
	var one string
	d.decode(n, path, reflect.ValueOf(&one).Elem(), kinds)
	*c = connections{one}
}

// onSIGTERM is a behaviour, or how long to serve on.
type onSIGTERM struct {
	does harness.OnSIGTERM
	wait harness.Duration
}

var sigtermWords = []string{string(harness.SIGTERMExit), string(harness.SIGTERMDrain), string(harness.SIGTERMIgnore)}

type sigtermWait struct {
	Wait harness.Duration `json:"wait" jsonschema_description:"For how long the application serves on before it drains."`
}

func (onSIGTERM) wants() string { return "exit, drain, ignore or {wait: 10s}" }

func (o *onSIGTERM) fromNode(d *decoder, n *yaml.Node, path string) {
	switch {
	case n.Kind == yaml.MappingNode:
		var w sigtermWait
		d.decodeStruct(n, path, reflect.ValueOf(&w).Elem())
		*o = onSIGTERM{harness.SIGTERMWait, w.Wait}
	case n.Kind == yaml.ScalarNode && slices.Contains(sigtermWords, n.Value):
		o.does = harness.OnSIGTERM(n.Value)
	default:
		d.problem(n, path, "is %s: want %s", kindOf(n), o.wants())
	}
}

// failed is what is expected of a cell.
type failed struct{ expected harness.Expected }

type failedLimit struct {
	AtMost     *int     `json:"atMost,omitempty" jsonschema:"minimum=0" jsonschema_description:"Failed requests of a trial."`
	AtMostRate *percent `json:"atMostRate,omitempty" jsonschema_description:"Share of a trial's requests, such as 0.1%."`
}

type percent float64

const percentPattern = `^([0-9]{1,2}(\.[0-9]+)?|100)%$`

func (percent) wants() string { return "a percentage from 0% to 100%, like 0.1%" }

func (p *percent) fromNode(d *decoder, n *yaml.Node, path string) {
	text := d.matching(n, path, percentPattern, p.wants())
	if x, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64); err == nil {
		*p = percent(x)
	}
}

func (failed) wants() string { return "none, some, {atMost: 5} or {atMostRate: 0.1%}" }

func (f *failed) fromNode(d *decoder, n *yaml.Node, path string) {
	if n.Kind == yaml.ScalarNode && (n.Value == string(harness.ExpectNone) || n.Value == string(harness.ExpectSome)) {
		f.expected = harness.Expected(n.Value)
		return
	}
	if n.Kind != yaml.MappingNode {
		d.problem(n, path, "is %s: want %s", kindOf(n), f.wants())
		return
	}
	var limit failedLimit
	d.decodeStruct(n, path, reflect.ValueOf(&limit).Elem())
	switch {
	case limit.AtMost != nil && limit.AtMostRate == nil:
		f.expected = harness.AtMost(*limit.AtMost)
	case limit.AtMostRate != nil && limit.AtMost == nil:
		f.expected = harness.AtMostRate(float64(*limit.AtMostRate))
	case len(n.Content) == 0 || limit.AtMost != nil:
		d.problem(n, path, "want one of atMost and atMostRate")
	}
}

// fromNode reads a scenario: one key.
func (s *scenario) fromNode(d *decoder, n *yaml.Node, path string) {
	d.decodeOneKey(n, path, reflect.ValueOf(s).Elem())
}

// fromNode reads a fault: one key.
func (f *fault) fromNode(d *decoder, n *yaml.Node, path string) {
	d.decodeOneKey(n, path, reflect.ValueOf(f).Elem())
}

func (d *decoder) decodeOneKey(n *yaml.Node, path string, v reflect.Value) {
	if n.Kind == yaml.ScalarNode && slices.Contains(namesOf(fieldsOf(v)), n.Value) {
		d.problem(n, path, "is %s: want it as a key with parameters, {%s: {}}", quote(n), n.Value)
		return
	}
	d.decodeStruct(n, path, v)
	if n.Kind == yaml.MappingNode && len(n.Content) != 2 {
		d.problem(n, path, "has %d keys: want one of %s", len(n.Content)/2, keysOf(fieldsOf(v)))
	}
}

// chosen is the field of a struct of which one is set, with its name.
func chosen(v reflect.Value) (name string, value reflect.Value) {
	for _, f := range fieldsOf(v) {
		if !f.value.IsNil() {
			return f.name, f.value
		}
	}
	return "", reflect.Value{}
}

// faultSet is a named list of faults, or none.
type faultSet struct{ set harness.FaultSet }

type namedFaults struct {
	Name   name    `json:"name" jsonschema_description:"Name of the list, for the result, exclude and expect."`
	Faults []fault `json:"faults" jsonschema_description:"What is broken while the scenario runs."`
}

// noFaults is the name of the list of none.
const noFaults = "none"

func (faultSet) wants() string { return "none or {name: lost-fin, faults: [{drop-fin: {}}]}" }

func (f *faultSet) fromNode(d *decoder, n *yaml.Node, path string) {
	switch {
	case n.Kind == yaml.ScalarNode && n.Value == noFaults:
		f.set = harness.FaultSet{Name: noFaults}
	case n.Kind == yaml.MappingNode:
		var named namedFaults
		d.decodeStruct(n, path, reflect.ValueOf(&named).Elem())
		if named.Name == noFaults && len(named.Faults) > 0 {
			d.at(join(path, "name"), "is %s, which is the name of no faults: want another", noFaults)
		}
		f.set = harness.FaultSet{Name: string(named.Name), Faults: faultsOf(named.Faults)}
	default:
		d.problem(n, path, "is %s: want %s", kindOf(n), f.wants())
	}
}
