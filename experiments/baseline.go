package experiments

import (
	"context"
	"errors"
	"fmt"

	"lameduck/harness"
)

// BaselineName is the name of the scenario Baseline.
const BaselineName = "baseline"

// Baseline does nothing for Scenario.Length. It is the negative control: what
// fails during it is the fault of the cluster, the load or the counting.
type Baseline struct{}

// About implements harness.Scenario.
func (Baseline) About() string { return "nothing happens for scenario.length: the negative control" }

// Check implements harness.Scenario.
func (Baseline) Check(s harness.Setup) error {
	length := s.Scenario.Length
	errs := checkSpec(s, []string{"length"}, part{"scenario.length", length})
	if length.Duration == 0 {
		errs = append(errs, fmt.Errorf("scenario.length is %s: want more than 0s, such as 10s", length))
	}
	return errors.Join(errs...)
}

// Run implements harness.Scenario.
func (Baseline) Run(ctx context.Context, s harness.Setup, _ harness.Deployment) (harness.Disruption, error) {
	if err := harness.Sleep(ctx, s.Scenario.Length.Duration); err != nil {
		return harness.Disruption{}, fail(ctx, s, "wait for scenario.length", err)
	}
	return harness.Disruption{}, nil
}
