package conformance

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"lameduck/clusters/alb/elb"
	"lameduck/clusters/alb/scripted"
)

func limitFacts() []Fact {
	return []Fact{
		{"7-targets-group", 7, Documented, guideQuotas, "1000 targets per target group: the 1001st is refused, the others serve on", targetsPerGroup},
		{"7-targets-lb", 7, Documented, guideQuotas, "1000 targets per load balancer", targetsPerLoadBalancer},
		{"7-groups-action", 7, Documented, guideQuotas, "5 target groups per action", groupsPerAction},
		{"7-groups-lb", 7, Documented, guideQuotas, "100 target groups per load balancer", groupsPerLoadBalancer},
		{"7-throttled-group", 7, Unknown, notPublished, "an Ingress may have the calls for a group's targets throttled: the first is made, what follows comes late", throttledGroup},
		{"7-throttling", 7, Documented, apiReference, "calls beyond the token bucket: ThrottlingException, without effect", throttling},
		{"7-over-quota", 7, Observed, controllerIssues, "exceeding the quota can leave all targets of a group stale: a setting", overQuota},
		{"7-not-found", 7, Documented, apiReference, "TargetGroupNotFound, and ResourceInUse for a group that a rule names", groupErrors},
	}
}

// manyTargets are addresses that nobody answers at.
func manyTargets(n, from int) []netip.AddrPort {
	all := make([]netip.AddrPort, n)
	for i := range all {
		i += from
		all[i-from] = netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}), 80)
	}
	return all
}

func wantError(t *T, what string, err, want error) {
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func targetsPerGroup(t *T) {
	target := startTarget(t, scripted.Echo)
	c := newCloud(t)
	c.serve(target)
	t.must(c.api.RegisterTargets(t.Context(), frontGroup, manyTargets(999, 0)))
	wantError(t, "the 1001st", c.api.RegisterTargets(t.Context(), frontGroup, manyTargets(1, 2000)), elb.ErrTooManyTargets)
	all, err := c.api.DescribeTargetHealth(t.Context(), frontGroup)
	t.must(err)
	if len(all) != 1000 {
		t.Errorf("%d targets, want 1000", len(all))
	}
	if h, _ := c.health(target); h.State != elb.StateHealthy {
		t.Errorf("state of one that was there: %s, want healthy", h.State)
	}
}

func targetsPerLoadBalancer(t *T) {
	c := newCloud(t)
	g := c.group
	g.Name = "other"
	other := g.Name
	t.must(c.api.PutTargetGroup(t.Context(), g))
	c.update(func(lb *elb.LoadBalancer) { lb.Default = forward(frontGroup, other) })
	t.must(c.api.RegisterTargets(t.Context(), frontGroup, manyTargets(600, 0)))
	wantError(t, "600 and 401", c.api.RegisterTargets(t.Context(), other, manyTargets(401, 1000)), elb.ErrTooManyTargets)
	t.must(c.api.RegisterTargets(t.Context(), other, manyTargets(400, 1000)))
}

// groups creates n groups and returns their IDs.
func (c *cloud) groups(n int) []string {
	var names []string
	for i := range n {
		g := c.group
		g.Name = fmt.Sprintf("ns/s%d:80", i)
		c.t.must(c.api.PutTargetGroup(c.t.Context(), g))
		names = append(names, g.Name)
	}
	return names
}

func groupsPerAction(t *T) {
	c := newCloud(t)
	names := c.groups(6)
	c.update(func(lb *elb.LoadBalancer) { lb.Default = forward(names[:5]...) })
	lb := c.lb
	lb.Default = forward(names...)
	if err := c.api.PutLoadBalancer(t.Context(), lb); err == nil {
		t.Errorf("an action with 6 groups is accepted, want at most 5")
	}
}

func groupsPerLoadBalancer(t *T) {
	c := newCloud(t)
	names := append(c.groups(100), c.group.Name)
	rules := func(n int) (all []elb.Rule) {
		for i, name := range names[:n] {
			all = append(all, elb.Rule{Priority: i + 1, Paths: []string{fmt.Sprintf("/%d", i)}, Action: forward(name)})
		}
		return all
	}
	lb := c.lb
	lb.Default, lb.Rules = elb.Action{}, rules(100)
	t.must(c.api.PutLoadBalancer(t.Context(), lb))
	lb.Rules = rules(101)
	if err := c.api.PutLoadBalancer(t.Context(), lb); err == nil {
		t.Errorf("the 101st group of a load balancer is accepted")
	}
}

func throttling(t *T) {
	target := startTarget(t, scripted.Echo)
	c := newCloud(t, func(o *cloudOptions) { o.settings.Rates.Targets = elb.Rate{PerSecond: 1e-6, Burst: 1} })
	c.serve(target)
	err := c.api.DeregisterTargets(t.Context(), frontGroup, addrs(target))
	wantError(t, "the second call", err, elb.ErrThrottling)
	if err == nil || !strings.Contains(err.Error(), "ThrottlingException: Rate exceeded") {
		t.Errorf("%v, want ThrottlingException: Rate exceeded", err)
	}
	if h, _ := c.health(target); h.State != elb.StateHealthy {
		t.Errorf("state %s, want healthy", h.State)
	}
}

func throttledGroup(t *T) {
	target := startTarget(t, scripted.Echo)
	c := newCloud(t, func(o *cloudOptions) { o.group.CallInterval = never })
	c.serve(target)
	wantError(t, "the second call", c.api.DeregisterTargets(t.Context(), frontGroup, addrs(target)), elb.ErrThrottling)
	if a := c.get(0, "/"); a.status != 200 {
		t.Errorf("status %d of a target that is not deregistered, want 200", a.status)
	}
	c.group.CallInterval = 0
	t.must(c.api.PutTargetGroup(t.Context(), c.group))
	c.deregister(target)
}

// overQuota replaces the only target by two others where one is allowed.
func overQuota(t *T) {
	for choice, want := range map[string][]string{"refuse": {}, "stale": {podTarget(1)}} {
		ing := ingress("app", ipMode)
		ing.Annotations["alb.lameduck.dev/over-quota"] = choice
		w := newWorld(t, service("app"), ing, slice([]int{1}))
		w.wantTargets(podTarget(1))
		w.mu.Lock()
		w.quota = 1
		w.mu.Unlock()
		w.update(slice([]int{2, 3}))
		w.event("Warning", "TooManyTargets")
		w.wantTargets(want...)
	}
}

func groupErrors(t *T) {
	c := newCloud(t)
	wantError(t, "register", c.api.RegisterTargets(t.Context(), "no", manyTargets(1, 0)), elb.ErrTargetGroupNotFound)
	wantError(t, "deregister", c.api.DeregisterTargets(t.Context(), "no", manyTargets(1, 0)), elb.ErrTargetGroupNotFound)
	_, err := c.api.DescribeTargetHealth(t.Context(), "no")
	wantError(t, "describe", err, elb.ErrTargetGroupNotFound)
	wantError(t, "delete", c.api.DeleteTargetGroup(t.Context(), frontGroup), elb.ErrResourceInUse)
	t.must(c.api.DeleteLoadBalancer(t.Context(), c.lb.Name))
	t.must(c.api.DeleteTargetGroup(t.Context(), frontGroup))
}
