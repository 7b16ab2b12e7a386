package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"lameduck/clusters"
	"lameduck/harness"
)

// targetsPoll is how often the load balancer is asked for its targets.
const targetsPoll = 100 * time.Millisecond

// targetState is what a line of the load balancer's target log says, as far as
// it matters here (see clusters/alb/elb, StateChange).
type targetState struct {
	Group  string `json:"group"` // namespace/service:port
	Target string `json:"target"`
	Node   string `json:"node"` // "": over all nodes of the load balancer
	State  string `json:"state"`
}

// waitTargets waits until the load balancer has all targets of the trial and
// finds them healthy. Where its log cannot be read there is nothing to wait
// for: then the warm-up has to do.
func (d *deployment) waitTargets(ctx context.Context) error {
	return d.waitStates(ctx, d.missingTargets)
}

// waitStates waits until missing, which is given the targets' states by Service
// and address, says that nothing is.
func (d *deployment) waitStates(ctx context.Context, missing func(map[string]map[string]string) string) error {
	if d.world.cfg.LoadBalancerLog == nil {
		return nil
	}
	tick := time.NewTicker(targetsPoll)
	defer tick.Stop()
	for {
		states, err := d.targets(ctx)
		if err != nil {
			return err
		}
		lack := missing(states)
		if lack == "" {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for the load balancer's targets: %w: %s", context.Cause(ctx), lack)
		}
	}
}

// targets are the states of all targets, by Service and address.
func (d *deployment) targets(ctx context.Context) (map[string]map[string]string, error) {
	states := make(map[string]map[string]string)
	err := d.eachLogLine(ctx, clusters.LogTargets, func(line []byte) error {
		var s targetState
		if err := json.Unmarshal(line, &s); err != nil {
			return fmt.Errorf("read the load balancer's target log: %w", err)
		}
		if s.Node != "" {
			return nil
		}
		_, service, _ := strings.Cut(s.Group, "/")
		service, _, _ = strings.Cut(service, ":")
		if states[service] == nil {
			states[service] = make(map[string]string)
		}
		states[service][s.Target] = s.State
		return nil
	})
	return states, err
}

// missingTargets says what is not yet as it must be, "" if all is. The control
// target's pod is its target always.
func (d *deployment) missingTargets(states map[string]map[string]string) string {
	service := d.names.Service
	return cmp.Or(missing(service, states[service], d.wantTargets(states[service], d.current())), missing(controlName, states[controlName], 1))
}

// missingGreen is missingTargets for Green's own Service.
func (d *deployment) missingGreen(states map[string]map[string]string) string {
	service := d.names.Service + greenSuffix
	return missing(service, states[service], d.wantTargets(states[service], green))
}

// wantTargets is how many of a Service's targets must be healthy. In IP mode
// every pod is a target; in instance mode every node is, which the load balancer
// knows best. With externalTrafficPolicy Local only nodes with a ready pod
// answer.
func (d *deployment) wantTargets(states map[string]string, colour string) int {
	want := max(1, len(states))
	switch {
	case d.trial.Setup.LoadBalancer.TargetType == harness.TargetIP:
		want = d.trial.Setup.Workload.Replicas
	case d.localTraffic:
		nodes := make(map[string]bool)
		for _, pod := range d.podsIn(colour) {
			nodes[pod.Spec.NodeName] = isReady(pod) || nodes[pod.Spec.NodeName]
		}
		want = len(nodes)
	}
	return want
}

func missing(service string, states map[string]string, want int) string {
	healthy := 0
	for _, state := range states {
		if state == "healthy" {
			healthy++
		}
	}
	if healthy == want {
		return ""
	}
	return fmt.Sprintf("%d of %d targets of Service %s are healthy (%v)", healthy, want, service, states)
}
