package experiments

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"lameduck/harness"
)

// checkSpec says what is wrong with the parameters of a scenario as far as all
// scenarios agree: one that uses does not name has to be left out, and the limit
// must be above the sum of the times that the scenario takes in any case.
func checkSpec(s harness.Setup, uses []string, atLeast ...part) []error {
	var errs []error
	spec := s.Scenario
	for _, p := range []struct {
		name string
		set  bool
	}{
		{"to", spec.To != 0},
		{"drive", spec.Drive != ""},
		{"shift", spec.Shift != ""},
		{"keepOld", spec.KeepOld.Duration != 0},
		{"pods", spec.Pods != 0},
		{"holdNode", spec.HoldNode.Duration != 0},
		{"length", spec.Length.Duration != 0},
	} {
		if p.set && !slices.Contains(uses, p.name) {
			errs = append(errs, fmt.Errorf("scenario.%s has no effect on %s: leave it out", p.name, spec.Name))
		}
	}
	var sum time.Duration
	var terms []string
	for _, p := range atLeast {
		if p.takes.Duration < 0 {
			errs = append(errs, fmt.Errorf("%s is %s: want 0s or more", p.field, p.takes))
		}
		if p.takes.Duration > 0 {
			sum += p.takes.Duration
			terms = append(terms, fmt.Sprintf("%s (%s)", p.field, p.takes))
		}
	}
	if spec.Limit.Duration <= sum && len(terms) > 0 {
		errs = append(errs, fmt.Errorf("scenario.limit is %s: want more than %s", spec.Limit, strings.Join(terms, " and ")))
	}
	return errs
}

// part is a time that a scenario takes in any case.
type part struct {
	field string
	takes harness.Duration
}

// grace is what a pod may take to go. An application's own manifests may leave
// it open.
func grace(s harness.Setup) part { return part{"workload.gracePeriod", s.Workload.GracePeriod} }

// fail says what was being done, and names the limit if that was the reason.
func fail(ctx context.Context, s harness.Setup, doing string, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%s: scenario.limit (%s) is over: %w", doing, s.Scenario.Limit, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}
