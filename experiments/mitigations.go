package experiments

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"lameduck/harness"
)

// MitigationForm is the form of the names of a family of mitigations, which
// differ in durations and numbers only.
type MitigationForm struct {
	// Form has D where a duration such as 10s stands, and N for a whole number.
	Form string
	// About is one line for lists.
	About string
	// Proof is where it is read that the mitigation is live, before or after the
	// attack; a trial without that proof is invalid.
	Proof string
}

// family is a form with its edits. $1 and $2 in them are what stood for the D
// and N of the form, seconds($1) is a duration as a number of seconds.
type family struct {
	MitigationForm
	edits []harness.Edit
}

// MitigationForms are the forms that Mitigation understands.
func MitigationForms() []MitigationForm {
	forms := make([]MitigationForm, len(families))
	for i, f := range families {
		forms[i] = f.MitigationForm
	}
	return forms
}

// Mitigation makes a mitigation from its name, such as prestop-sleep-10s. The
// name is kept as given. Errors list the forms that exist.
func Mitigation(name string) (harness.Mitigation, error) {
	forms := make([]string, len(families))
	for i, f := range families {
		forms[i] = f.Form
		args, ok := f.match(name)
		if !ok {
			continue
		}
		edits, err := f.fill(args)
		if err != nil {
			return harness.Mitigation{}, fmt.Errorf("mitigation %q: %w", name, err)
		}
		return harness.Mitigation{Name: name, Edits: edits}, nil
	}
	return harness.Mitigation{}, fmt.Errorf("mitigation %q: want one of %s, where D is a duration such as 10s and N a number",
		name, strings.Join(forms, ", "))
}

var places = regexp.MustCompile("[DN]")

// match finds what stands for the places of the form in a name that has it.
func (f family) match(name string) ([]string, bool) {
	pattern := "^" + places.ReplaceAllString(regexp.QuoteMeta(f.Form), "([^-]+)") + "$"
	found := regexp.MustCompile(pattern).FindStringSubmatch(name)
	if found == nil {
		return nil, false
	}
	return found[1:], true
}

// fill returns the family's edits with args in their places.
func (f family) fill(args []string) ([]harness.Edit, error) {
	var replace []string
	for i, place := range places.FindAllString(f.Form, -1) {
		seconds, err := check(place, args[i])
		if err != nil {
			return nil, err
		}
		replace = append(replace, fmt.Sprintf("seconds($%d)", i+1), seconds, fmt.Sprintf("$%d", i+1), args[i])
	}
	var edits []harness.Edit
	for _, e := range f.edits {
		edits = append(edits, harness.Edit{Field: e.Field, To: strings.NewReplacer(replace...).Replace(e.To)})
	}
	return edits, nil
}

// check says whether text can stand for D or N, and what it is in whole seconds,
// rounded up.
func check(place, text string) (seconds string, err error) {
	if place == "N" {
		if n, err := strconv.Atoi(text); err != nil || n < 1 {
			return "", fmt.Errorf("number is %q: want a whole number of 1 or more", text)
		}
		return "", nil
	}
	var d harness.Duration
	if err := d.UnmarshalText([]byte(text)); err != nil {
		return "", err
	}
	if d.Duration <= 0 || d.Duration > time.Hour {
		return "", fmt.Errorf("duration is %s: want more than 0s, at most 1h", d)
	}
	return strconv.Itoa(int(math.Ceil(d.Duration.Seconds()))), nil
}
