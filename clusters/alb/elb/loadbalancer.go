package elb

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"lameduck/clusters/alb/accesslog"
	"lameduck/clusters/alb/proxy"
)

// loadBalancer has one listener for each node and port, and one router for each
// node. Its methods are called under Service.mu.
type loadBalancer struct {
	service   *Service
	name      string // namespace/ingress
	log       *accesslog.Log
	sink      accesslog.Sink
	counters  *accesslog.LoadBalancerCounters // nil: none
	spec      LoadBalancer
	nodes     []*nodeRouter
	listeners map[Listener][]*proxy.Listener // by what was asked for; one for each node
}

func newLoadBalancer(s *Service, name string) (*loadBalancer, error) {
	namespace, ingress := splitName(name)
	lb := &loadBalancer{service: s, name: name, listeners: make(map[Listener][]*proxy.Listener)}
	var err error
	lb.log, err = accesslog.Open(s.options.LogDir, namespace, ingress, s.settings.LogFlush, func(err error) {
		fmt.Fprintf(s.options.Messages, "%s: %v\n", name, err)
	})
	if err != nil {
		return nil, err
	}
	lb.sink = lb.log
	if s.options.Counters != nil {
		lb.counters = s.options.Counters.LoadBalancer(name)
		lb.sink = sinks{lb.log, lb.counters}
	}
	for i := range s.options.Nodes {
		lb.nodes = append(lb.nodes, newNodeRouter(i))
	}
	return lb, nil
}

// sinks give each line to both.
type sinks [2]accesslog.Sink

func (s sinks) Add(l *accesslog.Line) {
	s[0].Add(l)
	s[1].Add(l)
}

// apply brings the load balancer to spec, of which rules are the compiled form.
// If a port cannot be listened on nothing changes.
func (lb *loadBalancer) apply(spec LoadBalancer, rules *rules) error {
	opened := make(map[Listener][]*proxy.Listener)
	for _, want := range spec.Listeners {
		if lb.listeners[want] != nil {
			continue
		}
		ls, err := lb.listen(want)
		if err != nil {
			for _, ls := range opened {
				closeAll(ls)
			}
			return err
		}
		opened[want] = ls
	}
	limits := proxy.Limits{Idle: spec.IdleTimeout, ClientKeepAlive: spec.ClientKeepAlive}
	for _, g := range rules.groups() {
		g.use(lb, spec.IdleTimeout)
	}
	lb.setRules(spec, rules)
	var errs []error
	for asked, ls := range lb.listeners {
		if !slices.Contains(spec.Listeners, asked) {
			closeAll(ls)
			delete(lb.listeners, asked)
			continue
		}
		for _, l := range ls {
			errs = append(errs, l.SetLimits(limits))
		}
	}
	for asked, ls := range opened {
		for i, l := range ls {
			l.Start(lb.nodes[i], limits)
		}
		lb.listeners[asked] = ls
	}
	lb.spec = spec
	return errors.Join(errs...)
}

// setRules gives the nodes their new rules: at once, or, if only weights have
// changed, when the change has reached each of them.
func (lb *loadBalancer) setRules(spec LoadBalancer, next *rules) {
	lag := lb.service.settings.WeightLag
	if spec.WeightLag != nil {
		lag = spec.WeightLag
	}
	first := len(lb.spec.Listeners) == 0
	if !first && sameRules(lb.spec, spec, true) {
		return // or what is on its way would be overtaken
	}
	late := !first && sameRules(lb.spec, spec, false)
	for _, n := range lb.nodes {
		if late {
			n.set(next, lag.Draw())
		} else {
			n.set(next, 0)
		}
	}
}

// listen opens one listener on every node. Port 0 is chosen on the first one and
// the same on the others.
func (lb *loadBalancer) listen(want Listener) ([]*proxy.Listener, error) {
	var ls []*proxy.Listener
	port := want.Port
	for _, addr := range lb.service.options.Nodes {
		o := proxy.ListenerOptions{Address: netip.AddrPortFrom(addr, port), Sink: lb.sink, Messages: lb.service.options.Messages}
		if lb.counters != nil {
			o.Metrics = lb.counters
		}
		if want.Protocol == HTTPS {
			o.TLS = &tls.Config{Certificates: []tls.Certificate{lb.service.options.Certificate}, MinVersion: tls.VersionTLS12}
		}
		l, err := proxy.Listen(o)
		if err != nil {
			closeAll(ls)
			return nil, fmt.Errorf("listen on %s port %d: %w", addr, port, err)
		}
		port = l.Addr().Port()
		ls = append(ls, l)
	}
	return ls, nil
}

func closeAll(ls []*proxy.Listener) {
	for _, l := range ls {
		l.Close()
	}
}

func (lb *loadBalancer) listens(port uint16) bool {
	for l := range lb.listeners {
		if l.Port == port {
			return true
		}
	}
	return false
}

func (lb *loadBalancer) addresses() []netip.AddrPort {
	var all []netip.AddrPort
	for _, ls := range lb.listeners {
		for _, l := range ls {
			all = append(all, l.Addr())
		}
	}
	slices.SortFunc(all, netip.AddrPort.Compare)
	return all
}

// uses says whether a rule, on any node, names the group.
func (lb *loadBalancer) uses(g *group) bool {
	return slices.ContainsFunc(lb.nodes, func(n *nodeRouter) bool { return slices.Contains(n.groups(), g) })
}

// stop stops accepting, and the changes that are still on their way.
func (lb *loadBalancer) stop() {
	for _, n := range lb.nodes {
		n.stop()
	}
	for _, ls := range lb.listeners {
		for _, l := range ls {
			l.Stop()
		}
	}
}

// drain waits for requests in flight.
func (lb *loadBalancer) drain(limit time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var waiting sync.WaitGroup
	for _, ls := range lb.listeners {
		for _, l := range ls {
			waiting.Go(func() { l.Shutdown(ctx) })
		}
	}
	waiting.Wait()
}

// close ends everything. The targets' connections have been closed before.
func (lb *loadBalancer) close() error {
	for _, ls := range lb.listeners {
		closeAll(ls)
	}
	return lb.log.Close()
}
