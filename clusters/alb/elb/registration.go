package elb

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/time/rate"
)

// RegisterTargets implements API.
func (s *Service) RegisterTargets(ctx context.Context, name string, addrs []netip.AddrPort) error {
	if err := s.enter(ctx, s.targetCalls); err != nil {
		return err
	}
	defer s.mu.Unlock()
	g, err := s.callOf(name)
	if err != nil {
		return err
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
		t.draining, t.unusable = false, s.listensAt(addr)
		for _, nt := range t.nodes {
			nt.first = first
		}
		toRegister = append(toRegister, t)
	}
	g.onEachNode(g.registerOn, toRegister)
	return nil
}

// callOf is the group of a call that registers or deregisters targets, if it may
// be made now.
func (s *Service) callOf(name string) (*group, error) {
	g := s.groups[name]
	switch {
	case g == nil:
		return nil, fmt.Errorf("target group %s: %w", name, ErrTargetGroupNotFound)
	case g.calls != nil && !g.calls.Allow():
		return nil, fmt.Errorf("target group %s: %w", name, ErrThrottling)
	}
	return g, nil
}

// limitCalls begins a new interval of calls: the next one is allowed.
func (g *group) limitCalls() {
	g.calls = nil
	if g.config.CallInterval > 0 {
		g.calls = rate.NewLimiter(rate.Every(g.config.CallInterval), 1)
	}
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
		case !ng.used || t.unusable:
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
	g, err := s.callOf(name)
	if err != nil {
		return err
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
