package harness

import (
	"fmt"
	"slices"
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

// field is one editable field of a setup and the proof that it is live.
type field struct {
	set func(*Setup, string) error
	// live returns what a running pod shows for the field, to be compared with
	// what want returns for the setup.
	live func(LivePod) string
	want func(Setup) string
}

var fields = map[string]field{
	"workload.preStopSleep": {
		set:  func(s *Setup, to string) error { return s.Workload.PreStopSleep.UnmarshalText([]byte(to)) },
		live: func(p LivePod) string { return p.PreStopSleep.String() },
		want: func(s Setup) string { return s.Workload.PreStopSleep.String() },
	},
	"workload.onSigterm": {
		set:  setOnSIGTERM,
		live: func(p LivePod) string { return string(p.OnSIGTERM) },
		want: func(s Setup) string { return string(s.Workload.OnSIGTERM) },
	},
	"workload.sigtermWait": {
		set:  func(s *Setup, to string) error { return s.Workload.SIGTERMWait.UnmarshalText([]byte(to)) },
		live: func(p LivePod) string { return p.SIGTERMWait.String() },
		want: func(s Setup) string { return s.Workload.SIGTERMWait.String() },
	},
	"workload.gracePeriod": {
		set:  func(s *Setup, to string) error { return s.Workload.GracePeriod.UnmarshalText([]byte(to)) },
		live: func(p LivePod) string { return p.GracePeriod.String() },
		want: func(s Setup) string { return s.Workload.GracePeriod.String() },
	},
}

func setOnSIGTERM(s *Setup, to string) error {
	behaviours := []OnSIGTERM{SIGTERMExit, SIGTERMDrain, SIGTERMWait, SIGTERMIgnore}
	if !slices.Contains(behaviours, OnSIGTERM(to)) {
		return fmt.Errorf("%q: want one of %v", to, behaviours)
	}
	s.Workload.OnSIGTERM = OnSIGTERM(to)
	return nil
}

// EditableFields are the names that an Edit can set, sorted.
func EditableFields() []string {
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Apply returns the edited setup. An unknown field, a value that does not
// parse and an edit that changes nothing are errors: a mitigation that does
// nothing would be reported as one that does not help.
func (m Mitigation) Apply(s Setup) (Setup, error) {
	out := s.Clone()
	for _, e := range m.Edits {
		f, ok := fields[e.Field]
		if !ok {
			return Setup{}, fmt.Errorf("mitigation %s: field %q: want one of %s", m.Name, e.Field, strings.Join(EditableFields(), ", "))
		}
		if err := f.set(&out, e.To); err != nil {
			return Setup{}, fmt.Errorf("mitigation %s: %s: %w", m.Name, e.Field, err)
		}
	}
	if len(m.Edits) > 0 && out == s {
		return Setup{}, fmt.Errorf("mitigation %s changes nothing: the setup already is %s", m.Name, s)
	}
	return out, nil
}

// CheckLive compares what the running pods show with what the setup asks for,
// in every editable field. It returns one sentence per difference.
func CheckLive(s Setup, pods []LivePod) []string {
	var diffs []string
	for _, name := range EditableFields() {
		f := fields[name]
		for _, p := range pods {
			if got, want := f.live(p), f.want(s); got != want {
				diffs = append(diffs, fmt.Sprintf("pod %s: %s is %s, want %s", p.Name, name, got, want))
			}
		}
	}
	return diffs
}
