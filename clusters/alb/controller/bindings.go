package controller

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/flowcontrol"

	"lameduck/clusters/alb/elb"
)

// limits are what the controller keeps itself to (S: pkg/aws/throttle/defaults.go).
type limits struct{ register, modify, describe flowcontrol.RateLimiter }

func newLimits() limits {
	return limits{
		register: flowcontrol.NewTokenBucketRateLimiter(4, 20),
		modify:   flowcontrol.NewTokenBucketRateLimiter(3, 20),
		describe: flowcontrol.NewTokenBucketRateLimiter(50, 200),
	}
}

// targetsPerCall bounds RegisterTargets and DeregisterTargets (S:
// pkg/targetgroupbinding/targets_manager.go).
const targetsPerCall = 200

// reconcileBinding registers and deregisters until a target group has the
// targets that it should have. Deregistration comes first (S:
// pkg/targetgroupbinding/resource_manager.go).
func (c *Controller) reconcileBinding(ctx context.Context, groupID string) error {
	b, ok := c.binding(groupID)
	if !ok {
		return nil
	}
	wanted, err := c.endpoints(b)
	if err != nil {
		return err
	}
	if err := c.limits.describe.Wait(ctx); err != nil {
		return err
	}
	present, err := c.api.DescribeTargetHealth(ctx, groupID)
	if errors.Is(err, elb.ErrTargetGroupNotFound) {
		return nil // deleted meanwhile
	}
	if err != nil {
		return fmt.Errorf("describe targets of %s: %w", b.group.Name, err)
	}
	change := compare(b.group.Type, wanted, present)
	if err := c.inCalls(ctx, change.deregister, func(part []netip.AddrPort) error { return c.api.DeregisterTargets(ctx, groupID, part) }); err != nil {
		return fmt.Errorf("deregister targets of %s: %w", b.group.Name, err)
	}
	if err := c.inCalls(ctx, change.register, func(part []netip.AddrPort) error { return c.api.RegisterTargets(ctx, groupID, part) }); err != nil {
		c.complain(b, err)
		return fmt.Errorf("register targets of %s: %w", b.group.Name, err)
	}
	if err := c.setGates(ctx, b, wanted, present); err != nil {
		return err
	}
	if len(change.draining) > 0 {
		return fmt.Errorf("register targets of %s: %v are still being deregistered", b.group.Name, change.draining)
	}
	return nil
}

// targetChange is what a group lacks and has too much.
type targetChange struct {
	register, deregister []netip.AddrPort
	// draining are wanted, but cannot be registered before their deregistration
	// is complete.
	draining []netip.AddrPort
}

func compare(t elb.TargetType, wanted []endpoint, present []elb.TargetHealth) targetChange {
	states := make(map[netip.AddrPort]elb.State)
	for _, p := range present {
		states[p.Target] = p.State
	}
	var change targetChange
	for _, w := range wanted {
		switch state, there := states[w.addr]; {
		case !there, state == elb.StateDraining && t == elb.TargetInstance:
			change.register = append(change.register, w.addr)
		case state == elb.StateDraining:
			change.draining = append(change.draining, w.addr)
		}
	}
	for _, p := range present {
		if p.State != elb.StateDraining && !slices.ContainsFunc(wanted, func(e endpoint) bool { return e.addr == p.Target }) {
			change.deregister = append(change.deregister, p.Target)
		}
	}
	return change
}

func (c *Controller) inCalls(ctx context.Context, targets []netip.AddrPort, call func([]netip.AddrPort) error) error {
	for part := range slices.Chunk(targets, targetsPerCall) {
		if err := c.limits.register.Wait(ctx); err != nil {
			return err
		}
		if err := call(part); err != nil {
			return err
		}
	}
	return nil
}

// endpoints are what a binding should have registered.
func (c *Controller) endpoints(b bindingOf) ([]endpoint, error) {
	if b.group.Type == elb.TargetIP {
		slices, err := c.slices.EndpointSlices(b.ingress.Namespace).List(labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: b.service}))
		if err != nil {
			return nil, fmt.Errorf("list endpoint slices: %w", err)
		}
		return podEndpoints(slices, b.port, func(pod string) bool { return c.waitsForGate(b, pod) }), nil
	}
	selector, err := labels.Parse(b.labels)
	if err != nil {
		return nil, badValue("target-node-labels", b.labels, "labels like a=b,c=d")
	}
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	var all []endpoint
	for _, addr := range instanceTargets(nodes, selector, b.port.NodePort) {
		all = append(all, endpoint{addr: addr})
	}
	return all, nil
}

// complain tells the author of an Ingress that targets cannot be registered.
func (c *Controller) complain(b bindingOf, err error) {
	if errors.Is(err, elb.ErrThrottling) || errors.Is(err, elb.ErrInvalidTarget) {
		return // tried again
	}
	if ing, getErr := c.ingresses.Ingresses(b.ingress.Namespace).Get(b.ingress.Name); getErr == nil {
		c.events.Event(ing, corev1.EventTypeWarning, reasonFailedDeploy, err.Error())
	}
}
