package elb

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"lameduck/clusters/alb/proxy"
)

// group is a target group: what is registered, and how each node sees it.
type group struct {
	service      *Service
	id           string
	name         string // namespace/service:port
	loadBalancer string

	mu      sync.Mutex
	spec    TargetGroup
	idle    time.Duration // the load balancer's idle timeout
	log     func(line []byte)
	inUse   bool // a rule names it
	stale   bool // see OverQuotaStale
	closed  bool
	targets map[netip.AddrPort]*target
	nodes   []*nodeView
}

func newGroup(s *Service, spec TargetGroup) *group {
	g := &group{
		service: s, id: spec.ID(), name: spec.Name, loadBalancer: spec.LoadBalancer, spec: spec,
		targets: make(map[netip.AddrPort]*target), log: func([]byte) {},
	}
	for i := range s.options.Nodes {
		g.nodes = append(g.nodes, newNodeView(g, i))
	}
	return g
}

// change applies new attributes.
func (g *group) change(spec TargetGroup) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if spec.Type != g.spec.Type || spec.Protocol != g.spec.Protocol {
		return fmt.Errorf("target group %s is of type %s with protocol %s, which can not be changed", g.name, g.spec.Type, g.spec.Protocol)
	}
	g.spec = spec
	for _, n := range g.nodes {
		n.publish()
	}
	return nil
}

// use says that a rule of a load balancer names the group: from now on its
// targets are checked.
func (g *group) use(lb *loadBalancer, idle time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.idle, g.log = idle, lb.log.Target
	for _, t := range g.targets {
		for _, nt := range t.nodes {
			nt.pool.SetIdleTimeout(idle)
		}
	}
	if g.inUse {
		return
	}
	g.inUse = true
	for _, addr := range sortedTargets(g.targets) {
		t := g.targets[addr]
		for _, nt := range t.nodes {
			nt.enter()
		}
		g.tell(t)
	}
}

// registered is the number of targets that are not draining.
func (g *group) registered() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.countRegistered()
}

func (g *group) countRegistered() int {
	n := 0
	for _, t := range g.targets {
		if !t.draining() {
			n++
		}
	}
	return n
}

// register adds targets; inLB is how many the load balancer has already.
func (g *group) register(addrs []netip.AddrPort, inLB int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var fresh []netip.AddrPort
	var draining []string
	for _, addr := range addrs {
		t := g.targets[addr]
		switch {
		case t == nil, t.draining() && g.spec.Type == TargetInstance:
			fresh = append(fresh, addr)
		case t.draining():
			draining = append(draining, addr.String())
		}
	}
	if len(draining) > 0 {
		// User guide, Target groups: a target registered by IP address can be
		// registered again when its deregistration is complete.
		return fmt.Errorf("%w: still being deregistered: %s", ErrInvalidTarget, strings.Join(draining, ", "))
	}
	if have := g.countRegistered() + len(fresh); have > MaxTargetsPerGroup || inLB+len(fresh) > MaxTargetsPerLoadBalancer {
		g.stale = g.overQuota() == OverQuotaStale
		return fmt.Errorf("%w: target group %s would have %d targets and load balancer %s %d; the quota is %d for each",
			ErrTooManyTargets, g.name, have, g.loadBalancer, inLB+len(fresh), MaxTargetsPerGroup)
	}
	g.stale = false
	first := len(g.targets) == 0 // slow start spares the first targets of an empty group
	for _, addr := range fresh {
		if t := g.targets[addr]; t != nil {
			t.comeBack()
		} else {
			g.targets[addr] = newTarget(g, addr, first)
		}
		g.tell(g.targets[addr])
	}
	return nil
}

// deregister starts the deregistration of those that are registered.
func (g *group) deregister(addrs []netip.AddrPort) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.spec.LoseDeregistrations || g.stale {
		return
	}
	for _, addr := range addrs {
		if t := g.targets[addr]; t != nil && !t.draining() {
			t.leave()
			g.tell(t)
		}
	}
}

// The settings with the group's own ones over them.

func (g *group) overQuota() OverQuota {
	if g.spec.OverQuota != "" {
		return g.spec.OverQuota
	}
	return g.service.settings.OverQuota
}

func (g *group) registrationLag() time.Duration {
	if g.spec.RegistrationLag != nil {
		return g.spec.RegistrationLag.Draw()
	}
	return g.service.settings.RegistrationLag.Draw()
}

func (g *group) deregistrationLag() time.Duration {
	if g.spec.DeregistrationLag != nil {
		return g.spec.DeregistrationLag.Draw()
	}
	return g.service.settings.DeregistrationLag.Draw()
}

func (g *group) closesIdle() bool {
	if g.spec.CloseIdleAtDeregistration != nil {
		return *g.spec.CloseIdleAtDeregistration
	}
	return g.service.settings.CloseIdleAtDeregistration
}

func (g *group) unusableStatus() int {
	if g.spec.UnusableStatus != 0 {
		return g.spec.UnusableStatus
	}
	return g.service.settings.UnusableStatus
}

func (g *group) poolOrder() proxy.PoolOrder {
	if g.spec.PoolOrder != "" {
		return g.spec.PoolOrder
	}
	return g.service.settings.PoolOrder
}

// describe lists the targets, draining ones included.
func (g *group) describe() []TargetHealth {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []TargetHealth
	for _, addr := range sortedTargets(g.targets) {
		all = append(all, g.targets[addr].health())
	}
	return all
}

func (g *group) connections(addr netip.AddrPort) (idle, busy int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.targets[addr]
	if t == nil {
		return 0, 0
	}
	for _, nt := range t.nodes {
		i, b := nt.pool.Size()
		idle, busy = idle+i, busy+b
	}
	return idle, busy
}

// tell records a target's state over all nodes if it is another one than before,
// and counts. Callers hold mu.
func (g *group) tell(t *target) {
	now := t.health()
	if now == t.told {
		return
	}
	t.told = now
	g.record(StateChange{Target: t.addr, State: now.State, Reason: now.Reason, Detail: now.Description})
	if f := g.service.options.StateChanged; f != nil {
		f(g.id, t.addr, now.State)
	}
	g.count()
}

// record writes a change of state. Callers hold mu.
func (g *group) record(c StateChange) {
	c.Time, c.Group = time.Now(), g.name
	line, err := json.Marshal(c)
	if err != nil {
		return // a struct of strings always marshals
	}
	g.log(line)
}

func (g *group) count() {
	c := g.service.options.Counters
	if c == nil {
		return
	}
	healthy, unhealthy := 0, 0
	for _, t := range g.targets {
		switch t.told.State {
		case StateHealthy, StateUnavailable: // without checks it gets requests
			healthy++
		case StateUnhealthy:
			unhealthy++
		}
	}
	c.Hosts(g.loadBalancer, g.name, healthy, unhealthy)
}

// close cuts everything.
func (g *group) close(why proxy.Cause) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for _, t := range g.targets {
		t.stop()
		for _, nt := range t.nodes {
			nt.exit()
			nt.pool.Close(why)
		}
	}
	clear(g.targets)
	for _, n := range g.nodes {
		n.publish()
	}
	if c := g.service.options.Counters; c != nil {
		c.GroupGone(g.loadBalancer, g.name)
	}
}
