package harness

import (
	"fmt"
	"reflect"
	"strings"
)

// Mitigation is a named edit of a setup. It is data, so that it can be read
// from a file, written to the record and compared.
type Mitigation struct {
	Name  string `json:"name"`
	Edits []Edit `json:"edits,omitempty"` // none: the setup as it is
}

// Edit sets one field of a setup.
type Edit struct {
	Field string `json:"field"` // one of EditableFields
	To    string `json:"to"`
}

// Apply returns the edited setup. An unknown field, a value that does not
// parse and an edit that changes nothing are errors: a mitigation that does
// nothing would be reported as one that does not help.
func (m Mitigation) Apply(s Setup) (Setup, error) {
	out := s.Clone()
	for _, e := range m.Edits {
		f, ok := fields[e.Field]
		switch {
		case !ok:
			return Setup{}, fmt.Errorf("mitigation %s: field %q: want one of %s", m.Name, e.Field, strings.Join(EditableFields(), ", "))
		case f.builtin && s.Workload.App != nil:
			return Setup{}, fmt.Errorf("mitigation %s: %s is of the built-in application: your own has to do it by itself", m.Name, e.Field)
		}
		if err := f.set(&out, e.To); err != nil {
			return Setup{}, fmt.Errorf("mitigation %s: %s: %w", m.Name, e.Field, err)
		}
	}
	if len(m.Edits) > 0 && reflect.DeepEqual(out, s) {
		return Setup{}, fmt.Errorf("mitigation %s changes nothing: the setup already is %s", m.Name, s)
	}
	return out, nil
}
