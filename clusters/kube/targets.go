package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
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
	return d.waitHealthy(ctx, map[string]int{appName: d.trial.Setup.Workload.Replicas, controlName: 1})
}

// waitHealthy waits for the targets of the named Services, each of which has so
// many pods.
func (d *deployment) waitHealthy(ctx context.Context, pods map[string]int) error {
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
		missing := d.missingTargets(states, pods)
		if missing == "" {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for the load balancer's targets: %w: %s", context.Cause(ctx), missing)
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

// missingTargets says what is not yet as it must be, "" if all is. In IP mode
// every pod is a target; in instance mode every node is, which the load balancer
// knows best.
func (d *deployment) missingTargets(states map[string]map[string]string, pods map[string]int) string {
	ip := d.trial.Setup.LoadBalancer.TargetType == harness.TargetIP
	for _, service := range slices.Sorted(maps.Keys(pods)) {
		healthy, want := 0, max(1, len(states[service]))
		if ip {
			want = pods[service]
		}
		for _, state := range states[service] {
			if state == "healthy" {
				healthy++
			}
		}
		if healthy != want {
			return fmt.Sprintf("%d of %d targets of Service %s are healthy (%v)", healthy, want, service, states[service])
		}
	}
	return ""
}
