package elb

import (
	"fmt"
	"iter"
	"net/netip"

	"lameduck/clusters/alb/proxy"
)

// listener is a port on every node.
type listener struct {
	protocol Protocol
	nodes    []*proxy.Listener
}

// listen takes the ports that the load balancer does not have yet, on all nodes
// or on none.
func (b *balancer) listen(want []Listener) (opened map[uint16]*listener, err error) {
	opened = make(map[uint16]*listener)
	defer func() {
		if err != nil {
			for _, l := range opened {
				l.stop()
			}
		}
	}()
	for _, w := range want {
		if has := b.listeners[w.Port]; has != nil && has.protocol == w.Protocol {
			continue
		} else if has != nil {
			return opened, fmt.Errorf("port %d is a listener for %s: delete it before it is one for %s: %w", w.Port, has.protocol, w.Protocol, ErrInvalidConfiguration)
		}
		l, err := b.listenOn(w)
		if err != nil {
			return opened, err
		}
		opened[w.Port] = l
	}
	return opened, nil
}

// freePortTries bounds the search for a port that is free on every node.
const freePortTries = 20

func (b *balancer) listenOn(w Listener) (*listener, error) {
	for try := 1; ; try++ {
		l := &listener{protocol: w.Protocol}
		port := w.Port
		var err error
		for _, n := range b.service.nodes {
			var open *proxy.Listener
			if open, err = proxy.Listen(b.listenerOptions(w.Protocol, netip.AddrPortFrom(n.addr, port))); err != nil {
				err = fmt.Errorf("listen on %s port %d: %w", n.name, port, err)
				break
			}
			port = open.Addr().Port()
			l.nodes = append(l.nodes, open)
		}
		if err == nil {
			return l, nil
		}
		l.stop()
		if w.Port != 0 || try == freePortTries {
			return nil, err
		}
	}
}

func (b *balancer) listenerOptions(p Protocol, at netip.AddrPort) proxy.ListenerOptions {
	o := proxy.ListenerOptions{Address: at, Sink: b.log, Metrics: b.metrics, Hangups: b.service.hangups, Messages: b.service.outputs.Messages}
	if p == HTTPS {
		o.TLS = b.service.settings.TLS.Clone()
	}
	return o
}

// serve starts listeners, and closes those that are not asked for any more.
func (b *balancer) serve(opened map[uint16]*listener) {
	limits := proxy.Limits{Idle: b.config.IdleTimeout, ClientKeepAlive: b.config.ClientKeepAlive}
	wanted := make(map[uint16]bool)
	for _, w := range b.config.Listeners {
		wanted[w.Port] = true
	}
	for port, l := range b.listeners {
		if !wanted[port] {
			delete(b.listeners, port)
			l.stop()
			// Requests in flight hold it up: their targets may go on.
			b.service.background.Go(l.close)
			continue
		}
		for _, open := range l.nodes {
			open.SetLimits(limits)
		}
	}
	for port, l := range opened {
		b.listeners[port] = l
		for i, open := range l.nodes {
			open.Start(b.routers[i], limits)
		}
	}
}

// listensAt says whether an address is that of a listener. (AWS refuses any
// port at a load balancer node's address; here nodes may share theirs with
// targets.)
func (s *Service) listensAt(addr netip.AddrPort) bool {
	for _, b := range s.balancers {
		for l := range b.open() {
			if l.Addr() == addr {
				return true
			}
		}
	}
	return false
}

// open are the listeners on all nodes.
func (b *balancer) open() iter.Seq[*proxy.Listener] {
	return func(yield func(*proxy.Listener) bool) {
		for _, l := range b.listeners {
			for _, open := range l.nodes {
				if !yield(open) {
					return
				}
			}
		}
	}
}

func (l *listener) stop() {
	for _, open := range l.nodes {
		open.Stop()
	}
}

func (l *listener) close() {
	for _, open := range l.nodes {
		open.Close()
	}
}
