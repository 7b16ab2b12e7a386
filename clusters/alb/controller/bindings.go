package controller

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"

	"lameduck/clusters/alb/elb"
)

// bindingWorkers (controller, flag targetgroupbinding-max-concurrent-reconciles).
const bindingWorkers = 3

// endpointsChanged looks at a binding after its controller lag.
func (c *Controller) endpointsChanged(b *binding) {
	lag := b.lag.Min
	if b.lag.Max > b.lag.Min {
		lag += rand.N(b.lag.Max - b.lag.Min)
	}
	if lag == 0 {
		c.bindingQueue.Add(b.name)
		return
	}
	c.bindingQueue.AddAfter(b.name, c.bindings.hold(b.name, lag))
}

// nextBinding takes a binding from the queue; false is the end of it.
func (c *Controller) nextBinding(ctx context.Context) bool {
	name, shutdown := c.bindingQueue.Get()
	if shutdown {
		return false
	}
	defer c.bindingQueue.Done(name)
	again, err := c.reconcileBinding(ctx, name)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		c.bindingQueue.AddRateLimited(name)
	default:
		c.bindingQueue.Forget(name)
		if again > 0 {
			c.bindingQueue.AddAfter(name, again)
		}
	}
	return true
}

// reconcileBinding brings a target group to what its Service asks for now. A
// failure is tried again with growing pauses; again asks for another look.
func (c *Controller) reconcileBinding(ctx context.Context, name string) (again time.Duration, err error) {
	b, removed, held, ok := c.bindings.get(name)
	switch {
	case !ok:
		return 0, nil
	case removed:
		if err := c.openGates(ctx, &b); err != nil {
			return 0, err
		}
		c.bindings.forget(name)
		return 0, nil
	case held > 0:
		return held, nil
	case b.targetType == elb.TargetIP:
		again, err = c.reconcileIP(ctx, &b)
	default:
		err = c.reconcileInstance(ctx, &b)
	}
	if _, removed, _, _ := c.bindings.get(name); removed && errors.Is(err, elb.ErrTargetGroupNotFound) {
		return 0, nil // the group went meanwhile; its binding is in the queue again
	}
	c.tellBinding(ctx, &b, err)
	return again, err
}

// tellBinding makes an Event of a failure to set targets, once.
func (c *Controller) tellBinding(ctx context.Context, b *binding, err error) {
	failure := ""
	if err != nil {
		failure = err.Error()
	}
	if ctx.Err() != nil || !c.bindings.news(b.name, failure) || err == nil {
		return
	}
	c.message("%s/%s: %s", b.namespace, b.service, failure)
	c.events.Event(b.ingress, corev1.EventTypeWarning, reasonFailedTargets, failure)
}

func (c *Controller) reconcileInstance(ctx context.Context, b *binding) error {
	svc := c.service(b.namespace, b.service)
	if svc == nil {
		return c.emptyBinding(ctx, b)
	}
	port, err := findPort(svc, b.port)
	if err != nil {
		return c.emptyBinding(ctx, b)
	}
	number, err := nodePort(svc, port)
	if err != nil {
		return err
	}
	nodes, err := c.nodes.List(b.nodeLabels.AsSelector())
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	health, err := c.api.DescribeTargetHealth(ctx, b.group)
	if err != nil {
		return err
	}
	return c.setTargets(ctx, b, difference(instanceTargets(nodes, number), health))
}

func (c *Controller) reconcileIP(ctx context.Context, b *binding) (again time.Duration, err error) {
	svc := c.service(b.namespace, b.service)
	if svc == nil {
		return 0, c.emptyBinding(ctx, b)
	}
	port, err := findPort(svc, b.port)
	if err != nil {
		return 0, c.emptyBinding(ctx, b)
	}
	endpoints, waiting, err := c.resolveEndpoints(b, port.Name)
	if err != nil {
		return 0, err
	}
	health, err := c.api.DescribeTargetHealth(ctx, b.group)
	if err != nil {
		return 0, err
	}
	if err := c.setTargets(ctx, b, difference(endpoints, health)); err != nil {
		return 0, err
	}
	unhealthy, err := c.setGates(ctx, b, endpoints, health)
	if err != nil {
		return 0, err
	}
	if waiting || unhealthy {
		return c.options.HealthInterval, nil
	}
	return 0, nil
}

// setTargets deregisters before it registers, so that at the quota there is
// room for the new ones. With OverQuotaStale nothing is deregistered either
// while the quota refuses new ones.
func (c *Controller) setTargets(ctx context.Context, b *binding, todo change) error {
	if b.overQuota == OverQuotaStale && !todo.fits {
		if err := c.api.RegisterTargets(ctx, b.group, todo.register); err != nil {
			return err
		}
		todo.register = nil
	}
	if err := c.api.DeregisterTargets(ctx, b.group, todo.deregister); err != nil {
		return err
	}
	if err := c.api.RegisterTargets(ctx, b.group, todo.register); err != nil {
		return err
	}
	return c.api.RegisterTargets(ctx, b.group, todo.again)
}

// emptyBinding takes all targets from a group whose Service or port is gone,
// and lets its pods be ready.
func (c *Controller) emptyBinding(ctx context.Context, b *binding) error {
	health, err := c.api.DescribeTargetHealth(ctx, b.group)
	if err != nil {
		return err
	}
	if err := c.setTargets(ctx, b, difference(map[netip.AddrPort]bool{}, health)); err != nil {
		return err
	}
	return c.openGates(ctx, b)
}
