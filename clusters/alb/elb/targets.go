package elb

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"lameduck/clusters/alb/proxy"
)

// target is one address in a group. Service.mu's.
type target struct {
	addr     netip.AddrPort
	draining bool
	nodes    []*nodeTarget
	shown    TargetHealth // over all nodes
}

// phase is how far a target's registration or deregistration has come on one
// node.
type phase int

const (
	phaseIdle        phase = iota // the node does not know the target, as no rule uses its group
	phaseRegistering              // the registration is on its way
	phaseServing                  // the node checks it, and sends it requests
	phaseStopped                  // deregistered: requests in flight may end
	phaseGone                     // the deregistration delay is over: connections are closed
)

// nodeTarget is a target as one node sees it. It implements proxy.Target.
type nodeTarget struct {
	target *target
	node   *nodeGroup
	pool   atomic.Pointer[proxy.Pool]

	outstanding atomic.Int64
	// Of anomaly mitigation: share is how much of its fair share of requests
	// the target gets, of fullShare; the others count since it was judged.
	share           atomic.Int32
	answers, errors atomic.Int64

	// Service.mu's.
	phase phase
	// epoch tells timers of an earlier registration from those of this one.
	epoch  int
	health health
	checks *schedule // nil: none
	// first says that the target came with the first ones of an empty group:
	// when it gets healthy it has no slow start.
	first bool
	shown TargetHealth
}

// Pool implements proxy.Target.
func (nt *nodeTarget) Pool() *proxy.Pool { return nt.pool.Load() }

// Done implements proxy.Target.
func (nt *nodeTarget) Done(status int) {
	nt.outstanding.Add(-1)
	nt.answers.Add(1)
	if status == 0 || status >= 500 {
		nt.errors.Add(1)
	}
}

func (g *group) newTarget(addr netip.AddrPort) *target {
	t := &target{addr: addr, shown: TargetHealth{Target: addr}}
	for _, ng := range g.nodes {
		nt := &nodeTarget{target: t, node: ng, shown: TargetHealth{Target: addr}}
		nt.share.Store(fullShare)
		nt.pool.Store(g.newPool(nt))
		t.nodes = append(t.nodes, nt)
	}
	return t
}

func (g *group) newPool(nt *nodeTarget) *proxy.Pool {
	s := g.service
	o := proxy.PoolOptions{
		Addr: nt.target.addr.String(), Idle: g.idleTimeout(), Order: g.config.PoolOrder, ConnectTimeout: s.settings.ConnectTimeout,
		Hangups: s.hangups, Dial: nt.node.node.dial,
	}
	orDefault(&o.Order, s.settings.PoolOrder)
	if g.config.Protocol == HTTPS {
		o.TLS = anyCertificate
	}
	return proxy.NewPool(o)
}

// anyCertificate is for targets, whose certificates an ALB does not validate
// (D: user guide, Target groups, Routing configuration).
var anyCertificate = &tls.Config{InsecureSkipVerify: true}

// RegisterTargets implements API.
func (s *Service) RegisterTargets(ctx context.Context, name string, addrs []netip.AddrPort) error {
	if err := s.enter(ctx, s.targetCalls); err != nil {
		return err
	}
	defer s.mu.Unlock()
	g := s.groups[name]
	if g == nil {
		return fmt.Errorf("target group %s: %w", name, ErrTargetGroupNotFound)
	}
	added, err := g.checkRegistration(addrs)
	if err != nil {
		return fmt.Errorf("target group %s: %w", name, err)
	}
	first := g.registered() == 0
	var toRegister []*target
	for _, addr := range added {
		t := g.targets[addr]
		if t == nil {
			t = g.newTarget(addr)
			g.targets[addr] = t
			g.order = append(g.order, t)
		}
		t.draining = false
		for _, nt := range t.nodes {
			nt.first = first
		}
		toRegister = append(toRegister, t)
	}
	g.onEachNode(g.registerOn, toRegister)
	return nil
}

// checkRegistration returns the targets that are not registered yet, each
// once.
func (g *group) checkRegistration(addrs []netip.AddrPort) ([]netip.AddrPort, error) {
	var added []netip.AddrPort
	seen := make(map[netip.AddrPort]bool)
	for _, addr := range addrs {
		t := g.targets[addr]
		switch {
		case !addr.IsValid() || addr.Port() == 0:
			return nil, fmt.Errorf("target %s: want an address and a port: %w", addr, ErrInvalidTarget)
		case seen[addr] || t != nil && !t.draining:
			continue
		case t != nil && g.config.Type == TargetIP:
			// D: user guide, Target groups, Deregistration delay.
			return nil, fmt.Errorf("target %s is draining: an ip target can be registered again when its deregistration delay is over: %w", addr, ErrInvalidTarget)
		}
		seen[addr] = true
		added = append(added, addr)
	}
	// Draining targets do not count: they are deregistered (I).
	quotas := g.service.settings.Quotas
	if n := g.registered() + len(added); n > quotas.TargetsPerGroup {
		return nil, fmt.Errorf("it would have %d targets: want at most %d: %w", n, quotas.TargetsPerGroup, ErrTooManyTargets)
	}
	if g.owner != nil {
		if n := g.owner.registered() + len(added); n > quotas.TargetsPerLoadBalancer {
			return nil, fmt.Errorf("load balancer %s would have %d targets: want at most %d: %w", g.owner.config.Name, n, quotas.TargetsPerLoadBalancer, ErrTooManyTargets)
		}
	}
	return added, nil
}

// registered is the number of targets that are not draining.
func (g *group) registered() int {
	n := 0
	for _, t := range g.order {
		if !t.draining {
			n++
		}
	}
	return n
}

// registerOn makes one node know targets, after a lag.
func (g *group) registerOn(node int, targets []*target) (start func()) {
	ng := g.nodes[node]
	lag := g.lag(g.config.RegistrationLag, g.service.settings.RegistrationLag)
	var registering batch
	for _, t := range targets {
		nt := t.nodes[node]
		nt.epoch++
		if nt.phase == phaseGone {
			nt.pool.Store(g.newPool(nt))
			nt.phase = phaseIdle
		}
		switch {
		case !ng.used:
			nt.phase = phaseIdle
			g.stopChecks(nt)
		case nt.phase == phaseServing:
			// It was deregistered, but the node has not heard of that.
		default:
			nt.Pool().Resume()
			nt.phase, nt.health = phaseRegistering, newHealth()
			registering.add(nt)
		}
		g.show(nt, lagDetail(lag))
	}
	g.rebuild(ng)
	return func() {
		g.service.after(lag, func() {
			registering.each(func(nt *nodeTarget) {
				nt.phase = phaseServing
				g.startChecks(nt)
				g.show(nt, "")
			})
			g.rebuild(ng)
		})
	}
}

// batch is the targets of one call on one node. Those that have been registered
// or deregistered again since are not its concern any more.
type batch []struct {
	nt    *nodeTarget
	epoch int
}

func (b *batch) add(nt *nodeTarget) {
	*b = append(*b, struct {
		nt    *nodeTarget
		epoch int
	}{nt, nt.epoch})
}

func (b batch) each(f func(*nodeTarget)) {
	for _, e := range b {
		if e.nt.epoch == e.epoch {
			f(e.nt)
		}
	}
}

func (g *group) lag(own, settings *Range) time.Duration {
	if own != nil {
		return own.draw()
	}
	return settings.draw()
}

// lagDetail is StateChange.Detail for a change that a node learns late.
func lagDetail(lag time.Duration) string { return "lag " + lag.Round(time.Millisecond).String() }

// DeregisterTargets implements API.
func (s *Service) DeregisterTargets(ctx context.Context, name string, addrs []netip.AddrPort) error {
	if err := s.enter(ctx, s.targetCalls); err != nil {
		return err
	}
	defer s.mu.Unlock()
	g := s.groups[name]
	if g == nil {
		return fmt.Errorf("target group %s: %w", name, ErrTargetGroupNotFound)
	}
	if g.config.LoseDeregistrations {
		return nil
	}
	var targets []*target
	for _, addr := range addrs {
		if t := g.targets[addr]; t != nil && !t.draining {
			t.draining = true
			targets = append(targets, t)
		}
	}
	g.onEachNode(g.deregisterOn, targets)
	return nil
}

// onEachNode makes a change on every node and starts its timers only then: one
// that is over at once must not make the state over all nodes look at nodes
// without the change.
func (g *group) onEachNode(change func(node int, targets []*target) (start func()), targets []*target) {
	var starts []func()
	for i := range g.nodes {
		starts = append(starts, change(i, targets))
	}
	for _, start := range starts {
		start()
	}
}

// deregisterOn starts the deregistration of targets on one node. The node goes
// on sending new requests until its lag is over (O). Requests in flight may go
// on until the deregistration delay, which runs from the call, is over: what is
// left then is cut, and its clients get a 502 (D: user guide, Troubleshooting:
// HTTP 502). If the lag is longer than the delay they end together (I).
func (g *group) deregisterOn(node int, targets []*target) (start func()) {
	ng := g.nodes[node]
	lag := g.lag(g.config.DeregistrationLag, g.service.settings.DeregistrationLag)
	var leaving batch
	known := false // one of them is
	for _, t := range targets {
		nt := t.nodes[node]
		nt.epoch++
		leaving.add(nt)
		known = known || nt.phase == phaseServing
	}
	if !known {
		lag = 0 // nothing to be late with
	}
	for _, t := range targets {
		g.show(t.nodes[node], lagDetail(lag))
	}
	g.rebuild(ng) // requests are logged as sent to a draining target
	return func() {
		g.service.after(lag, func() {
			leaving.each(func(nt *nodeTarget) { g.stopSending(nt, g.closeIdle()) })
			g.rebuild(ng)
		})
		g.service.after(max(lag, g.config.DeregistrationDelay), func() {
			leaving.each(g.forget)
			g.rebuildAll() // the last node's end is the target's
		})
	}
}

func (g *group) closeIdle() bool {
	if g.config.CloseIdle != nil {
		return *g.config.CloseIdle
	}
	return !g.service.settings.KeepIdleAtDeregistration
}

// stopSending ends new requests to a target. If nothing is in flight its
// deregistration is complete, although it shows draining until the delay is
// over (D: user guide, Target groups, Deregistration delay).
func (g *group) stopSending(nt *nodeTarget, closeIdle bool) {
	nt.phase = phaseStopped
	g.stopChecks(nt)
	nt.Pool().Drain(closeIdle)
}

// forget ends a target on a node, and the target with its last node.
func (g *group) forget(nt *nodeTarget) {
	nt.epoch++
	nt.phase = phaseGone
	nt.Pool().Close(proxy.CauseDeregistered)
	g.show(nt, "")
	t := nt.target
	for _, other := range t.nodes {
		if other.phase != phaseGone {
			return
		}
	}
	delete(g.targets, t.addr)
	g.order = slices.DeleteFunc(g.order, func(o *target) bool { return o == t })
}

// startUse is for a node whose rules have begun to name the group.
func (g *group) startUse(ng *nodeGroup) (start func()) {
	ng.used = true
	var idle []*target
	for _, t := range g.order {
		if !t.draining {
			idle = append(idle, t)
		}
	}
	return g.registerOn(ng.node.index, idle)
}

// stopUse is for a node whose rules do not name the group any more: its targets
// are not checked (D: user guide, Health checks for target groups).
func (g *group) stopUse(ng *nodeGroup) {
	ng.used = false
	for _, t := range g.order {
		nt := t.nodes[ng.node.index]
		if t.draining {
			continue // its timers go on
		}
		nt.epoch++
		nt.phase = phaseIdle
		g.stopChecks(nt)
		g.show(nt, "")
	}
	g.rebuild(ng)
}

// cut closes every connection; the group can be used again.
func (g *group) cut() {
	for _, t := range g.order {
		for _, nt := range t.nodes {
			old := nt.Pool()
			if nt.phase != phaseGone {
				nt.pool.Store(g.newPool(nt))
			}
			old.Close(proxy.CauseStopped)
		}
	}
}
