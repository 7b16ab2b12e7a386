package experiments

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"lameduck/harness"
)

// NodeScaleInName is the name of the scenario NodeScaleIn.
const NodeScaleInName = "node-scale-in"

// NodeScaleIn removes a node as the Cluster Autoscaler does: it is tainted, its
// pods are evicted as their disruption budgets allow, and Scenario.HoldNode after
// the last of them is gone its machine ends. In instance mode the node is a
// target itself, also for requests that other nodes' pods answer.
type NodeScaleIn struct{}

// About implements harness.Scenario.
func (NodeScaleIn) About() string {
	return "a node is drained as the Cluster Autoscaler does, and removed scenario.holdNode later"
}

// Exclusive implements harness.Exclusive: pods of other trials are on the node.
func (NodeScaleIn) Exclusive() bool { return true }

// Check implements harness.Scenario.
func (NodeScaleIn) Check(s harness.Setup) error {
	errs := checkSpec(s, []string{"holdNode"}, grace(s), part{"scenario.holdNode", s.Scenario.HoldNode})
	budget := s.Workload.PodDisruptionBudget
	if n, err := strconv.Atoi(strings.TrimSuffix(budget, "%")); err == nil {
		most, of := s.Workload.Replicas, "workload.replicas (%d)"
		if strings.HasSuffix(budget, "%") {
			most, of = 100, "%d%%"
		}
		if n >= most {
			errs = append(errs, fmt.Errorf("workload.podDisruptionBudget is %q: want less than "+of+", or no pod may be evicted", budget, most))
		}
	}
	return errors.Join(errs...)
}

// Run implements harness.Scenario.
func (NodeScaleIn) Run(ctx context.Context, s harness.Setup, d harness.Deployment) (harness.Disruption, error) {
	n, err := nodes(d)
	if err != nil {
		return harness.Disruption{}, err
	}
	pods, err := n.DrainNode(ctx)
	if err != nil {
		return harness.Disruption{}, fail(ctx, s, "drain a node", err)
	}
	did := harness.Disruption{Deleted: pods}
	if err := harness.Sleep(ctx, s.Scenario.HoldNode.Duration); err != nil {
		return did, fail(ctx, s, "keep the empty node for scenario.holdNode", err)
	}
	if err := n.RemoveNode(ctx); err != nil {
		return did, fail(ctx, s, "remove the node", err)
	}
	// The evicted pods' successors may still be on their way.
	if err := d.WaitPods(ctx, s.Workload.Replicas); err != nil {
		return did, fail(ctx, s, fmt.Sprintf("wait for %d pods", s.Workload.Replicas), err)
	}
	return did, nil
}

func nodes(d harness.Deployment) (harness.Nodes, error) {
	n, ok := d.(harness.Nodes)
	if !ok {
		return nil, errors.New("this cluster's nodes cannot be taken away: choose another scenario, or --provider embedded")
	}
	return n, nil
}
