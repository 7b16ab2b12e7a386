package form

import (
	"fmt"
	"reflect"
	"strings"
)

// Reference is a table of all fields in Markdown.
func Reference() string {
	var b strings.Builder
	b.WriteString("| field | default | what it is |\n|---|---|---|\n")
	refer(&b, "", reflect.TypeFor[file]())
	return b.String()
}

// refer writes the fields of a struct and of those in it.
func refer(b *strings.Builder, path string, t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			refer(b, path, f.Type)
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		at := path + name
		inner := f.Type
		if inner.Kind() == reflect.Slice {
			inner, at = inner.Elem(), at+"[]"
		}
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		tag := limitsOf(f.Tag)
		preset := tag.preset
		if preset != "" {
			preset = "`" + preset + "`"
		} else if options != "omitempty" {
			preset = "required"
		}
		about := f.Tag.Get("jsonschema_description")
		if limits := strings.TrimSpace(tag.rangeText()); limits != "" && !tag.exclusive() {
			about += fmt.Sprintf(" %s%s.", strings.ToUpper(limits[:1]), limits[1:])
		} else if len(tag.enum) > 0 && !mentions(about, tag.enum) {
			about += " One of " + strings.Join(tag.enum, ", ") + "."
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", at, preset, strings.ReplaceAll(about, "|", "\\|"))
		if inner.Kind() == reflect.Struct && (hasKeys(inner) || !readsItself(reflect.New(inner).Elem())) {
			refer(b, at+".", inner)
		}
	}
}

// hasKeys says whether a type that reads itself is written as the keys of its
// fields all the same.
func hasKeys(t reflect.Type) bool {
	return t == reflect.TypeFor[scenario]() || t == reflect.TypeFor[fault]()
}

// mentions says whether a description has all the words.
func mentions(about string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(about, w) {
			return false
		}
	}
	return true
}
