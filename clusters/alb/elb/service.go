package elb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"lameduck/clusters/alb/proxy"
)

// Service implements API: all load balancers and target groups of one process.
type Service struct {
	options  Options
	settings Settings
	hangups  *proxy.Hangups
	limiter  *rate.Limiter

	mu            sync.Mutex
	loadBalancers map[string]*loadBalancer
	groups        map[string]*group // by ID
}

var _ API = (*Service)(nil)

// New makes a Service without load balancers. Close ends it.
func New(o Options) (*Service, error) {
	if len(o.Nodes) == 0 {
		return nil, errors.New("elb: Options needs the address of at least one node")
	}
	if err := o.Settings.Check(); err != nil {
		return nil, err
	}
	h, err := proxy.NewHangups()
	if err != nil {
		return nil, err
	}
	s := &Service{
		options: o, settings: o.Settings.withDefaults(), hangups: h, limiter: rate.NewLimiter(rate.Inf, 0),
		loadBalancers: make(map[string]*loadBalancer), groups: make(map[string]*group),
	}
	if o.Settings.APIRate > 0 {
		s.limiter = rate.NewLimiter(rate.Limit(o.Settings.APIRate), o.Settings.APIBurst)
	}
	return s, nil
}

// admit is where a call that changes something begins.
func (s *Service) admit(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !s.limiter.Allow() {
		return ErrThrottling
	}
	return nil
}

// PutTargetGroup implements API.
func (s *Service) PutTargetGroup(ctx context.Context, spec TargetGroup) error {
	if err := s.admit(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.groups[spec.ID()]; g != nil {
		return g.change(spec)
	}
	inLB := 0
	for _, g := range s.groups {
		if g.loadBalancer == spec.LoadBalancer {
			inLB++
		}
	}
	if inLB >= MaxGroupsPerLoadBalancer {
		return fmt.Errorf("TooManyTargetGroups: load balancer %s has %d, which is the quota", spec.LoadBalancer, inLB)
	}
	s.groups[spec.ID()] = newGroup(s, spec)
	return nil
}

// DeleteTargetGroup implements API.
func (s *Service) DeleteTargetGroup(ctx context.Context, groupID string) error {
	if err := s.admit(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.groups[groupID]
	if g == nil {
		return nil
	}
	if lb := s.loadBalancers[g.loadBalancer]; lb != nil && lb.uses(g) {
		return fmt.Errorf("%w: target group %s is used by a rule of %s", ErrResourceInUse, g.name, g.loadBalancer)
	}
	delete(s.groups, groupID)
	g.close(proxy.CauseStopped)
	return nil
}

// PutLoadBalancer implements API.
func (s *Service) PutLoadBalancer(ctx context.Context, spec LoadBalancer) error {
	if err := s.admit(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range spec.Listeners {
		for _, other := range s.loadBalancers {
			if other.name != spec.Name && l.Port != 0 && other.listens(l.Port) {
				return fmt.Errorf("%w: port %d is that of %s", ErrDuplicateListener, l.Port, other.name)
			}
		}
	}
	rules, err := s.compile(spec)
	if err != nil {
		return err
	}
	lb := s.loadBalancers[spec.Name]
	if lb == nil {
		if lb, err = newLoadBalancer(s, spec.Name); err != nil {
			return err
		}
		if err := lb.apply(spec, rules); err != nil {
			return errors.Join(err, lb.close())
		}
		s.loadBalancers[spec.Name] = lb
		return nil
	}
	return lb.apply(spec, rules)
}

// DeleteLoadBalancer implements API.
func (s *Service) DeleteLoadBalancer(ctx context.Context, name string) error {
	if err := s.admit(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	lb := s.loadBalancers[name]
	if lb == nil {
		return nil
	}
	delete(s.loadBalancers, name)
	// The connections to targets go first: requests in flight wait for them.
	lb.stop()
	for id, g := range s.groups {
		if g.loadBalancer == name {
			g.close(proxy.CauseStopped)
			delete(s.groups, id)
		}
	}
	return lb.close()
}

// RegisterTargets implements API.
func (s *Service) RegisterTargets(ctx context.Context, groupID string, targets []netip.AddrPort) error {
	g, err := s.groupForCall(ctx, groupID)
	if err != nil {
		return err
	}
	return g.register(targets, s.targetsOf(g.loadBalancer))
}

// DeregisterTargets implements API.
func (s *Service) DeregisterTargets(ctx context.Context, groupID string, targets []netip.AddrPort) error {
	g, err := s.groupForCall(ctx, groupID)
	if err != nil {
		return err
	}
	g.deregister(targets)
	return nil
}

func (s *Service) groupForCall(ctx context.Context, groupID string) (*group, error) {
	if err := s.admit(ctx); err != nil {
		return nil, err
	}
	return s.group(groupID)
}

func (s *Service) group(groupID string) (*group, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.groups[groupID]
	if g == nil {
		return nil, fmt.Errorf("%w: %s", ErrTargetGroupNotFound, groupID)
	}
	return g, nil
}

// targetsOf counts the targets of all groups of a load balancer.
func (s *Service) targetsOf(loadBalancer string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, g := range s.groups {
		if g.loadBalancer == loadBalancer {
			n += g.registered()
		}
	}
	return n
}

// DescribeTargetHealth implements API.
func (s *Service) DescribeTargetHealth(ctx context.Context, groupID string) ([]TargetHealth, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	g, err := s.group(groupID)
	if err != nil {
		return nil, err
	}
	return g.describe(), nil
}

// Addresses are where a load balancer's listeners are reached, one for each
// node and port.
func (s *Service) Addresses(loadBalancer string) []netip.AddrPort {
	s.mu.Lock()
	defer s.mu.Unlock()
	lb := s.loadBalancers[loadBalancer]
	if lb == nil {
		return nil
	}
	return lb.addresses()
}

// Connections are the idle and busy connections of all nodes to a target.
func (s *Service) Connections(groupID string, target netip.AddrPort) (idle, busy int) {
	g, err := s.group(groupID)
	if err != nil {
		return 0, 0
	}
	return g.connections(target)
}

// Close stops accepting, lets requests in flight of all load balancers end for
// Settings.DrainTimeout, and cuts the rest.
func (s *Service) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var draining sync.WaitGroup
	for _, lb := range s.loadBalancers {
		draining.Go(func() {
			lb.stop()
			lb.drain(s.settings.DrainTimeout)
		})
	}
	draining.Wait()
	var errs []error
	for _, g := range s.groups {
		g.close(proxy.CauseStopped)
	}
	for _, lb := range s.loadBalancers {
		errs = append(errs, lb.close())
	}
	s.loadBalancers, s.groups = nil, nil
	return errors.Join(append(errs, s.hangups.Close())...)
}

// dial opens a connection of a node to a target, from the node's own address:
// logs and conntrack entries tell the nodes apart.
func (s *Service) dial(node int) func(ctx context.Context, addr string, timeout time.Duration) (net.Conn, error) {
	if s.options.Dial != nil {
		return s.options.Dial
	}
	d := net.Dialer{KeepAlive: -1, LocalAddr: &net.TCPAddr{IP: s.options.Nodes[node].AsSlice()}}
	return func(ctx context.Context, addr string, timeout time.Duration) (net.Conn, error) {
		limited := d
		limited.Timeout = timeout
		return limited.DialContext(ctx, "tcp", addr)
	}
}

// sortedTargets are in the order of their addresses.
func sortedTargets[V any](m map[netip.AddrPort]V) []netip.AddrPort {
	all := make([]netip.AddrPort, 0, len(m))
	for a := range m {
		all = append(all, a)
	}
	slices.SortFunc(all, netip.AddrPort.Compare)
	return all
}
