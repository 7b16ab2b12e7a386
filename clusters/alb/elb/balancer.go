package elb

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"lameduck/clusters/alb/accesslog"
	"lameduck/clusters/alb/proxy"
)

// balancer is a load balancer. Service.mu's.
type balancer struct {
	service   *Service
	config    LoadBalancer
	rules     string            // Rules and Default, to see whether they change
	groups    map[string]*group // named by config
	routers   []*router         // one for each node
	version   int               // of the rules
	listeners map[uint16]*listener
	log       Log
	told      map[string]string // the attributes that the log has
	metrics   Metrics
}

// PutLoadBalancer implements API.
func (s *Service) PutLoadBalancer(ctx context.Context, lb LoadBalancer) error {
	if err := s.enter(ctx, s.modifyCalls); err != nil {
		return err
	}
	defer s.mu.Unlock()
	lb.Listeners = slices.Clone(lb.Listeners)
	groups, err := s.checkBalancer(&lb)
	if err != nil {
		return fmt.Errorf("load balancer %s: %w", lb.Name, err)
	}
	rules, err := json.Marshal([]any{lb.Rules, lb.Default})
	if err != nil {
		return fmt.Errorf("load balancer %s: %w", lb.Name, err)
	}
	b, exists := s.balancers[lb.Name]
	if !exists {
		if b, err = s.newBalancer(lb.Name); err != nil {
			return fmt.Errorf("load balancer %s: %w", lb.Name, err)
		}
	}
	opened, err := b.listen(lb.Listeners)
	if err != nil {
		if !exists {
			_ = b.log.Close() // err says what matters
		}
		return fmt.Errorf("load balancer %s: %w", lb.Name, err)
	}
	s.balancers[lb.Name] = b
	changed := b.rules != string(rules)
	b.config, b.groups, b.rules = lb, groups, string(rules)
	b.tellSettings()
	if changed {
		b.spread(exists)
	}
	s.recomputeUse()
	b.serve(opened)
	return nil
}

func (s *Service) newBalancer(name string) (*balancer, error) {
	b := &balancer{service: s, listeners: make(map[uint16]*listener), log: noLog{}, metrics: noMetrics{}}
	for _, n := range s.nodes {
		r := &router{node: n}
		r.rules.Store(&ruleset{})
		b.routers = append(b.routers, r)
	}
	if s.outputs.Metrics != nil {
		b.metrics = s.outputs.Metrics(name)
	}
	if s.outputs.Log != nil {
		log, err := s.outputs.Log(name)
		if err != nil {
			return nil, fmt.Errorf("open log: %w", err)
		}
		b.log = log
	}
	return b, nil
}

// spread makes each node have the rules, after a lag if there have been others.
func (b *balancer) spread(late bool) {
	b.version++
	version := b.version
	shares := forwardsOf(&b.config)
	for _, r := range b.routers {
		set := compile(&b.config, r.node, b.groups)
		var lag time.Duration
		if late {
			lag = b.weightLag().draw()
		}
		b.service.after(lag, func() {
			// Later rules may have had a shorter lag, or the load balancer
			// may be gone.
			if r.version < version {
				r.version = version
				r.rules.Store(set)
				writeInForce(b.log, InForce{Node: r.node.name, Applied: AppliedRules, Rules: shares})
				b.service.recomputeUse()
			}
		})
	}
}

func (b *balancer) weightLag() Range {
	if b.config.WeightLag != nil {
		return *b.config.WeightLag
	}
	return *b.service.settings.WeightLag
}

// DeleteLoadBalancer implements API. It returns when everything is closed.
func (s *Service) DeleteLoadBalancer(ctx context.Context, name string) error {
	if err := s.enter(ctx, s.modifyCalls); err != nil {
		return err
	}
	b := s.balancers[name]
	if b == nil {
		s.mu.Unlock()
		return nil
	}
	delete(s.balancers, name)
	b.stop()
	b.version++
	for _, r := range b.routers {
		groups := r.rules.Load().groups
		r.version = b.version // what is on its way comes too late
		r.rules.Store(&ruleset{fallback: action{answer: proxy.Answer{Status: 503, Error: accesslog.ErrorStopped}}})
		for _, g := range groups {
			g.cut()
		}
	}
	s.recomputeUse()
	s.background.Add(1)
	defer s.background.Done()
	s.mu.Unlock()
	return b.close()
}

// registered is the number of targets of all groups.
func (b *balancer) registered() int {
	n := 0
	for _, g := range b.groups {
		n += g.registered()
	}
	return n
}

// stop stops accepting.
func (b *balancer) stop() {
	for l := range b.open() {
		l.Stop()
	}
}

// close drops all clients and returns when the last request has ended.
func (b *balancer) close() error {
	for l := range b.open() {
		l.Close()
	}
	return b.log.Close()
}

// noLog and noMetrics are for Outputs that are nil.
type noLog struct{}

func (noLog) Add(*accesslog.Line) {}
func (noLog) Target([]byte)       {}
func (noLog) Settings([]byte)     {}
func (noLog) Close() error        { return nil }

type noMetrics struct{}

func (noMetrics) ConnectionOpened()      {}
func (noMetrics) ConnectionClosed()      {}
func (noMetrics) ConnectionRejected()    {}
func (noMetrics) Hosts(string, int, int) {}
func (noMetrics) GroupGone(string)       {}
