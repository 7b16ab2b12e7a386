package experiments

import (
	"context"
	"errors"
	"fmt"

	"lameduck/harness"
)

// BlueGreenName is the name of the scenario BlueGreen.
const BlueGreenName = "blue-green"

// BlueGreen has a second set of pods, Green, ready before the attack. It moves
// the traffic from Blue to Green, keeps Blue for Scenario.KeepOld after the
// cluster has confirmed that, and deletes it.
//
// With ShiftSelector connections that are tracked go on to Blue after the
// cutover; with ShiftWeights there are two target groups, and Blue's targets are
// deregistered only when its pods go.
type BlueGreen struct{}

// About implements harness.Scenario.
func (BlueGreen) About() string {
	return "the traffic is moved from Blue to Green by scenario.shift, and Blue is deleted scenario.keepOld later"
}

// Check implements harness.Scenario.
func (BlueGreen) Check(s harness.Setup) error {
	errs := checkSpec(s, []string{"shift", "keepOld"}, grace(s), part{"scenario.keepOld", s.Scenario.KeepOld})
	switch s.Scenario.Shift {
	case harness.ShiftSelector, harness.ShiftWeights:
	default:
		errs = append(errs, fmt.Errorf("scenario.shift is %q: want %s or %s", s.Scenario.Shift, harness.ShiftSelector, harness.ShiftWeights))
	}
	return errors.Join(errs...)
}

// Prepare implements harness.Preparer.
func (BlueGreen) Prepare(ctx context.Context, s harness.Setup, d harness.Deployment) error {
	c, err := colours(d)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.Scenario.Limit.Duration)
	defer cancel()
	if err := c.AddGreen(ctx); err != nil {
		return fail(ctx, s, "add Green", err)
	}
	return nil
}

// Run implements harness.Scenario.
func (BlueGreen) Run(ctx context.Context, s harness.Setup, d harness.Deployment) (harness.Disruption, error) {
	c, err := colours(d)
	if err != nil {
		return harness.Disruption{}, err
	}
	if err := c.Cutover(ctx); err != nil {
		return harness.Disruption{}, fail(ctx, s, "cut over to Green", err)
	}
	if err := harness.Sleep(ctx, s.Scenario.KeepOld.Duration); err != nil {
		return harness.Disruption{}, fail(ctx, s, "keep Blue for scenario.keepOld", err)
	}
	pods, err := c.DeleteBlue(ctx)
	if err != nil {
		return harness.Disruption{}, fail(ctx, s, "delete Blue", err)
	}
	return harness.Disruption{Deleted: pods}, nil
}

func colours(d harness.Deployment) (harness.Colours, error) {
	c, ok := d.(harness.Colours)
	if !ok {
		return nil, errors.New("this deployment cannot have a second set of pods: choose another scenario")
	}
	return c, nil
}
