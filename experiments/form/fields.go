package form

import (
	"encoding"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"lameduck/harness"
)

// limits are what a field's jsonschema tag says.
type limits struct {
	enum                       []string
	minimum, maximum           *float64
	aboveMinimum, belowMaximum *float64
	pattern                    *regexp.Regexp
	preset                     string
	longest                    time.Duration // of durations
}

// longest is the limit of durations whose tag longest does not say another.
const longest = time.Hour

func limitsOf(t reflect.StructTag) limits {
	l := limits{longest: longest}
	if text, ok := t.Lookup("longest"); ok {
		var err error
		if l.longest, err = time.ParseDuration(text); err != nil {
			panic(fmt.Sprintf("tag %q: %v", t, err))
		}
	}
	tag := t.Get("jsonschema")
	number := func(text string) *float64 {
		x, err := strconv.ParseFloat(text, 64)
		if err != nil {
			panic(fmt.Sprintf("tag %q: %v", tag, err))
		}
		return &x
	}
	for part := range strings.SplitSeq(tag, ",") {
		name, value, _ := strings.Cut(part, "=")
		switch name {
		case "enum":
			l.enum = append(l.enum, value)
		case "minimum":
			l.minimum = number(value)
		case "maximum":
			l.maximum = number(value)
		case "exclusiveMinimum":
			l.aboveMinimum = number(value)
		case "exclusiveMaximum":
			l.belowMaximum = number(value)
		case "pattern":
			l.pattern = regexp.MustCompile(value)
		case "default":
			l.preset = value
		}
	}
	return l
}

// allow says whether a scalar is within the limits.
func (l limits) allow(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.String:
		return (len(l.enum) == 0 || slices.Contains(l.enum, v.String())) &&
			(l.pattern == nil || l.pattern.MatchString(v.String()))
	case reflect.Int:
		return l.within(float64(v.Int()))
	case reflect.Float64:
		return l.within(v.Float())
	default:
		return true
	}
}

// tooLong says whether a duration, or the upper one of a range, is above the
// limit: sums of them would be too large for anything.
func (l limits) tooLong(v any) bool {
	switch d := v.(type) {
	case *harness.Duration:
		return d.Duration > l.longest
	case *harness.DurationRange:
		return d.Max > l.longest
	default:
		return false
	}
}

func (l limits) within(x float64) bool {
	return !math.IsNaN(x) &&
		(l.minimum == nil || x >= *l.minimum) && (l.maximum == nil || x <= *l.maximum) &&
		(l.aboveMinimum == nil || x > *l.aboveMinimum) && (l.belowMaximum == nil || x < *l.belowMaximum)
}

// exclusive says whether a limit is itself not allowed.
func (l limits) exclusive() bool { return l.aboveMinimum != nil || l.belowMaximum != nil }

// wants says what a field of type t takes.
func (l limits) wants(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if w, ok := reflect.Zero(t).Interface().(interface{ wants() string }); ok {
		return w.wants()
	}
	switch {
	case len(l.enum) == 1:
		return l.enum[0]
	case len(l.enum) > 1:
		return "one of " + strings.Join(l.enum, ", ")
	case t == reflect.TypeFor[harness.DurationRange]():
		return "a duration or two, the lower first, like 17s or 5s..20s"
	case reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		return "a duration, like 500ms, 10s or 2m"
	}
	switch t.Kind() {
	case reflect.Struct:
		return "a mapping with " + keysOf(fieldsOf(reflect.New(t).Elem()))
	case reflect.Slice:
		return "a list"
	case reflect.Int:
		return "a whole number" + l.rangeText()
	case reflect.Float64:
		return "a number" + l.rangeText()
	case reflect.Bool:
		return "true or false"
	default:
		if l.pattern != nil {
			return "text that begins with " + strings.TrimPrefix(l.pattern.String(), "^")
		}
		return "text (in quotes if it looks like a number)"
	}
}

func (l limits) rangeText() string {
	var text string
	for _, bound := range []struct {
		at   *float64
		word string
	}{{l.minimum, "from"}, {l.aboveMinimum, "above"}, {l.maximum, "to"}, {l.belowMaximum, "and below"}} {
		if bound.at != nil {
			text += fmt.Sprintf(" %s %s", bound.word, strconv.FormatFloat(*bound.at, 'f', -1, 64))
		}
	}
	return text
}

// fieldValue is a field of a struct of the form.
type fieldValue struct {
	name     string
	required bool
	value    reflect.Value
	limits
}

// fieldsOf are the fields of a struct, also those of structs that are embedded.
func fieldsOf(v reflect.Value) []fieldValue {
	var fields []fieldValue
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Anonymous {
			fields = append(fields, fieldsOf(v.Field(i))...)
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		fields = append(fields, fieldValue{name, options != "omitempty", v.Field(i), limitsOf(f.Tag)})
	}
	return fields
}

func (f fieldValue) wants() string { return f.limits.wants(f.value.Type()) }

// setDefault fills a field that is not in the file.
func (f fieldValue) setDefault() {
	if f.preset == "" {
		if f.value.Kind() == reflect.Struct && !readsItself(f.value) {
			for _, inner := range fieldsOf(f.value) {
				inner.setDefault()
			}
		}
		return
	}
	var err error
	switch to := f.value.Addr().Interface().(type) {
	case encoding.TextUnmarshaler:
		err = to.UnmarshalText([]byte(f.preset))
	default:
		tag := map[reflect.Kind]string{reflect.String: "!!str", reflect.Int: "!!int", reflect.Float64: "!!float", reflect.Bool: "!!bool"}
		err = set(f.value, tag[f.value.Kind()], f.preset)
	}
	if err != nil {
		panic(fmt.Sprintf("default of %s: %v", f.name, err))
	}
}

// readsItself says whether a value is more than the fields of a struct.
func readsItself(v reflect.Value) bool {
	switch v.Addr().Interface().(type) {
	case fromNode, encoding.TextUnmarshaler:
		return true
	default:
		return false
	}
}

func namesOf(fields []fieldValue) []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	return names
}

func keysOf(fields []fieldValue) string {
	if len(fields) == 0 {
		return "no keys: {}"
	}
	return strings.Join(namesOf(fields), ", ")
}
