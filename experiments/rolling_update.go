package experiments

import (
	"context"
	"errors"
	"time"

	"lameduck/harness"
)

// RollingUpdateName is the name of the scenario RollingUpdate.
const RollingUpdateName = "rolling-update"

// RollingUpdate replaces every pod of the workload, in the steps that maxSurge,
// maxUnavailable and minReadySeconds allow the Deployment controller.
type RollingUpdate struct{}

// About implements harness.Scenario.
func (RollingUpdate) About() string {
	return "a new version replaces every pod, as workload.maxSurge, maxUnavailable and minReadySeconds allow"
}

// StartsPods implements harness.PodStarter.
func (RollingUpdate) StartsPods() bool { return true }

// Check implements harness.Scenario.
func (RollingUpdate) Check(s harness.Setup) error {
	minReady := harness.Dur(time.Duration(s.Workload.MinReadySeconds) * time.Second)
	return errors.Join(checkSpec(s, nil, grace(s), part{"workload.minReadySeconds", minReady})...)
}

// Run implements harness.Scenario.
func (RollingUpdate) Run(ctx context.Context, s harness.Setup, d harness.Deployment) (harness.Disruption, error) {
	rollout, ok := d.(harness.Rollout)
	if !ok {
		return harness.Disruption{}, errors.New("this deployment has no rolling update: choose another scenario")
	}
	pods, err := rollout.Rollout(ctx)
	if err != nil {
		return harness.Disruption{}, fail(ctx, s, "roll out", err)
	}
	return harness.Disruption{Deleted: pods}, nil
}
