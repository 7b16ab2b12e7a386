package controller

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"lameduck/clusters/alb/elb"
)

// reconcile brings one Ingress's load balancer to what the Ingress asks for now.
// An error is tried again; what only its author can mend is an Event instead.
func (c *Controller) reconcile(ctx context.Context, key types.NamespacedName) error {
	ing, err := c.ingresses.Ingresses(key.Namespace).Get(key.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("get ingress: %w", err)
	}
	if err != nil || !ours(ing) || ing.DeletionTimestamp != nil {
		return c.remove(ctx, key)
	}
	m, warnings, err := buildModel(ing, func(name string) *corev1.Service {
		svc, err := c.services.Services(key.Namespace).Get(name)
		if err != nil {
			return nil // a lister over memory knows no other error than not found
		}
		return svc
	})
	if err != nil {
		// As in the AWS controller, a load balancer that exists keeps what it has.
		c.say(ing, warnings, reasonFailedBuild, err.Error())
		return nil
	}
	if err := c.deploy(ctx, key, m); err != nil {
		c.say(ing, warnings, reasonFailedDeploy, err.Error())
		return err
	}
	if err := c.setStatus(ctx, ing, m.loadBalancer.Listeners); err != nil {
		return err
	}
	c.say(ing, warnings, reasonReconciled, "")
	return nil
}

// deploy makes target groups, load balancer and bindings, in the order in which
// they depend on each other, and removes the groups that are not needed any
// more. There are no finalizers, as the AWS controller has for what lives
// outside the cluster: everything here ends with this process, and an Ingress
// must not be stuck when that is gone.
func (c *Controller) deploy(ctx context.Context, key types.NamespacedName, m model) error {
	wanted := make(map[string]bool)
	for _, b := range m.bindings {
		if err := c.modify(ctx, func() error { return c.api.PutTargetGroup(ctx, b.group) }); err != nil {
			return fmt.Errorf("target group %s: %w", b.group.Name, err)
		}
		wanted[b.group.ID()] = true
	}
	if c.owned[key] == nil {
		c.owned[key] = make(map[string]bool)
	}
	for id := range wanted {
		c.owned[key][id] = true
	}
	if err := c.modify(ctx, func() error { return c.api.PutLoadBalancer(ctx, m.loadBalancer) }); err != nil {
		return err
	}
	c.mu.Lock()
	for _, b := range m.bindings {
		c.bindings[b.group.ID()] = bindingOf{b, key}
	}
	for id := range c.owned[key] {
		if !wanted[id] {
			delete(c.bindings, id)
		}
	}
	c.mu.Unlock()
	for id := range wanted {
		c.bound.Add(id)
	}
	var errs []error
	for id := range c.owned[key] {
		if wanted[id] {
			continue
		}
		if err := c.modify(ctx, func() error { return c.api.DeleteTargetGroup(ctx, id) }); err != nil {
			errs = append(errs, err) // in use until a change of weights has reached every node
			continue
		}
		delete(c.owned[key], id)
	}
	return errors.Join(errs...)
}

// modify makes a call within the limit that the controller keeps itself to.
func (c *Controller) modify(ctx context.Context, call func() error) error {
	if err := c.limits.modify.Wait(ctx); err != nil {
		return err
	}
	return call()
}

// remove closes an Ingress's load balancer, if there is one.
func (c *Controller) remove(ctx context.Context, key types.NamespacedName) error {
	delete(c.said, key)
	groups, known := c.owned[key]
	if !known {
		return nil
	}
	c.mu.Lock()
	for id := range groups {
		delete(c.bindings, id)
	}
	c.mu.Unlock()
	err := c.modify(ctx, func() error { return c.api.DeleteLoadBalancer(ctx, key.String()) })
	if errors.Is(err, elb.ErrThrottling) {
		return err
	}
	delete(c.owned, key)
	// Another Ingress may wait for the ports.
	for other := range c.said {
		c.queue.Add(other)
	}
	return err
}
