package form

import "reflect"

// Named is something that can be named in a file.
type Named struct{ Name, About string }

// Faults are all faults.
func Faults() []Named {
	var all []Named
	t := reflect.TypeFor[fault]()
	for i, f := range fieldsOf(reflect.New(t).Elem()) {
		all = append(all, Named{f.name, t.Field(i).Tag.Get("jsonschema_description")})
	}
	return all
}
