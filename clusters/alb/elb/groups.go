package elb

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"lameduck/clusters/alb/proxy"
)

// group is a target group. Everything in it is Service.mu's.
type group struct {
	service  *Service
	config   TargetGroup
	retiring bool // deleted, and no node uses it any more
	// owner is the load balancer whose rules name the group, nil without one.
	// loadBalancer is the name of the last one.
	owner        *balancer
	loadBalancer string
	told         map[string]string // the attributes that the owner's log has
	// calls are those that register or deregister targets, nil: as many as the
	// Service allows.
	calls   *rate.Limiter
	targets map[netip.AddrPort]*target // registered and draining
	order   []*target                  // the same, in order of registration
	nodes   []*nodeGroup
	// healthy and unhealthy count targets by their state over all nodes.
	healthy, unhealthy int
}

// nodeGroup is a group as one node sees it.
type nodeGroup struct {
	name string
	node *node
	// used says that rules name the group: the load balancer's, or older ones
	// that the node has not replaced yet. Service.mu's.
	used bool

	// What requests need.
	table atomic.Pointer[table]
	next  atomic.Uint64 // round robin
	// judged is when anomaly mitigation last looked, in Unix nanoseconds.
	judged atomic.Int64
}

func (s *Service) newGroup(config TargetGroup) *group {
	g := &group{service: s, config: config, targets: make(map[netip.AddrPort]*target)}
	g.limitCalls()
	for _, n := range s.nodes {
		ng := &nodeGroup{name: config.Name, node: n}
		ng.next.Store(uint64(rand.Uint32())) // nodes do not walk in step
		g.nodes = append(g.nodes, ng)
		g.rebuild(ng)
	}
	return g
}

// PutTargetGroup implements API.
func (s *Service) PutTargetGroup(ctx context.Context, config TargetGroup) error {
	if err := s.checkGroup(config); err != nil {
		return fmt.Errorf("target group %s: %w", config.Name, err)
	}
	if err := s.enter(ctx, s.modifyCalls); err != nil {
		return err
	}
	defer s.mu.Unlock()
	config.HealthCheck.Codes = slices.Clone(config.HealthCheck.Codes)
	g := s.groups[config.Name]
	if g == nil {
		s.groups[config.Name] = s.newGroup(config)
		return nil
	}
	if g.config.Type != config.Type || g.config.Protocol != config.Protocol {
		return fmt.Errorf("target group %s is of type %s and protocol %s, which cannot change: %w", config.Name, g.config.Type, g.config.Protocol, ErrInvalidConfiguration)
	}
	disabled, interval := g.config.HealthCheck.Disabled, g.config.CallInterval
	g.config = config
	if interval != config.CallInterval {
		g.limitCalls()
	}
	if disabled != config.HealthCheck.Disabled {
		g.restartChecks()
	}
	g.rebuildAll()
	g.tellSettings()
	return nil
}

// checkGroup refuses what would not work. The ranges of ELBv2 are the
// controller's to check: it knows which annotation is wrong, and tests need
// times that ELBv2 does not allow.
func (s *Service) checkGroup(c TargetGroup) error {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrInvalidConfiguration}, args...)...))
	}
	if c.Name == "" {
		wrong("it has no name")
	}
	if c.Type != TargetInstance && c.Type != TargetIP {
		wrong("type is %q: want %s or %s", c.Type, TargetInstance, TargetIP)
	}
	if c.Protocol != HTTP && c.Protocol != HTTPS {
		wrong("protocol is %q: want %s or %s", c.Protocol, HTTP, HTTPS)
	}
	switch c.Algorithm {
	case RoundRobin:
	case LeastOutstandingRequests, WeightedRandom:
		// D: user guide, Target group attributes, Slow start mode.
		if c.SlowStart > 0 {
			wrong("slow start is %s: want 0s with algorithm %s", c.SlowStart, c.Algorithm)
		}
	default:
		wrong("algorithm is %q: want %s, %s or %s", c.Algorithm, RoundRobin, LeastOutstandingRequests, WeightedRandom)
	}
	if c.AnomalyMitigation && c.Algorithm != WeightedRandom {
		wrong("anomaly mitigation is on: want it off with algorithm %s", c.Algorithm)
	}
	if min(c.DeregistrationDelay, c.SlowStart, c.Stickiness.Duration, c.CallInterval) < 0 {
		wrong("deregistration delay is %s, slow start %s, stickiness %s, interval of calls %s: want no time below 0s",
			c.DeregistrationDelay, c.SlowStart, c.Stickiness.Duration, c.CallInterval)
	}
	for name, lag := range map[string]*Range{"deregistration lag": c.DeregistrationLag, "registration lag": c.RegistrationLag} {
		if lag != nil && lag.check() != nil {
			wrong("%s %v", name, lag.check())
		}
	}
	order, unusable := c.PoolOrder, c.UnusableStatus
	orDefault(&order, s.settings.PoolOrder)
	orDefault(&unusable, s.settings.UnusableStatus)
	if err := checkUnknowns(order, unusable); err != nil {
		wrong("%v", err)
	}
	if h := c.HealthCheck; !h.Disabled {
		if h.Protocol != HTTP && h.Protocol != HTTPS {
			wrong("health check protocol is %q: want %s or %s", h.Protocol, HTTP, HTTPS)
		}
		if !strings.HasPrefix(h.Path, "/") {
			wrong("health check path is %q: want one that begins with /", h.Path)
		}
		if min(h.Interval, h.Timeout) <= 0 {
			wrong("health check interval is %s, timeout %s: want more than 0s", h.Interval, h.Timeout)
		}
		if min(h.Healthy, h.Unhealthy) < 1 {
			wrong("health check thresholds are %d and %d: want 1 or more", h.Healthy, h.Unhealthy)
		}
		if len(h.Codes) == 0 {
			wrong("health check success codes are empty: want at least one range")
		}
	}
	return errors.Join(errs...)
}

// DeleteTargetGroup implements API. Nodes whose rules have not changed yet go
// on using the group; when the last one has stopped, requests in flight get the
// deregistration delay (I).
func (s *Service) DeleteTargetGroup(ctx context.Context, name string) error {
	if err := s.enter(ctx, s.modifyCalls); err != nil {
		return err
	}
	defer s.mu.Unlock()
	g := s.groups[name]
	if g == nil {
		return fmt.Errorf("target group %s: %w", name, ErrTargetGroupNotFound)
	}
	if g.owner != nil {
		return fmt.Errorf("target group %s is used by load balancer %s: %w", name, g.owner.config.Name, ErrResourceInUse)
	}
	delete(s.groups, name)
	s.retired[g] = true
	s.recomputeUse()
	return nil
}

// retire is for a deleted group that no node uses any more.
func (g *group) retire() {
	for _, t := range g.order {
		for _, nt := range t.nodes {
			g.stopSending(nt, g.closeIdle())
		}
	}
	g.service.after(g.config.DeregistrationDelay, func() {
		for _, t := range slices.Clone(g.order) {
			for _, nt := range t.nodes {
				g.forget(nt)
			}
		}
		delete(g.service.retired, g)
	})
}

// recomputeUse finds out which groups each node uses, now that rules have
// changed, and starts or stops their health checks.
func (s *Service) recomputeUse() {
	used := make(map[*nodeGroup]bool)
	owners := make(map[*group]*balancer)
	for _, b := range s.balancers {
		for _, g := range b.groups {
			owners[g] = b
			for _, ng := range g.nodes {
				used[ng] = true
			}
		}
		for _, r := range b.routers {
			for _, g := range r.rules.Load().groups {
				used[g.nodes[r.node.index]] = true
			}
		}
	}
	update := func(g *group) (still bool) {
		g.setOwner(owners[g])
		var starts []func()
		for _, ng := range g.nodes {
			switch now := used[ng]; {
			case now && !ng.used:
				starts = append(starts, g.startUse(ng))
			case !now && ng.used:
				g.stopUse(ng)
			}
			still = still || ng.used
		}
		for _, start := range starts {
			start()
		}
		return still
	}
	for _, g := range s.groups {
		update(g)
	}
	for g := range s.retired {
		if still := update(g); !still && !g.retiring {
			g.retiring = true
			g.retire()
		}
	}
}

// setOwner gives the group to a load balancer, whose attributes it then has.
func (g *group) setOwner(b *balancer) {
	if b != nil {
		for _, t := range g.order {
			for _, nt := range t.nodes {
				nt.Pool().SetIdleTimeout(b.config.IdleTimeout)
			}
		}
	}
	if g.owner == b {
		return
	}
	if g.owner != nil {
		g.owner.metrics.GroupGone(g.config.Name)
	}
	g.owner = b
	if b != nil {
		g.loadBalancer = b.config.Name
		b.metrics.Hosts(g.config.Name, g.healthy, g.unhealthy)
		g.told = nil // another log, or one that has what was once
		g.tellSettings()
	}
}

// idleTimeout is that of connections to targets.
func (g *group) idleTimeout() time.Duration {
	if g.owner != nil {
		return g.owner.config.IdleTimeout
	}
	return time.Minute // until a load balancer says otherwise
}

// closePools cuts everything, and leaves the group as it is otherwise.
func (g *group) closePools() {
	for _, t := range g.order {
		for _, nt := range t.nodes {
			nt.Pool().Close(proxy.CauseStopped)
		}
	}
}
