package alb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// environment is what all balancers of a process share.
type environment struct {
	address  string
	logDir   string
	settings Settings
	hangups  *hangups
	messages io.Writer // safe for concurrent use
}

// balancer is the running form of one Ingress. An ALB has a node in every
// zone, each with an address, pools and clocks of its own; this is one such
// node, so that more of them are more balancers. It is used by one goroutine
// at a time.
type balancer struct {
	name      string // namespace/ingress
	env       *environment
	log       *accessLog
	groups    map[string]*group
	listeners map[uint16]*listener
}

func newBalancer(env *environment, namespace, ingress string) (*balancer, error) {
	name := namespace + "/" + ingress
	al, err := openAccessLog(logPath(env.logDir, namespace, ingress), env.settings.LogFlush, func(err error) {
		fmt.Fprintf(env.messages, "%s: %v\n", name, err)
	})
	if err != nil {
		return nil, err
	}
	return &balancer{name: name, env: env, log: al, groups: make(map[string]*group), listeners: make(map[uint16]*listener)}, nil
}

// apply brings the balancer to the model. If a port cannot be listened on
// nothing changes.
func (b *balancer) apply(m model) error {
	opened := make(map[uint16]*listener)
	for _, port := range m.ports {
		if b.listeners[port] != nil {
			continue
		}
		l, err := listen(b.env.address, port, b.log, b.env.messages)
		if err != nil {
			for _, l := range opened {
				l.close()
			}
			return fmt.Errorf("listen on %s port %d: %w", b.env.address, port, err)
		}
		opened[port] = l
	}
	for name, gm := range m.groups {
		if b.groups[name] == nil {
			b.groups[name] = newGroup(name, b.env.settings, b.env.hangups)
		}
		b.groups[name].apply(gm, m.idleTimeout)
	}
	routes := b.routes(m)
	lim := limits{idle: m.idleTimeout, clientKeepAlive: m.clientKeepAlive}
	var errs []error
	for port, l := range b.listeners {
		if !slices.Contains(m.ports, port) {
			l.close()
			delete(b.listeners, port)
			continue
		}
		l.routes.Store(routes)
		errs = append(errs, l.setLimits(lim))
	}
	for port, l := range opened {
		l.start(lim, routes)
		b.listeners[port] = l
	}
	// Last, so that no new request finds a group that is closed.
	for name, g := range b.groups {
		if _, used := m.groups[name]; !used {
			g.close()
			delete(b.groups, name)
		}
	}
	return errors.Join(errs...)
}

func (b *balancer) routes(m model) *routes {
	r := &routes{fallback: b.groups[m.fallback], hasFall: m.hasFallback}
	for _, rule := range m.rules {
		r.rules = append(r.rules, route{host: rule.host, paths: rule.paths, group: b.groups[rule.group]})
	}
	return r
}

// close drops all connections, or, with a drain time, lets requests in flight
// end first.
func (b *balancer) close(drain time.Duration) error {
	for _, l := range b.listeners {
		l.stop()
	}
	if drain > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), drain)
		for _, l := range b.listeners {
			l.shutdown(ctx)
		}
		cancel()
	}
	for _, g := range b.groups {
		g.close()
	}
	for _, l := range b.listeners {
		l.close()
	}
	return b.log.close()
}
