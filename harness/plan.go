package harness

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// MaxTrials bounds one run: each trial has a port of the load balancer, and its
// setup is part of the record.
const MaxTrials = 5000

// Expand turns an experiment into its trials. All that is wrong with the
// experiment is reported at once. Repeats are interleaved (every cell once,
// then every cell again), so that slow drift of the machine spreads evenly
// over the cells.
func Expand(e Experiment, runID string) (Plan, error) {
	errs := e.validate()
	if n := len(e.TargetTypes) * len(e.Mitigations) * len(e.Connections) * max(1, len(e.FaultSets)); n > MaxTrials {
		return Plan{}, errors.Join(append(errs, fmt.Errorf("vary: makes %d cells: want at most %d", n, MaxTrials))...)
	}
	seen := make(map[string]bool) // what is wrong with the base is wrong with every cell
	var plan Plan
	setups := make(map[Cell]Setup)
	all := e.combinations()
	kept := e.without(all)
	for _, v := range kept {
		s := e.Base.Clone()
		s.LoadBalancer.TargetType = v.cell.TargetType
		s.Load.Connections = v.cell.Connections
		if s.Load.Connections != ConnectionsLongLived {
			s.Load.LongLived = 0 // it is about those cells only
		}
		if v.cell.Faults != "" {
			s.Faults = slices.Clone(v.faults)
		}
		s, err := v.mitigation.Apply(s)
		if err == nil {
			err = s.validate()
		}
		if err != nil {
			if !seen[err.Error()] {
				seen[err.Error()] = true
				errs = append(errs, err)
			}
			continue
		}
		v.cell = v.final(e.Base)
		if _, twice := setups[v.cell]; twice {
			errs = append(errs, fmt.Errorf("cell %s is there twice: name each mitigation, target type, connection kind and fault set once", v.cell))
		}
		setups[v.cell] = s
		plan.Cells = append(plan.Cells, v.cell)
	}
	// Cells that need the same cluster are side by side, and those that need it
	// for themselves come last, so that the others can run in parallel.
	slices.SortStableFunc(plan.Cells, func(a, b Cell) int {
		x, y := setups[a], setups[b]
		return cmp.Or(
			strings.Compare(x.Cluster.KubeProxyMode, y.Cluster.KubeProxyMode),
			cmp.Compare(x.Cluster.KubeProxyMinSyncPeriod.Duration, y.Cluster.KubeProxyMinSyncPeriod.Duration),
			cmp.Compare(len(x.unsharedFaults()), len(y.unsharedFaults())))
	})
	for i, x := range e.Exclude {
		if !x.matchesAny(all) {
			errs = append(errs, fmt.Errorf("exclude[%d]: matches no cell", i))
		}
	}
	for i, x := range e.Expect {
		if !x.matchesAny(e.finals(kept)) {
			errs = append(errs, fmt.Errorf("expect[%d]: matches no cell", i))
		}
	}
	if len(all) > 0 && len(kept) == 0 {
		errs = append(errs, errors.New("exclude: leaves no cell"))
	}
	if trials := len(plan.Cells) * max(0, e.Repeats); trials > MaxTrials {
		errs = append(errs, fmt.Errorf("repeats: %d cells x %d repeats are %d trials: want at most %d", len(plan.Cells), e.Repeats, trials, MaxTrials))
	}
	if err := errors.Join(errs...); err != nil {
		return Plan{}, err
	}
	for repeat := 1; repeat <= e.Repeats; repeat++ {
		for _, cell := range plan.Cells {
			plan.Trials = append(plan.Trials, Trial{
				Number: len(plan.Trials) + 1, Repeat: repeat, Attempt: 1, RunID: runID, Cell: cell, Setup: setups[cell],
			})
		}
	}
	return plan, nil
}

// variant is one combination of what an experiment varies.
type variant struct {
	cell       Cell
	mitigation Mitigation
	faults     []Fault
}

// final is the cell as it is measured: a mitigation may change the target type.
func (v variant) final(base Setup) Cell {
	base.LoadBalancer.TargetType = v.cell.TargetType
	if s, err := v.mitigation.Apply(base); err == nil { // else Expand tells
		v.cell.TargetType = s.LoadBalancer.TargetType
	}
	return v.cell
}

// finals are variants with the cells that are measured, which is what
// expectations are about.
func (e Experiment) finals(variants []variant) []variant {
	all := slices.Clone(variants)
	for i := range all {
		all[i].cell = all[i].final(e.Base)
	}
	return all
}

// combinations are all of them, also those that are excluded.
func (e Experiment) combinations() []variant {
	sets := e.FaultSets
	if len(sets) == 0 {
		sets = []FaultSet{{Faults: e.Base.Faults}}
	}
	var all []variant
	for _, target := range e.TargetTypes {
		for _, m := range e.Mitigations {
			for _, conns := range e.Connections {
				for _, set := range sets {
					all = append(all, variant{Cell{
						Scenario: e.Base.Scenario.Name, TargetType: target, Mitigation: m.Name, Connections: conns, Faults: set.Name,
					}, m, set.Faults})
				}
			}
		}
	}
	return all
}

// without leaves out what the experiment excludes.
func (e Experiment) without(all []variant) []variant {
	return slices.DeleteFunc(slices.Clone(all), func(v variant) bool {
		return slices.ContainsFunc(e.Exclude, func(x Selector) bool { return x.Matches(v.cell) })
	})
}

// DropUnmatched leaves out the expectations and exclusions about cells that the
// experiment does not have. It is for experiments that were narrowed after they
// were written; in a written one they are errors.
func (e Experiment) DropUnmatched() Experiment {
	all := e.combinations()
	kept := e.without(all)
	e.Exclude = slices.DeleteFunc(slices.Clone(e.Exclude), func(x Selector) bool { return !x.matchesAny(all) })
	e.Expect = slices.DeleteFunc(slices.Clone(e.Expect), func(x Expectation) bool { return !x.matchesAny(e.finals(kept)) })
	return e
}

func (e Experiment) validate() []error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(e.Name != "", "name: want a name")
	check(e.Repeats >= 1 && e.Repeats <= 1000, "repeats is %d: want 1..1000", e.Repeats)
	check(len(e.TargetTypes) > 0, "targetTypes: want at least one of instance, ip")
	check(len(e.Connections) > 0, "connections: want at least one of pooled, new")
	check(len(e.Mitigations) > 0, "mitigations: want at least one (none is one)")
	for _, t := range e.TargetTypes {
		check(t == TargetInstance || t == TargetIP, "targetTypes: %q: want instance or ip", t)
	}
	for _, c := range e.Connections {
		check(c == ConnectionsPooled || c == ConnectionsNew || c == ConnectionsLongLived, "connections: %q: want pooled, new or long-lived", c)
	}
	for i, x := range e.Expect {
		if err := x.Failed.Check(); err != nil {
			errs = append(errs, fmt.Errorf("expect[%d].failed is %w", i, err))
		}
	}
	for i, set := range e.FaultSets {
		check(set.Name != "", "faultSets[%d].name: want a name", i)
	}
	return errs
}
