package elb

import (
	"crypto/tls"
	"net/netip"
	"slices"
	"sync/atomic"

	"lameduck/clusters/alb/proxy"
)

// target is one address in a group. Service.mu's.
type target struct {
	addr     netip.AddrPort
	draining bool
	// unusable says that the address is a listener's of a load balancer: such a
	// target would send requests round in a circle.
	unusable bool
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
