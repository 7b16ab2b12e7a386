package harness

import (
	"fmt"
	"slices"
)

// Experiment is what a user asks for. Experiment files are read, and built-in
// ones made, by package experiments.
type Experiment struct {
	Name  string `json:"name"`
	About string `json:"about"`
	// Base is the setup that is varied.
	Base        Setup         `json:"base"`
	TargetTypes []TargetType  `json:"targetTypes"`
	Connections []Connections `json:"connections"`
	Mitigations []Mitigation  `json:"mitigations"`
	// FaultSets are tried one after the other; none: Base.Faults alone.
	FaultSets []FaultSet `json:"faultSets,omitempty"`
	// Exclude leaves out combinations of the above.
	Exclude []Selector    `json:"exclude,omitempty"`
	Repeats int           `json:"repeats"`
	Expect  []Expectation `json:"expect"`
}

// FaultSet is a named list of faults, which takes the place of Base.Faults.
type FaultSet struct {
	Name   string  `json:"name"`
	Faults []Fault `json:"faults,omitempty"` // none: nothing is broken
}

// Selector chooses cells. Empty fields match all.
type Selector struct {
	TargetType  TargetType  `json:"targetType,omitempty"`
	Mitigation  string      `json:"mitigation,omitempty"`
	Connections Connections `json:"connections,omitempty"`
	Faults      string      `json:"faults,omitempty"` // the name of a FaultSet
}

// Expectation is what the cells that it matches should show.
type Expectation struct {
	Selector
	Failed Expected `json:"failed"`
}

// Matches says whether the cell is one of those that are chosen.
func (s Selector) Matches(c Cell) bool {
	return (s.TargetType == "" || s.TargetType == c.TargetType) &&
		(s.Mitigation == "" || s.Mitigation == c.Mitigation) &&
		(s.Connections == "" || s.Connections == c.Connections) &&
		(s.Faults == "" || s.Faults == c.Faults)
}

func (s Selector) matchesAny(variants []variant) bool {
	return slices.ContainsFunc(variants, func(v variant) bool { return s.Matches(v.cell) })
}

// Cell is one combination that is measured.
type Cell struct {
	Scenario    string      `json:"scenario"`
	TargetType  TargetType  `json:"targetType"`
	Mitigation  string      `json:"mitigation"`
	Connections Connections `json:"connections"`
	Faults      string      `json:"faults,omitempty"` // the name of a FaultSet, "" if the experiment has none
}

// String names the cell within its scenario.
func (c Cell) String() string {
	s := fmt.Sprintf("%s %s %s", c.TargetType, c.Mitigation, c.Connections)
	if c.Faults != "" {
		s += " " + c.Faults
	}
	return s
}

// Trial is one repeat of a cell.
type Trial struct {
	Number int `json:"number"` // from 1, in the order of execution
	Repeat int `json:"repeat"` // from 1
	// Attempt is 2 for the repetition of a trial that was invalid.
	Attempt int    `json:"attempt,omitempty"`
	RunID   string `json:"runId"`
	Cell    Cell   `json:"cell"`
	Setup   Setup  `json:"setup"`
}

// Plan is an experiment expanded to trials.
type Plan struct {
	Cells  []Cell  `json:"cells"`
	Trials []Trial `json:"trials"`
}

// Verdict of a trial.
type Verdict string

// The verdicts. A valid trial passes or fails by its cell's expectation;
// without one it passes.
const (
	VerdictPass    Verdict = "pass"
	VerdictFail    Verdict = "fail"
	VerdictInvalid Verdict = "invalid"
)

// Run is the header of a run directory (run.json).
type Run struct {
	Schema      int         `json:"schema"`
	Tool        string      `json:"tool"` // version of lameduck
	ID          string      `json:"id"`
	Experiment  Experiment  `json:"experiment"`
	Plan        Plan        `json:"plan"`
	Environment Environment `json:"environment"`
	Started     string      `json:"started"` // RFC 3339
	// Command is how the run was started, to start it again.
	Command string `json:"command,omitempty"`
}

// RunEnd closes a run (end.json).
type RunEnd struct {
	Ended    string `json:"ended"` // RFC 3339
	Complete bool   `json:"complete"`
	Reason   string `json:"reason,omitempty"` // why it is not complete
}

// SchemaVersion is the version of the run directory's format. A reader refuses
// a newer one.
const SchemaVersion = 2

// Gate is one check on whether a trial's figures can be believed.
type Gate struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

// TrialResult is written last (trial.json); its presence makes a trial complete.
type TrialResult struct {
	Trial   Trial       `json:"trial"`
	Anchor  string      `json:"anchor"` // wall time of offset zero, RFC 3339 with nanoseconds
	Verdict Verdict     `json:"verdict"`
	Reason  string      `json:"reason,omitempty"` // of an invalid or failed trial
	Gates   []Gate      `json:"gates"`
	Stats   AttackStats `json:"stats"`
	Live    Live        `json:"live"` // as read back before the attack
	// Disruption is what the scenario did.
	Disruption Disruption `json:"disruption"`
	// Counts are exact, over the application's requests (control excluded).
	Counts map[Outcome]int `json:"counts"`
	// Phases are how long each step took, in seconds.
	Phases map[string]float64 `json:"phases"`
}
