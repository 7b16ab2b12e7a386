package elb

import (
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"lameduck/clusters/alb/proxy"
)

// nodeView is a group as one load balancer node sees it. Nodes check and route
// each on their own (user guide, Health checks for target groups).
type nodeView struct {
	group *group
	node  int
	next  atomic.Uint64
	// serving is what requests choose from: replaced, never changed.
	serving atomic.Pointer[serving]
	targets []*nodeTarget // guarded by group.mu, in the order of addresses
}

// serving is a node's choice at one time.
type serving struct {
	targets  []*nodeTarget // those that requests may go to
	failOpen bool          // all of them are unhealthy
	empty    bool          // no target is registered or draining
	// What chooses among them.
	algorithm Algorithm
	slowStart time.Duration
	mitigates bool
	sticky    time.Duration
	unusable  int
}

// phase is how far a target is on one node.
type phase int

const (
	phasePending   phase = iota // the registration has not reached the node
	phaseInitial                // no health check has passed yet
	phaseHealthy                //
	phaseUnhealthy              //
	phaseGone                   // the deregistration has reached the node
)

// nodeTarget is one target on one node. Without a comment, fields are guarded
// by group.mu.
type nodeTarget struct {
	target *target
	view   *nodeView
	addr   netip.AddrPort
	pool   *proxy.Pool // has its own lock

	phase          phase
	reason, detail string // of phaseUnhealthy
	passes, fails  int    // of checks, in a row
	check          *time.Timer
	lag            *time.Timer // of registration or deregistration
	expired        bool        // the deregistration delay was over before the lag

	leaving      atomic.Bool // its deregistration was asked for
	outstanding  atomic.Int64
	healthySince atomic.Int64 // Unix nanoseconds; 0: spared by slow start
	anomaly      anomaly
}

func newNodeView(g *group, node int) *nodeView {
	n := &nodeView{group: g, node: node}
	n.publish()
	return n
}

func (n *nodeView) address() netip.Addr { return n.group.service.options.Nodes[n.node] }

// publish makes the choice anew. Callers hold group.mu, except at the beginning.
func (n *nodeView) publish() {
	spec := n.group.spec
	s := &serving{
		empty: len(n.targets) == 0, algorithm: spec.Algorithm, slowStart: spec.SlowStart, mitigates: spec.AnomalyMitigation,
		sticky: spec.Sticky, unusable: n.group.unusableStatus(),
	}
	var unhealthy []*nodeTarget
	for _, nt := range n.targets {
		switch nt.phase {
		case phaseHealthy:
			s.targets = append(s.targets, nt)
		case phaseUnhealthy:
			unhealthy = append(unhealthy, nt)
		}
	}
	if len(s.targets) == 0 && len(unhealthy) > 0 {
		// User guide, Target group health: with no healthy target requests go to
		// all of them.
		s.targets, s.failOpen = unhealthy, true
	}
	n.serving.Store(s)
}

func newNodeTarget(t *target, view *nodeView) *nodeTarget {
	g := t.group
	nt := &nodeTarget{target: t, view: view, addr: t.addr}
	nt.pool = proxy.NewPool(proxy.PoolOptions{
		Addr: t.addr.String(), Idle: g.idle, Order: g.poolOrder(), ConnectTimeout: g.service.settings.ConnectTimeout,
		TLS: g.spec.Protocol == HTTPS, Hangups: g.service.hangups, Dial: g.service.dial(view.node),
	})
	i, _ := slices.BinarySearchFunc(view.targets, t.addr, func(x *nodeTarget, a netip.AddrPort) int { return x.addr.Compare(a) })
	view.targets = slices.Insert(view.targets, i, nt)
	return nt
}

// enter starts the registration lag, after which the first check is made.
func (nt *nodeTarget) enter() {
	if nt.target.unusable() {
		return // never checked, never chosen
	}
	nt.phase, nt.passes, nt.fails = phasePending, 0, 0
	lag := nt.target.group.registrationLag()
	nt.record(StateInitial, ReasonRegistrationInProgress, "reaches the node after "+lag.Round(time.Millisecond).String())
	nt.after(lag, func() {
		if nt.phase != phasePending {
			return
		}
		if nt.target.group.spec.HealthCheck.Disabled {
			nt.enterPhase(phaseHealthy, ReasonHealthCheckDisabled, "")
			return
		}
		nt.enterPhase(phaseInitial, ReasonInitialHealthChecking, "")
		nt.scheduleCheck(0)
	})
	nt.view.publish()
}

// after runs f under group.mu when d is over, unless the lag is replaced first.
// Without a lag it runs at once.
func (nt *nodeTarget) after(d time.Duration, f func()) {
	if nt.lag != nil {
		nt.lag.Stop()
		nt.lag = nil
	}
	if d <= 0 {
		f()
		return
	}
	g := nt.target.group
	var timer *time.Timer
	timer = time.AfterFunc(d, func() {
		g.mu.Lock() // held by our caller until timer and nt.lag are set
		defer g.mu.Unlock()
		if nt.lag != timer || g.closed {
			return
		}
		nt.lag = nil
		f()
		g.tell(nt.target)
	})
	nt.lag = timer
}

// enterPhase changes the phase and what requests choose from.
func (nt *nodeTarget) enterPhase(p phase, reason, detail string) {
	nt.phase, nt.reason, nt.detail = p, reason, detail
	if p == phaseHealthy {
		nt.healthySince.Store(0)
		if nt.target.group.spec.SlowStart > 0 && !nt.target.early {
			nt.healthySince.Store(time.Now().UnixNano())
		}
	}
	nt.view.publish()
	nt.record(phaseStates[p], reason, detail)
}

var phaseStates = map[phase]State{
	phasePending: StateInitial, phaseInitial: StateInitial, phaseHealthy: StateHealthy, phaseUnhealthy: StateUnhealthy, phaseGone: StateUnused,
}

func (nt *nodeTarget) record(s State, reason, detail string) {
	nt.target.group.record(StateChange{Target: nt.addr, Node: nt.view.address().String(), State: s, Reason: reason, Detail: detail})
}

// leaveAfter takes the target out of the node's choice when the lag is over.
func (nt *nodeTarget) leaveAfter(lag time.Duration) {
	nt.leaving.Store(true)
	nt.record(StateDraining, ReasonDeregistrationInProgress, fmt.Sprintf("reaches the node after %s", lag.Round(time.Millisecond)))
	nt.after(lag, func() {
		nt.exit()
		nt.phase = phaseGone
		nt.view.publish()
		nt.record(StateUnused, ReasonNotRegistered, "no new requests from now on")
		nt.pool.Drain(nt.target.group.closesIdle())
		if nt.expired {
			nt.cut()
		}
	})
}

// expire ends what is in flight when the deregistration delay is over: clients
// get a 502 (user guide, Troubleshooting: HTTP 502). A node that has not heard
// of the deregistration yet does so when it has.
func (nt *nodeTarget) expire() {
	if nt.phase != phaseGone {
		nt.expired = true
		return
	}
	nt.cut()
}

func (nt *nodeTarget) cut() {
	nt.pool.Close(proxy.CauseDeregistered)
	nt.view.targets = slices.DeleteFunc(nt.view.targets, func(x *nodeTarget) bool { return x == nt })
	nt.view.publish()
}

// comeBack takes a deregistration back, which the node may or may not have heard
// of.
func (nt *nodeTarget) comeBack() {
	nt.leaving.Store(false)
	if nt.phase == phaseGone {
		nt.pool.Resume()
		nt.enter()
		return
	}
	if nt.lag != nil {
		nt.lag.Stop()
		nt.lag = nil
	}
	nt.record(phaseStates[nt.phase], nt.reason, "registered again before the deregistration reached the node")
}

// exit ends the checks and what is on its way to the node.
func (nt *nodeTarget) exit() {
	for _, timer := range []*time.Timer{nt.check, nt.lag} {
		if timer != nil {
			timer.Stop()
		}
	}
	nt.check, nt.lag = nil, nil
}

// Pool implements proxy.Target.
func (nt *nodeTarget) Pool() *proxy.Pool { return nt.pool }

// Done implements proxy.Target.
func (nt *nodeTarget) Done(status int) {
	nt.outstanding.Add(-1)
	nt.anomaly.count(status)
}

// state names the target's state on the node, for the log of one request.
func (nt *nodeTarget) state(s *serving) State {
	switch {
	case nt.leaving.Load():
		return StateDraining
	case s.failOpen:
		return StateUnhealthy
	}
	return StateHealthy
}
