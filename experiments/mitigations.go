package experiments

import (
	"fmt"
	"regexp"
	"strings"

	"lameduck/harness"
)

// family is a set of mitigations that differ in durations only. Each D of the
// form stands for a duration; $1 and $2 in the edits are what stood there.
type family struct {
	form  string
	edits []harness.Edit
}

var families = []family{
	{form: "none"},
	{form: "prestop-sleep-D", edits: []harness.Edit{
		{Field: "workload.preStopSleep", To: "$1"},
	}},
	{form: "prestop-sleep-D-grace-D", edits: []harness.Edit{
		{Field: "workload.preStopSleep", To: "$1"},
		{Field: "workload.gracePeriod", To: "$2"},
	}},
	{form: "sigterm-wait-D", edits: []harness.Edit{
		{Field: "workload.onSigterm", To: string(harness.SIGTERMWait)},
		{Field: "workload.sigtermWait", To: "$1"},
	}},
}

// MitigationForms are the forms that Mitigation understands. D stands for a
// duration such as 10s or 1m30s.
func MitigationForms() []string {
	forms := make([]string, len(families))
	for i, f := range families {
		forms[i] = f.form
	}
	return forms
}

// Mitigation makes a mitigation from its name, such as prestop-sleep-10s. The
// name is kept as given. Errors list the forms that exist.
func Mitigation(name string) (harness.Mitigation, error) {
	for _, f := range families {
		durations, ok := f.match(name)
		if !ok {
			continue
		}
		for _, text := range durations {
			var d harness.Duration
			if err := d.UnmarshalText([]byte(text)); err != nil {
				return harness.Mitigation{}, fmt.Errorf("mitigation %q: %w", name, err)
			}
			if d.Duration <= 0 {
				return harness.Mitigation{}, fmt.Errorf("mitigation %q: duration is %s: want more than 0s", name, d)
			}
		}
		return harness.Mitigation{Name: name, Edits: f.fill(durations)}, nil
	}
	return harness.Mitigation{}, fmt.Errorf("mitigation %q: want one of %s, where D is a duration such as 10s",
		name, strings.Join(MitigationForms(), ", "))
}

// match finds the durations in a name that has the family's form.
func (f family) match(name string) ([]string, bool) {
	pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(f.form), "D", "([^-]+)") + "$"
	found := regexp.MustCompile(pattern).FindStringSubmatch(name)
	if found == nil {
		return nil, false
	}
	return found[1:], true
}

// fill returns the family's edits with the durations in their places.
func (f family) fill(durations []string) []harness.Edit {
	var edits []harness.Edit
	for _, e := range f.edits {
		for i, d := range durations {
			e.To = strings.ReplaceAll(e.To, fmt.Sprintf("$%d", i+1), d)
		}
		edits = append(edits, e)
	}
	return edits
}

// mitigations makes those of a built-in experiment. Their names are constants
// of this package, so a wrong one is a programming error.
func mitigations(names ...string) []harness.Mitigation {
	made := make([]harness.Mitigation, len(names))
	for i, name := range names {
		m, err := Mitigation(name)
		if err != nil {
			panic(err)
		}
		made[i] = m
	}
	return made
}
