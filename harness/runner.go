package harness

import (
	"context"
	"errors"
	"fmt"
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
// invalid result, not an error. An error means that the run as a whole can not
// go on: ctx ended, or the record can not be written. Everything that was
// deployed is removed in every case.
func (r *Runner) Run(ctx context.Context, e Experiment, p Plan) ([]TrialResult, error) {
	if err := r.Check(p); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var (
		wg      sync.WaitGroup
		mu      sync.Mutex
		results []TrialResult
	)
	queue := make(chan Trial)
	for range max(1, r.Parallel) {
		wg.Go(func() {
			for t := range queue {
				result, err := r.trial(ctx, e, t)
				if err != nil {
					stop(err)
					continue
				}
				mu.Lock()
				results = append(results, result)
				mu.Unlock()
			}
		})
	}
feed:
	for _, t := range p.Trials {
		select {
		case queue <- t:
		case <-ctx.Done():
			break feed
		}
	}
	close(queue)
	wg.Wait()
	if len(results) < len(p.Trials) {
		return results, context.Cause(ctx)
	}
	return results, nil
}

func (r *Runner) report(p Progress) {
	if r.Progress == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Progress(p)
}
