package controller

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"lameduck/clusters/alb/elb"
)

// deployment is what has been made for a group of Ingresses.
type deployment struct {
	lb       elb.LoadBalancer
	groups   map[string]elb.TargetGroup // by name
	bindings map[string]binding         // by the name of their target group
	members  []types.NamespacedName
}

// nextGroup takes a group of Ingresses from the queue; false is the end of it.
func (c *Controller) nextGroup(ctx context.Context) bool {
	key, shutdown := c.ingressQueue.Get()
	if shutdown {
		return false
	}
	defer c.ingressQueue.Done(key)
	if err := c.reconcileGroup(ctx, key); err != nil && ctx.Err() == nil {
		c.ingressQueue.AddRateLimited(key)
	} else {
		c.ingressQueue.Forget(key)
	}
	return true
}

// reconcileGroup brings a load balancer to what its Ingresses ask for now. An
// error is tried again; what only their author can mend is an Event instead.
func (c *Controller) reconcileGroup(ctx context.Context, key groupKey) error {
	group, err := c.loadGroup(key)
	if len(group.members) == 0 && err == nil {
		if err := c.remove(ctx, key); err != nil {
			c.message("%s: remove: %v: trying again", key, err)
			return err
		}
		return nil
	}
	if err != nil {
		c.say(group, outcome{reason: reasonFailedGroup, failure: err.Error()})
		return nil
	}
	m, warnings, err := buildModel(group, clusterState{service: c.service, groupName: c.names.assign, options: c.options})
	if err != nil {
		// As in the AWS controller, a load balancer that exists keeps what it has.
		c.releaseNames(key, m.bindings)
		c.say(group, outcome{reasonFailedBuild, err.Error(), warnings})
		return nil
	}
	if err := c.deploy(ctx, group, m); err != nil {
		if ctx.Err() == nil {
			c.say(group, outcome{reasonFailedDeploy, err.Error(), warnings})
		}
		return err
	}
	for _, ing := range group.members {
		if err := c.setStatus(ctx, ing, m.lb.Listeners); err != nil {
			if ctx.Err() == nil {
				c.say(group, outcome{reasonFailedStatus, err.Error(), warnings})
			}
			return err
		}
	}
	c.say(group, outcome{reason: reasonReconciled, warnings: warnings})
	return nil
}

// loadGroup finds the Ingresses of a group. Those that are being deleted have
// left it.
func (c *Controller) loadGroup(key groupKey) (ingressGroup, error) {
	ings, err := c.ingresses.Ingresses(key.namespace).List(labels.Everything()) // "" is all namespaces
	if err != nil {
		return ingressGroup{key: key}, fmt.Errorf("list ingresses: %w", err)
	}
	members := ings[:0:0]
	for _, ing := range ings {
		if ours(ing) && ing.DeletionTimestamp == nil && keyOf(ing) == key {
			members = append(members, ing)
		}
	}
	group, err := newIngressGroup(key, members)
	if err == nil && len(members) > 0 && !key.explicit() {
		err = checkGroupName(members[0])
	}
	return group, err
}

// deploy makes what a model asks for, in the order of the original: target
// groups, load balancer with listeners and rules, bindings; then what is not
// asked for any more goes. What is as it should be is left alone.
func (c *Controller) deploy(ctx context.Context, group ingressGroup, m model) error {
	d := c.deployed[group.key]
	if d == nil {
		d = &deployment{groups: make(map[string]elb.TargetGroup), bindings: make(map[string]binding)}
		c.deployed[group.key] = d
	}
	c.forgetMembers(d, group)
	for _, g := range m.groups {
		if old, ok := d.groups[g.Name]; ok && reflect.DeepEqual(old, g) {
			continue
		}
		if err := c.api.PutTargetGroup(ctx, g); err != nil {
			return err
		}
		d.groups[g.Name] = g
	}
	if !reflect.DeepEqual(d.lb, m.lb) {
		if err := c.putLoadBalancer(ctx, group.key, m.lb); err != nil {
			return err
		}
		d.lb = m.lb
	}
	for _, b := range m.bindings {
		if _, ok := d.groups[b.group]; ok {
			d.bindings[b.group] = b
			c.bindings.put(b)
			c.bindingQueue.Add(b.name)
		}
	}
	return c.removeGroups(ctx, d, m.groups)
}

// forgetMembers lets Events of Ingresses that have left be written again if
// they come back.
func (c *Controller) forgetMembers(d *deployment, group ingressGroup) {
	now := make([]types.NamespacedName, 0, len(group.members))
	for _, ing := range group.members {
		now = append(now, types.NamespacedName{Namespace: ing.Namespace, Name: ing.Name})
	}
	for _, member := range d.members {
		if !slices.Contains(now, member) {
			delete(c.said, member)
		}
	}
	d.members = now
}

// putLoadBalancer says what to do if a port is taken. Every ALB has addresses
// of its own; here all share some.
func (c *Controller) putLoadBalancer(ctx context.Context, key groupKey, lb elb.LoadBalancer) error {
	err := c.api.PutLoadBalancer(ctx, lb)
	if errors.Is(err, elb.ErrDuplicateListener) {
		c.waiting[key] = true
		return fmt.Errorf("%w: the load balancers of this stand-in share their addresses: choose another port in %slisten-ports, or give the Ingresses one %sgroup.name",
			err, annotationPrefix, annotationPrefix)
	}
	if err != nil {
		return err
	}
	delete(c.waiting, key)
	c.wakeWaiting()
	return nil
}

// wakeWaiting lets those that want a port look whether it is free.
func (c *Controller) wakeWaiting() {
	for key := range c.waiting {
		c.ingressQueue.Add(key)
	}
}

// removeGroups deletes the target groups of a deployment that are not wanted.
func (c *Controller) removeGroups(ctx context.Context, d *deployment, wanted []elb.TargetGroup) error {
	for name := range d.groups {
		if slices.ContainsFunc(wanted, func(g elb.TargetGroup) bool { return g.Name == name }) {
			continue
		}
		if b, ok := d.bindings[name]; ok {
			c.bindings.remove(b.name)
			c.bindingQueue.Add(b.name)
			delete(d.bindings, name)
		}
		if err := c.api.DeleteTargetGroup(ctx, name); err != nil && !errors.Is(err, elb.ErrTargetGroupNotFound) {
			return err
		}
		delete(d.groups, name)
		c.names.release(name)
	}
	return nil
}

// remove deletes everything of a group, if there is anything.
func (c *Controller) remove(ctx context.Context, key groupKey) error {
	delete(c.waiting, key)
	d := c.deployed[key]
	if d == nil {
		delete(c.said, types.NamespacedName{Namespace: key.namespace, Name: key.name})
		return nil
	}
	c.forgetMembers(d, ingressGroup{})
	if err := c.api.DeleteLoadBalancer(ctx, key.loadBalancer()); err != nil {
		return err
	}
	d.lb = elb.LoadBalancer{}
	c.wakeWaiting()
	if err := c.removeGroups(ctx, d, nil); err != nil {
		return err
	}
	delete(c.deployed, key)
	return nil
}

// releaseNames gives back the names that a model was given in vain.
func (c *Controller) releaseNames(key groupKey, bindings []binding) {
	d := c.deployed[key]
	for _, b := range bindings {
		if d == nil || d.groups[b.group].Name == "" {
			c.names.release(b.group)
		}
	}
}

// groupNames gives every binding's target group a name that people can read:
// namespace/service:port. Who comes second gets a suffix: another Ingress with
// the same Service port, or the same one with another target type or protocol,
// since those cannot change in a target group. A binding keeps its name.
type groupNames struct{ byBinding, byName map[string]string }

func newGroupNames() *groupNames {
	return &groupNames{make(map[string]string), make(map[string]string)}
}

func (n *groupNames) assign(wanted, binding string) string {
	if name, ok := n.byBinding[binding]; ok {
		return name
	}
	if _, taken := n.byName[wanted]; taken {
		wanted += "@" + binding[len(binding)-8:] // of its hash
	}
	n.byBinding[binding], n.byName[wanted] = wanted, binding
	return wanted
}

func (n *groupNames) release(name string) {
	delete(n.byBinding, n.byName[name])
	delete(n.byName, name)
}
