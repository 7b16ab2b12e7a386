package elb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"lameduck/clusters/alb/certificate"
	"lameduck/clusters/alb/proxy"
)

// Service is the load balancers and target groups of a process. It implements
// API.
type Service struct {
	settings Settings
	outputs  Outputs
	hangups  *proxy.Hangups
	owned    bool // hangups are the Service's own
	nodes    []*node

	targetCalls, describeCalls, modifyCalls *rate.Limiter

	// life ends with Close; it bounds health checks.
	life context.Context
	end  context.CancelFunc
	// check makes one health check. A field, so that tests of state machines
	// need no sockets.
	check func(context.Context, checkRequest) outcome
	// background is health checks, and listeners and logs being closed.
	background sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	groups    map[string]*group
	balancers map[string]*balancer
	// retired are deleted groups that have connections or traffic left.
	retired map[*group]bool
}

var _ API = (*Service)(nil)

// errClosed is for calls after Close.
var errClosed = errors.New("the load balancer service is closed")

// New returns a service without load balancers. Close ends it.
func New(s Settings, o Outputs) (*Service, error) {
	s = s.withDefaults()
	if err := s.check(); err != nil {
		return nil, err
	}
	if o.Messages == nil {
		o.Messages = io.Discard
	}
	if o.States == nil {
		o.States = func(StateChange) {}
	}
	svc := &Service{
		settings: s, outputs: o, hangups: o.Hangups,
		targetCalls: s.Rates.Targets.limiter(), describeCalls: s.Rates.Describe.limiter(), modifyCalls: s.Rates.Modify.limiter(),
		groups: make(map[string]*group), balancers: make(map[string]*balancer), retired: make(map[*group]bool),
	}
	if s.TLS == nil {
		// An ALB takes one from ACM, whose place nothing takes here: clients have to
		// accept any.
		names := make([]string, len(s.Nodes))
		for i, a := range s.Nodes {
			names[i] = a.String()
		}
		server, _, err := certificate.SelfSigned(names)
		if err != nil {
			return nil, fmt.Errorf("make certificate: %w", err)
		}
		server.NextProtos = []string{"h2", "http/1.1"}
		svc.settings.TLS = server
	}
	if svc.hangups == nil {
		h, err := proxy.NewHangups()
		if err != nil {
			return nil, err
		}
		svc.hangups, svc.owned = h, true
	}
	for i, a := range s.Nodes {
		svc.nodes = append(svc.nodes, newNode(i, a))
	}
	svc.check = checkHTTP
	svc.life, svc.end = context.WithCancel(context.Background())
	return svc, nil
}

func (r Rate) limiter() *rate.Limiter {
	if r.Burst < 0 {
		return rate.NewLimiter(rate.Inf, 0)
	}
	return rate.NewLimiter(rate.Limit(r.PerSecond), r.Burst)
}

// enter begins an API call: it takes a token and the lock. Callers unlock.
func (s *Service) enter(ctx context.Context, calls *rate.Limiter) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !calls.Allow() {
		return ErrThrottling
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return errClosed
	}
	return nil
}

// after runs f with the lock held when d is over, unless the Service has been
// closed. With no time to wait it runs at once. Callers hold mu.
func (s *Service) after(d time.Duration, f func()) {
	if d <= 0 {
		f()
		return
	}
	time.AfterFunc(d, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.closed {
			f()
		}
	})
}

// Addresses are where a load balancer listens: its listeners in order, each on
// the nodes in order. None if there is no such load balancer.
func (s *Service) Addresses(loadBalancer string) []netip.AddrPort {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.balancers[loadBalancer]
	if b == nil {
		return nil
	}
	var all []netip.AddrPort
	for _, l := range b.config.Listeners {
		for _, open := range b.listeners[l.Port].nodes {
			all = append(all, open.Addr())
		}
	}
	return all
}

// Close stops accepting, lets requests in flight end until ctx ends, cuts the
// rest and returns when everything is closed.
func (s *Service) Close(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true // timers and health checks do nothing any more
	balancers := slices.Collect(maps.Values(s.balancers))
	s.mu.Unlock()
	s.end()
	for _, b := range balancers {
		b.stop()
	}
	var waiting sync.WaitGroup
	for _, b := range balancers {
		for l := range b.open() {
			waiting.Go(func() { l.Shutdown(ctx) })
		}
	}
	waiting.Wait()
	s.mu.Lock()
	for _, g := range s.groups {
		g.closePools()
	}
	for g := range s.retired {
		g.closePools()
	}
	s.mu.Unlock()
	var errs []error
	for _, b := range balancers {
		errs = append(errs, b.close())
	}
	s.background.Wait()
	if s.owned {
		errs = append(errs, s.hangups.Close())
	}
	return errors.Join(errs...)
}
