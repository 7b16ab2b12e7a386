package experiments

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lameduck/harness"
)

// NodeLossName is the name of the scenario NodeLoss.
const NodeLossName = "node-loss"

// NodeLoss ends a node's machine without warning and goes on for
// Scenario.Length. In that time things change by themselves: the load balancer's
// health checks fail, after 50 s the node lifecycle controller calls the node's
// pods not ready, and the other nodes' rules lose them. A length of a minute has
// all of that in it, a shorter one is cheaper and ends in the middle. The pods
// are deleted 300 s after that, which a trial must not last until.
type NodeLoss struct{}

const (
	// maxLoss is shorter than the time for which a pod tolerates a node that is
	// not reachable (the admission plugin DefaultTolerationSeconds: 300 s), so that
	// no pod is deleted while the trial lasts.
	maxLoss = 4 * time.Minute
	// usualLoss is above kube-controller-manager's --node-monitor-grace-period,
	// 50 s since Kubernetes 1.32.
	usualLoss = time.Minute
)

// About implements harness.Scenario.
func (NodeLoss) About() string {
	return "a node's machine ends without warning, and the load goes on for scenario.length"
}

// Exclusive implements harness.Exclusive: pods of other trials are on the node.
func (NodeLoss) Exclusive() bool { return true }

// Check implements harness.Scenario.
func (NodeLoss) Check(s harness.Setup) error {
	length := s.Scenario.Length
	errs := checkSpec(s, []string{"length"}, part{"scenario.length", length})
	if length.Duration == 0 || length.Duration > maxLoss {
		errs = append(errs, fmt.Errorf("scenario.length is %s: want more than 0s and at most %s; with %s the cluster's own reaction is seen too",
			length, harness.Dur(maxLoss), harness.Dur(usualLoss)))
	}
	return errors.Join(errs...)
}

// Run implements harness.Scenario.
func (NodeLoss) Run(ctx context.Context, s harness.Setup, d harness.Deployment) (harness.Disruption, error) {
	n, err := nodes(d)
	if err != nil {
		return harness.Disruption{}, err
	}
	pods, err := n.LoseNode(ctx)
	if err != nil {
		return harness.Disruption{}, fail(ctx, s, "lose a node", err)
	}
	did := harness.Disruption{Lost: pods}
	if err := harness.Sleep(ctx, s.Scenario.Length.Duration); err != nil {
		return did, fail(ctx, s, "wait for scenario.length", err)
	}
	return did, nil
}
