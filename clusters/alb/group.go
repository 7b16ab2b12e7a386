package alb

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// group is a target group: the targets of one port of one Service, for one
// Ingress. What a target is (a node's address and nodePort, or later a pod's
// address) is the model's business.
type group struct {
	name     string // namespace/service:port
	settings Settings
	hangups  *hangups

	next atomic.Uint64
	// serving is what requests choose from: replaced, never changed.
	serving atomic.Pointer[[]*target]

	mu      sync.Mutex
	idle    time.Duration
	delay   time.Duration
	targets map[string]*target // registered and draining
	closed  bool
}

// target is one address in a group.
type target struct {
	addr string
	pool *pool
	// draining runs until the deregistration delay is over; nil while
	// registered.
	draining *time.Timer
}

func newGroup(name string, s Settings, h *hangups) *group {
	g := &group{name: name, settings: s, hangups: h, targets: make(map[string]*target)}
	g.serving.Store(&[]*target{})
	return g
}

// apply registers and deregisters until the group has the model's targets.
// Deregistration comes first, as in the AWS controller.
func (g *group) apply(m groupModel, idle time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	g.delay = m.deregistrationDelay
	g.idle = idle
	for addr, t := range g.targets {
		t.pool.setIdleTimeout(idle)
		if t.draining == nil && !slices.Contains(m.targets, addr) {
			g.deregister(t)
		}
	}
	serving := make([]*target, 0, len(m.targets))
	for _, addr := range m.targets {
		serving = append(serving, g.register(addr))
	}
	g.serving.Store(&serving)
}

// register adds a target, or takes a draining one back: an instance may be
// registered again at any time.
func (g *group) register(addr string) *target {
	t := g.targets[addr]
	switch {
	case t == nil:
		t = &target{addr: addr, pool: newPool(addr, g.idle, g.settings, g.hangups)}
		g.targets[addr] = t
	case t.draining != nil:
		t.draining.Stop()
		t.draining = nil
		t.pool.resume()
	}
	return t
}

// deregister lets requests in flight go on for the deregistration delay; what
// is left then is cut, and its clients get a 502 (AWS user guide,
// Troubleshooting: HTTP 502).
func (g *group) deregister(t *target) {
	t.pool.drain()
	var timer *time.Timer
	timer = time.AfterFunc(g.delay, func() {
		g.mu.Lock() // held by our caller until timer and t.draining are set
		defer g.mu.Unlock()
		if t.draining != timer || g.closed {
			return // registered again as the timer fired
		}
		delete(g.targets, t.addr)
		t.pool.close(errDeregistered)
	})
	t.draining = timer
}

// pick chooses the target of one request, or nil if none is registered.
func (g *group) pick() *target {
	serving := *g.serving.Load()
	if len(serving) == 0 {
		return nil
	}
	return serving[(g.next.Add(1)-1)%uint64(len(serving))]
}

// close cuts everything.
func (g *group) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.serving.Store(&[]*target{})
	for _, t := range g.targets {
		if t.draining != nil {
			t.draining.Stop()
		}
		t.pool.close(errStopped)
	}
}
