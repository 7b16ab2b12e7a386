package conformance

import (
	"context"
	"net/netip"
	"slices"
	"sync"

	"lameduck/clusters/alb/elb"
)

// recorder is an elb.API that remembers what the controller asked for, and
// says of targets what a test wants.
type recorder struct {
	mu      sync.Mutex
	groups  map[string]elb.TargetGroup
	lbs     map[string]elb.LoadBalancer
	targets map[string]map[netip.AddrPort]elb.State
	calls   []call
	state   elb.State // of newly registered targets
	quota   int       // targets per group
}

// call is one call that is about targets.
type call struct {
	name    string // Register or Deregister
	group   string
	targets []netip.AddrPort
}

func newRecorder() *recorder {
	return &recorder{
		groups: map[string]elb.TargetGroup{}, lbs: map[string]elb.LoadBalancer{}, targets: map[string]map[netip.AddrPort]elb.State{},
		state: elb.StateHealthy, quota: 1000,
	}
}

func (r *recorder) PutTargetGroup(_ context.Context, g elb.TargetGroup) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.groups[g.Name] = g
	if r.targets[g.Name] == nil {
		r.targets[g.Name] = map[netip.AddrPort]elb.State{}
	}
	return nil
}

func (r *recorder) DeleteTargetGroup(_ context.Context, name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.groups, name)
	delete(r.targets, name)
	return nil
}

func (r *recorder) PutLoadBalancer(_ context.Context, lb elb.LoadBalancer) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lbs[lb.Name] = lb
	return nil
}

func (r *recorder) DeleteLoadBalancer(_ context.Context, name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.lbs, name)
	return nil
}

func (r *recorder) RegisterTargets(_ context.Context, group string, targets []netip.AddrPort) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, call{"Register", group, slices.Clone(targets)})
	if r.targets[group] == nil {
		return elb.ErrTargetGroupNotFound
	}
	if len(r.targets[group])+len(targets) > r.quota {
		return elb.ErrTooManyTargets
	}
	for _, target := range targets {
		r.targets[group][target] = r.state
	}
	return nil
}

func (r *recorder) DeregisterTargets(_ context.Context, group string, targets []netip.AddrPort) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, call{"Deregister", group, slices.Clone(targets)})
	if r.targets[group] == nil {
		return elb.ErrTargetGroupNotFound
	}
	for _, target := range targets {
		delete(r.targets[group], target)
	}
	return nil
}

func (r *recorder) DescribeTargetHealth(_ context.Context, group string) ([]elb.TargetHealth, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.targets[group] == nil {
		return nil, elb.ErrTargetGroupNotFound
	}
	var all []elb.TargetHealth
	for target, state := range r.targets[group] {
		h := elb.TargetHealth{Target: target, State: state}
		if state == elb.StateInitial {
			h.Reason, h.Description = elb.ReasonInitialHealthChecking, "Initial health checks in progress"
		}
		all = append(all, h)
	}
	slices.SortFunc(all, func(a, b elb.TargetHealth) int { return a.Target.Compare(b.Target) })
	return all, nil
}

// become changes the state of all targets, and of those to come.
func (r *recorder) become(state elb.State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state = state
	for _, targets := range r.targets {
		for target := range targets {
			targets[target] = state
		}
	}
}

// registered are the targets of the only group.
func (r *recorder) registered() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	got := []string{}
	for _, targets := range r.targets {
		for target := range targets {
			got = append(got, target.String())
		}
	}
	slices.Sort(got)
	return got
}

func (r *recorder) history() []call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// group waits for the only target group.
func (r *recorder) group(t *T) elb.TargetGroup {
	var got elb.TargetGroup
	t.eventually("one target group", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, got = range r.groups {
		}
		return len(r.groups) == 1
	})
	return got
}

// loadBalancer waits for the only load balancer.
func (r *recorder) loadBalancer(t *T) elb.LoadBalancer {
	var got elb.LoadBalancer
	t.eventually("one load balancer", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, got = range r.lbs {
		}
		return len(r.lbs) == 1
	})
	return got
}
