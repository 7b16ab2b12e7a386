package form

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/invopop/jsonschema"

	"lameduck/harness"
)

const (
	durationPattern = `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$|^0$`
	rangePattern    = `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+(\.\.([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+)?$`
)

// Schema is the JSON schema (draft 2020-12) of experiment files.
func Schema(c Catalogue) ([]byte, error) {
	s := schemaOf(c)
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(s); err != nil {
		return nil, fmt.Errorf("write schema: %w", err)
	}
	return out.Bytes(), nil
}

func schemaOf(c Catalogue) *jsonschema.Schema {
	r := jsonschema.Reflector{Anonymous: true, DoNotReference: true}
	r.Mapper = func(t reflect.Type) *jsonschema.Schema { return schemaOfType(&r, c, t) }
	s := r.ReflectFromType(reflect.TypeFor[file]())
	s.Title = "lameduck experiment"
	return s
}

// schemaOfType is the schema of a type that is written in a form of its own; nil
// for others.
func schemaOfType(r *jsonschema.Reflector, c Catalogue, t reflect.Type) *jsonschema.Schema {
	switch t {
	case reflect.TypeFor[harness.Duration]():
		return text(durationPattern)
	case reflect.TypeFor[harness.DurationRange]():
		return text(rangePattern)
	case reflect.TypeFor[name]():
		return text(namePattern)
	case reflect.TypeFor[line]():
		return text(linePattern)
	case reflect.TypeFor[quantity]():
		return anyOf(text(quantityPattern), above("number", "0"))
	case reflect.TypeFor[podsOrPercent]():
		return anyOf(text(podsOrPercentPattern), from("integer", "0"))
	case reflect.TypeFor[percent]():
		return text(percentPattern)
	case reflect.TypeFor[rate]():
		n := from("integer", "1")
		n.Maximum = "5000"
		return anyOf(text(ratePattern), n)
	case reflect.TypeFor[connections]():
		return anyOf(words(connectionKinds...), &jsonschema.Schema{Type: "array", Items: words(connectionKinds...)})
	case reflect.TypeFor[onSIGTERM]():
		return anyOf(words(sigtermWords...), object(r, reflect.TypeFor[sigtermWait]()))
	case reflect.TypeFor[failed]():
		limit := object(r, reflect.TypeFor[failedLimit]())
		one := uint64(1)
		limit.MinProperties, limit.MaxProperties = &one, &one
		return anyOf(words(string(harness.ExpectNone), string(harness.ExpectSome)), limit)
	case reflect.TypeFor[faultSet]():
		return anyOf(words(noFaults), object(r, reflect.TypeFor[namedFaults]()))
	case reflect.TypeFor[mitigation]():
		return anyOf(named(c), parameters(c), object(r, reflect.TypeFor[ownMitigation]()))
	case reflect.TypeFor[mitigationName]():
		return anyOf(&jsonschema.Schema{Type: "string"}, parameters(c))
	case reflect.TypeFor[edited]():
		return editsSchema()
	default:
		return nil
	}
}

// object is the schema of a struct that is one of several forms.
func object(r *jsonschema.Reflector, t reflect.Type) *jsonschema.Schema {
	s := r.ReflectFromType(t)
	s.Version = ""
	return s
}

// named are the names of the catalogue's mitigations.
func named(c Catalogue) *jsonschema.Schema {
	place := regexp.MustCompile("[DN]")
	var forms []string
	for _, form := range c.Forms {
		forms = append(forms, place.ReplaceAllStringFunc(regexp.QuoteMeta(form), func(p string) string {
			if p == "N" {
				return "[0-9]+"
			}
			return "[0-9][0-9a-zµ.]*"
		}))
	}
	return text("^(" + strings.Join(forms, "|") + ")$")
}

// parameters are mitigations as keys with values. The keys that are listed are
// for completion; which of them go together is said when the file is read.
func parameters(c Catalogue) *jsonschema.Schema {
	value := anyOf(text(`^[0-9][0-9a-zµ.]*$`), from("integer", "0"), &jsonschema.Schema{Const: true})
	var keys []string
	for _, form := range c.Forms {
		keys = append(keys, keysOfForm(form)...)
	}
	slices.Sort(keys)
	one := uint64(1)
	s := &jsonschema.Schema{
		Type: "object", Properties: jsonschema.NewProperties(), MinProperties: &one, AdditionalProperties: value,
		PropertyNames: &jsonschema.Schema{Not: &jsonschema.Schema{Enum: []any{"name", "edits"}}},
	}
	for _, key := range slices.Compact(keys) {
		s.Properties.Set(key, value)
	}
	return s
}

func editsSchema() *jsonschema.Schema {
	one := uint64(1)
	s := &jsonschema.Schema{
		Type: "object", Properties: jsonschema.NewProperties(), MinProperties: &one, AdditionalProperties: jsonschema.FalseSchema,
	}
	for _, name := range harness.EditableFields() {
		s.Properties.Set(name, anyOf(&jsonschema.Schema{Type: "string"}, &jsonschema.Schema{Type: "number"}, &jsonschema.Schema{Type: "boolean"}))
	}
	return s
}

func text(pattern string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: pattern}
}

func words(values ...string) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string"}
	for _, v := range values {
		s.Enum = append(s.Enum, v)
	}
	return s
}

func from(kind, minimum string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: kind, Minimum: json.Number(minimum)}
}

func above(kind, minimum string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: kind, ExclusiveMinimum: json.Number(minimum)}
}

func anyOf(forms ...*jsonschema.Schema) *jsonschema.Schema {
	return &jsonschema.Schema{AnyOf: forms}
}
