package form

import (
	"encoding"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"lameduck/harness"
)

// decoder fills the types of the form from YAML nodes. It notes all problems
// and goes on.
type decoder struct {
	file      string
	catalogue Catalogue
	problems  Problems
	lines     map[string]int // of the fields that are in the file, by path
}

// fromNode is a type that is written in a form of its own.
type fromNode interface {
	fromNode(d *decoder, n *yaml.Node, path string)
}

func (d *decoder) problem(n *yaml.Node, path, format string, args ...any) {
	d.problems = append(d.problems, Problem{d.file, n.Line, path, fmt.Sprintf(format, args...)})
}

// at notes a problem of a field that may have been left out: then the line is
// that of what it would be in.
func (d *decoder) at(path, format string, args ...any) {
	d.problems = append(d.problems, Problem{d.file, d.line(path), path, fmt.Sprintf(format, args...)})
}

// line is that of a path or, if it is not in the file, of the nearest thing
// around it.
func (d *decoder) line(path string) int {
	for {
		if line, ok := d.lines[path]; ok {
			return line
		}
		cut := strings.LastIndexAny(path, ".[")
		if cut < 0 {
			return 1
		}
		path = path[:cut]
	}
}

// has says whether a field is in the file.
func (d *decoder) has(path string) bool {
	_, ok := d.lines[path]
	return ok
}

// decode fills v, which is settable, from n. tag is the field's.
func (d *decoder) decode(n *yaml.Node, path string, v reflect.Value, tag limits) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	switch to := v.Addr().Interface().(type) {
	case fromNode:
		to.fromNode(d, n, path)
		return
	case encoding.TextUnmarshaler:
		want := tag.wants(v.Type())
		if text, ok := d.scalar(n, path, want); ok {
			if n.ShortTag() != "!!str" {
				d.problem(n, path, "is %s: want %s", text, want)
			} else if err := to.UnmarshalText([]byte(text)); err != nil {
				d.problem(n, path, "%v", err)
			} else if strings.HasPrefix(text, "-") {
				d.problem(n, path, "%s: want 0s or more", text)
			} else if tag.tooLong(to) {
				d.problem(n, path, "is %s: want at most %s", text, harness.Dur(tag.longest))
			}
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.decodeStruct(n, path, v)
	case reflect.Slice:
		d.decodeList(n, path, v, tag)
	default:
		d.decodeScalar(n, path, v, tag)
	}
}

func (d *decoder) decodeList(n *yaml.Node, path string, v reflect.Value, tag limits) {
	if n.Kind != yaml.SequenceNode {
		d.problem(n, path, "is %s: want a list", kindOf(n))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		d.lines[at] = item.Line
		d.decode(item, at, v.Index(i), tag)
	}
}

func (d *decoder) decodeStruct(n *yaml.Node, path string, v reflect.Value) {
	fields := fieldsOf(v)
	if n.Kind != yaml.MappingNode {
		d.problem(n, path, "is %s: want a mapping with %s", kindOf(n), keysOf(fields))
		return
	}
	given := d.keys(n, path)
	for _, f := range fields {
		at := join(path, f.name)
		if kv, ok := given[f.name]; ok {
			d.lines[at] = kv.key.Line
			d.decode(kv.value, at, f.value, f.limits)
			delete(given, f.name)
			continue
		}
		if f.required {
			d.problem(n, at, "is missing: want %s", f.wants())
		}
		f.setDefault()
	}
	for name, kv := range given {
		d.problem(kv.key, join(path, name), "is not a field%s: want %s", hint(name, namesOf(fields)), keysOf(fields))
	}
}

type keyValue struct{ key, value *yaml.Node }

// keys are those of a mapping; of one that is there twice the first.
func (d *decoder) keys(n *yaml.Node, path string) map[string]keyValue {
	given := make(map[string]keyValue)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if first, twice := given[key.Value]; twice {
			d.problem(key, join(path, key.Value), "is there twice, first in line %d: want it once", first.key.Line)
			continue
		}
		given[key.Value] = keyValue{key, value}
	}
	return given
}

// scalar is the text of a value that is neither a list nor a mapping nor null.
func (d *decoder) scalar(n *yaml.Node, path, want string) (string, bool) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" {
		d.problem(n, path, "is %s: want %s", kindOf(n), want)
		return "", false
	}
	return n.Value, true
}

func (d *decoder) decodeScalar(n *yaml.Node, path string, v reflect.Value, tag limits) {
	want := tag.wants(v.Type())
	text, ok := d.scalar(n, path, want)
	if !ok {
		return
	}
	if err := set(v, n.ShortTag(), text); err != nil || !tag.allow(v) {
		d.problem(n, path, "is %s%s: want %s", quote(n), hint(text, tag.enum), want)
	}
}

// set fills a scalar. The types of YAML are kept apart: 1 is no text and "1" no
// number.
func set(v reflect.Value, tag, text string) error {
	switch {
	case v.Kind() == reflect.String && tag == "!!str":
		v.SetString(text)
		return nil
	case v.Kind() == reflect.Int && tag == "!!int":
		n, err := strconv.Atoi(text)
		v.SetInt(int64(n))
		return err
	case v.Kind() == reflect.Float64 && (tag == "!!float" || tag == "!!int"):
		x, err := strconv.ParseFloat(text, 64)
		v.SetFloat(x)
		return err
	case v.Kind() == reflect.Bool && tag == "!!bool":
		b, err := strconv.ParseBool(text)
		v.SetBool(b)
		return err
	}
	return fmt.Errorf("%s is no %s", tag, v.Kind())
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// kindOf says what was found in the place of something else.
func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode:
		if n.ShortTag() == "!!null" {
			return "empty"
		}
		return quote(n)
	default:
		return "something else"
	}
}

func quote(n *yaml.Node) string {
	if n.ShortTag() == "!!str" {
		return strconv.Quote(n.Value)
	}
	return n.Value
}
