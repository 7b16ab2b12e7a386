package elb

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// target is one address in a group. It is guarded by group.mu.
type target struct {
	group *group
	addr  netip.AddrPort
	// early says that it was among the first ones of an empty group, which slow
	// start spares.
	early bool
	// delay runs from the deregistration until the deregistration delay is over;
	// nil while registered.
	delay *time.Timer
	nodes []*nodeTarget // one for each node
	told  TargetHealth  // the last state that was recorded
}

func newTarget(g *group, addr netip.AddrPort, early bool) *target {
	t := &target{group: g, addr: addr, early: early}
	for i := range g.nodes {
		t.nodes = append(t.nodes, newNodeTarget(t, g.nodes[i]))
	}
	if g.inUse {
		for _, nt := range t.nodes {
			nt.enter()
		}
	}
	return t
}

func (t *target) draining() bool { return t.delay != nil }

// leave begins the deregistration: the state is draining at once, but each node
// hears of it after a lag of its own, and only then sends no new requests.
// Requests in flight go on for the deregistration delay.
func (t *target) leave() {
	g := t.group
	var timer *time.Timer
	timer = time.AfterFunc(g.spec.DeregistrationDelay, func() {
		g.mu.Lock() // held by our caller until timer and t.delay are set
		defer g.mu.Unlock()
		if t.delay != timer || g.closed {
			return // registered again as the timer fired
		}
		delete(g.targets, t.addr)
		for _, nt := range t.nodes {
			nt.expire()
		}
		g.record(StateChange{Target: t.addr, State: StateUnused, Reason: ReasonNotRegistered})
		if f := g.service.options.StateChanged; f != nil {
			f(g.id, t.addr, StateUnused)
		}
		g.count()
	})
	t.delay = timer
	for _, nt := range t.nodes {
		nt.leaveAfter(g.deregistrationLag())
	}
}

// comeBack ends a deregistration: an instance may be registered again at any
// time.
func (t *target) comeBack() {
	t.delay.Stop()
	t.delay = nil
	for _, nt := range t.nodes {
		nt.comeBack()
	}
}

func (t *target) stop() {
	if t.delay != nil {
		t.delay.Stop()
	}
}

// unusable says whether the address is one of the load balancer's own (ELBv2 API
// reference, TargetHealth: Target.IpUnusable).
func (t *target) unusable() bool {
	return t.group.spec.Type == TargetIP && slices.Contains(t.group.service.options.Nodes, t.addr.Addr())
}

// health is the state over all nodes: the least advanced one.
func (t *target) health() TargetHealth {
	h := TargetHealth{Target: t.addr}
	switch {
	case t.draining():
		// Also when nothing is in flight any more: the state lasts until the timer
		// ends (user guide, Target groups: deregistration delay).
		h.State, h.Reason, h.Description = StateDraining, ReasonDeregistrationInProgress, "Target deregistration is in progress"
		return h
	case !t.group.inUse:
		h.State, h.Reason, h.Description = StateUnused, ReasonNotInUse, "Target group is not configured to receive traffic from the load balancer"
		return h
	}
	if t.unusable() {
		return TargetHealth{t.addr, StateUnused, ReasonIPUnusable, "Target IP address is that of a load balancer node"}
	}
	h.State = StateHealthy
	if t.group.spec.HealthCheck.Disabled {
		h.State, h.Reason, h.Description = StateUnavailable, ReasonHealthCheckDisabled, "Health checks are not enabled for this target"
	}
	for _, nt := range t.nodes {
		switch {
		case nt.phase == phasePending:
			return TargetHealth{t.addr, StateInitial, ReasonRegistrationInProgress, "Target registration is in progress"}
		case nt.phase == phaseInitial && h.State != StateUnhealthy:
			h.State, h.Reason, h.Description = StateInitial, ReasonInitialHealthChecking, "Initial health checks in progress"
		case nt.phase == phaseUnhealthy:
			h.State, h.Reason, h.Description = StateUnhealthy, nt.reason, fmt.Sprintf("node %s: %s", nt.view.address(), nt.detail)
		}
	}
	return h
}
