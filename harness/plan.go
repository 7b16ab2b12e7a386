package harness

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Expand turns an experiment into its trials. All that is wrong with the
// experiment is reported at once. Repeats are interleaved (every cell once,
// then every cell again), so that slow drift of the machine spreads evenly
// over the cells.
func Expand(e Experiment, runID string) (Plan, error) {
	errs := e.validate()
	seen := make(map[string]bool) // what is wrong with the base is wrong with every cell
	var plan Plan
	setups := make(map[Cell]Setup)
	all := e.combinations()
	kept := e.without(all)
	for _, v := range kept {
		s := e.Base.Clone()
		s.LoadBalancer.TargetType = v.cell.TargetType
		s.Load.Connections = v.cell.Connections
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
		if _, twice := setups[v.cell]; twice {
			errs = append(errs, fmt.Errorf("cell %s is there twice: name each mitigation, target type and connection kind once", v.cell))
		}
		setups[v.cell] = s
		plan.Cells = append(plan.Cells, v.cell)
	}
	for i, x := range e.Exclude {
		if !x.matchesAny(all) {
			errs = append(errs, fmt.Errorf("exclude[%d]: matches no cell", i))
		}
	}
	for i, x := range e.Expect {
		if !x.matchesAny(kept) {
			errs = append(errs, fmt.Errorf("expect[%d]: matches no cell", i))
		}
	}
	if len(all) > 0 && len(kept) == 0 {
		errs = append(errs, errors.New("exclude: leaves no cell"))
	}
	if err := errors.Join(errs...); err != nil {
		return Plan{}, err
	}
	for repeat := 1; repeat <= e.Repeats; repeat++ {
		for _, cell := range plan.Cells {
			plan.Trials = append(plan.Trials, Trial{
				Number: len(plan.Trials) + 1, Repeat: repeat, RunID: runID, Cell: cell, Setup: setups[cell],
			})
		}
	}
	return plan, nil
}

// variant is one combination of what an experiment varies.
type variant struct {
	cell       Cell
	mitigation Mitigation
}

// combinations are all of them, also those that are excluded.
func (e Experiment) combinations() []variant {
	var all []variant
	for _, target := range e.TargetTypes {
		for _, m := range e.Mitigations {
			for _, conns := range e.Connections {
				all = append(all, variant{Cell{
					Scenario: e.Base.Scenario.Name, TargetType: target, Mitigation: m.Name, Connections: conns,
				}, m})
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
	e.Expect = slices.DeleteFunc(slices.Clone(e.Expect), func(x Expectation) bool { return !x.matchesAny(kept) })
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
		check(c == ConnectionsPooled || c == ConnectionsNew, "connections: %q: want pooled or new", c)
	}
	for i, x := range e.Expect {
		check(x.Failed == ExpectNone || x.Failed == ExpectSome, "expect[%d].failed is %q: want none or some", i, x.Failed)
	}
	return errs
}

// validate checks one resolved setup against what Kubernetes and the load
// generator accept.
func (s Setup) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	w, l := s.Workload, s.Load
	check(w.Replicas >= 1 && w.Replicas <= 500, "workload.replicas is %d: want 1..500", w.Replicas)
	check(w.GracePeriod.Duration >= time.Second && w.GracePeriod.Duration%time.Second == 0,
		"workload.gracePeriod is %s: want whole seconds, at least 1s", w.GracePeriod)
	check(w.PreStopSleep.Duration >= 0, "workload.preStopSleep is %s: want 0s or more", w.PreStopSleep)
	check((w.OnSIGTERM == SIGTERMWait) == (w.SIGTERMWait.Duration > 0),
		"workload.sigtermWait is %s with onSigterm %q: want more than 0s with %q, and 0s without", w.SIGTERMWait, w.OnSIGTERM, SIGTERMWait)
	check(w.ResponseTime.P50.Duration > 0 && w.ResponseTime.P99.Duration >= w.ResponseTime.P50.Duration,
		"workload.responseTime: p50 is %s and p99 is %s: want 0s < p50 <= p99", w.ResponseTime.P50, w.ResponseTime.P99)
	check(w.ResponseTime.SlowShare >= 0 && w.ResponseTime.SlowShare <= 1,
		"workload.responseTime.slowShare is %g: want 0..1", w.ResponseTime.SlowShare)
	check(l.Rate >= 1 && l.Rate <= 5000, "load.rate is %d: want 1..5000 requests per second", l.Rate)
	check(l.Timeout.Duration >= 100*time.Millisecond, "load.timeout is %s: want at least 100ms", l.Timeout)
	check(l.Baseline.Duration >= time.Second, "load.baseline is %s: want at least 1s", l.Baseline)
	check(l.Settle.Duration >= time.Second, "load.settle is %s: want at least 1s", l.Settle)
	check(l.ControlRate >= 1 && l.ControlRate <= l.Rate, "load.controlRate is %d: want 1..load.rate", l.ControlRate)
	check(s.LoadBalancer.IdleTimeout.Duration >= time.Second && s.LoadBalancer.IdleTimeout.Duration <= 4000*time.Second,
		"loadBalancer.idleTimeout is %s: want 1s..4000s (AWS user guide, idle_timeout.timeout_seconds)", s.LoadBalancer.IdleTimeout)
	check(s.LoadBalancer.DeregistrationDelay.Duration >= 0 && s.LoadBalancer.DeregistrationDelay.Duration <= 3600*time.Second,
		"loadBalancer.deregistrationDelay is %s: want 0s..3600s (AWS user guide, deregistration_delay.timeout_seconds)", s.LoadBalancer.DeregistrationDelay)
	check(s.LoadBalancer.DeregistrationLag.Max <= time.Hour, "loadBalancer.deregistrationLag is %s: want at most 1h", s.LoadBalancer.DeregistrationLag)
	check(s.LoadBalancer.RegistrationLag.Max <= time.Minute, "loadBalancer.registrationLag is %s: want at most 1m", s.LoadBalancer.RegistrationLag)
	check(s.Scenario.Limit.Duration > 0, "scenario.limit is %s: want more than 0s", s.Scenario.Limit)
	return errors.Join(errs...)
}
