package experiments

import (
	"context"
	"errors"
	"fmt"

	"lameduck/harness"
)

// PodKillName is the name of the scenario PodKill.
const PodKillName = "pod-kill"

// PodKill deletes Scenario.Pods pods without a grace period, and ends when as
// many as before are ready. No mitigation inside a pod can help: neither preStop
// nor SIGTERM happens in time.
type PodKill struct{}

// About implements harness.Scenario.
func (PodKill) About() string {
	return "scenario.pods pods are deleted without a grace period, as chaos tools do"
}

// Check implements harness.Scenario.
func (PodKill) Check(s harness.Setup) error {
	errs := checkSpec(s, []string{"pods"})
	if n := s.Scenario.Pods; n < 1 || n > s.Workload.Replicas {
		errs = append(errs, fmt.Errorf("scenario.pods is %d: want 1..workload.replicas (%d)", n, s.Workload.Replicas))
	}
	return errors.Join(errs...)
}

// Run implements harness.Scenario.
func (PodKill) Run(ctx context.Context, s harness.Setup, d harness.Deployment) (harness.Disruption, error) {
	did := harness.Disruption{Deleted: s.Scenario.Pods}
	killer, ok := d.(harness.PodKiller)
	if !ok {
		return did, errors.New("this deployment's pods cannot be killed: choose another scenario")
	}
	if err := killer.KillPods(ctx, s.Scenario.Pods); err != nil {
		return did, fail(ctx, s, "kill pods", err)
	}
	return did, nil
}
