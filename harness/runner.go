package harness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Runner executes a plan. Every field but Progress is needed.
type Runner struct {
	World     World
	Attacker  Attacker
	Scenarios map[string]Scenario
	Store     Store
	// CPU reads the time of the machine that generates the load: ReadCPU.
	CPU func() (CPUTimes, bool)
	// Parallel is how many trials are under way at once.
	Parallel int
	// Progress, if set, is told about every change; calls do not overlap.
	Progress func(Progress)

	mu sync.Mutex // guards Progress
	// turnover is held while a trial's pods are started or removed. Both cost more
	// CPU than any load, so that the other trials can stand it from one at a time.
	turnover chan struct{}
}

// Progress is a moment in a run.
type Progress struct {
	Trial  Trial
	Phase  Phase
	Result *TrialResult // with PhaseDone
}

// Phase is a step of a trial.
type Phase string

// The phases of a trial, in order; TrialResult.Phases has a length for each
// but the last.
const (
	PhaseDeploy   Phase = "deploy"
	PhaseWarmUp   Phase = "warm-up"
	PhaseBaseline Phase = "baseline"
	PhaseScenario Phase = "scenario"
	PhaseSettle   Phase = "settle"
	PhaseDrain    Phase = "drain" // requests in flight end
	PhaseRemove   Phase = "remove"
	PhaseDone     Phase = "done"
)

// Check says, before anything is created, what is wrong with the plan.
func (r *Runner) Check(p Plan) error {
	if len(p.Trials) == 0 {
		return errors.New("the plan has no trials")
	}
	checked := make(map[Cell]bool)
	var errs []error
	for _, t := range p.Trials {
		if checked[t.Cell] {
			continue
		}
		checked[t.Cell] = true
		scenario, ok := r.Scenarios[t.Setup.Scenario.Name]
		if !ok {
			errs = append(errs, fmt.Errorf("scenario %q is not known", t.Setup.Scenario.Name))
			continue
		}
		if err := scenario.Check(t.Setup); err != nil {
			errs = append(errs, fmt.Errorf("%s, %s: %w", t.Cell.Mitigation, t.Cell.TargetType, err))
		}
	}
	return errors.Join(errs...)
}

// Run executes the trials of a plan in order, Parallel at a time, and returns
// the results of those that ended. A trial that could not be measured is an
// invalid result, not an error; it is tried once more after the others. An error means that the run as a whole can not
// go on: ctx ended, or the record can not be written. Everything that was
// deployed is removed in every case.
func (r *Runner) Run(ctx context.Context, e Experiment, p Plan) ([]TrialResult, error) {
	if err := r.Check(p); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	r.turnover = make(chan struct{}, 1)
	s := schedule{runner: r, experiment: e, stop: stop, slots: make(chan struct{}, max(1, r.Parallel))}
	for _, t := range p.Trials {
		s.start(ctx, t)
	}
	s.wait()
	again := slices.Clone(s.disturbed)
	for _, t := range again {
		s.start(ctx, t)
	}
	s.wait()
	// Set back, also after Ctrl-C.
	restore, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeLimit)
	defer cancel()
	if err := s.configure(restore, ClusterSettings{}); err != nil {
		return s.results, errors.Join(context.Cause(ctx), err)
	}
	if s.ended < len(p.Trials)+len(again) {
		return s.results, context.Cause(ctx)
	}
	return s.results, nil
}

// MaxAttempts is how often a trial is tried that turns out to be invalid.
const MaxAttempts = 2

// schedule runs trials, as many at a time as there are slots, but alone those
// that others would notice.
type schedule struct {
	runner     *Runner
	experiment Experiment
	stop       context.CancelCauseFunc
	slots      chan struct{}
	cluster    ClusterSettings // as they are in force

	mu        sync.Mutex
	results   []TrialResult
	ended     int
	disturbed []Trial // the next attempts of trials that were invalid
}

// start returns when the trial has begun, or, if it has to be alone, ended. It
// does nothing once ctx has ended.
func (s *schedule) start(ctx context.Context, t Trial) {
	if ctx.Err() != nil {
		return
	}
	alone := Alone(t.Setup, s.runner.Scenarios[t.Setup.Scenario.Name])
	if alone || t.Setup.Cluster != s.cluster {
		s.wait()
	}
	if err := s.configure(ctx, t.Setup.Cluster); err != nil {
		s.stop(err)
		return
	}
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return
	}
	go func() {
		defer func() { <-s.slots }()
		s.run(ctx, t)
	}()
	if alone {
		s.wait()
	}
}

// Alone says whether a trial with this setup and scenario has to have the cluster
// for itself.
func Alone(s Setup, scenario Scenario) bool {
	x, ok := scenario.(Exclusive)
	return (ok && x.Exclusive()) || len(s.unsharedFaults()) > 0
}

// wait returns when no trial is under way.
func (s *schedule) wait() {
	for range cap(s.slots) {
		s.slots <- struct{}{}
	}
	for range cap(s.slots) {
		<-s.slots
	}
}

func (s *schedule) configure(ctx context.Context, c ClusterSettings) error {
	if c == s.cluster {
		return nil
	}
	world, ok := s.runner.World.(Configurable)
	if !ok {
		return errors.New("cluster: the settings of this cluster cannot be changed: leave them out")
	}
	s.cluster = c // also on error, when some of it may be in force: it is set back then
	if err := world.Configure(ctx, c); err != nil {
		return fmt.Errorf("change the cluster's settings: %w", err)
	}
	return nil
}

func (s *schedule) run(ctx context.Context, t Trial) {
	result, err := s.runner.trial(ctx, s.experiment, t)
	if err != nil {
		s.stop(err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended++
	s.results = append(s.results, result)
	if result.Verdict == VerdictInvalid && t.Attempt < MaxAttempts {
		t.Attempt++
		s.disturbed = append(s.disturbed, t)
	}
}

func (r *Runner) report(p Progress) {
	if r.Progress == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Progress(p)
}
