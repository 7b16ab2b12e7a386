package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"lameduck/clusters/alb/elb"
)

// watch calls changed with the old and the new form of an object; one of them
// is nil when it was added or deleted.
func (c *Controller) watch(i cache.SharedIndexInformer, changed func(old, now any)) error {
	_, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(now any) { changed(nil, now) },
		UpdateFunc: changed,
		DeleteFunc: func(old any) {
			if unknown, ok := old.(cache.DeletedFinalStateUnknown); ok {
				old = unknown.Obj
			}
			changed(old, nil)
		},
	})
	if err != nil {
		return fmt.Errorf("watch the API server: %w", err)
	}
	err = i.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || errors.Is(err, context.Canceled) {
			return // ordinary: the watch starts anew, or is not wanted any more
		}
		c.message("watch the API server: %v: trying again", err)
	})
	if err != nil {
		return fmt.Errorf("watch the API server: %w", err)
	}
	return nil
}

// eitherOf is the object in its new form, or in its old one if it was deleted.
func eitherOf[T any](old, now any) (obj T, ok bool) {
	if obj, ok = now.(T); !ok {
		obj, ok = old.(T)
	}
	return obj, ok
}

// ingressChanged leaves out what the controller itself writes: the status.
func (c *Controller) ingressChanged(old, now any) {
	before, hadBefore := old.(*networkingv1.Ingress)
	after, hasNow := now.(*networkingv1.Ingress)
	if hadBefore && hasNow && maps.Equal(before.Annotations, after.Annotations) &&
		before.DeletionTimestamp.Equal(after.DeletionTimestamp) && equality.Semantic.DeepEqual(before.Spec, after.Spec) {
		return
	}
	if hadBefore && ours(before) { // it may have left its group
		c.ingressQueue.Add(keyOf(before))
	}
	if hasNow && ours(after) {
		c.ingressQueue.Add(keyOf(after))
	}
}

func (c *Controller) serviceChanged(old, now any) {
	svc, ok := eitherOf[*corev1.Service](old, now)
	if !ok {
		return
	}
	before, hadBefore := old.(*corev1.Service)
	if hadBefore && now != nil && maps.Equal(before.Annotations, svc.Annotations) && equality.Semantic.DeepEqual(before.Spec, svc.Spec) {
		return
	}
	ings, err := c.ingresses.Ingresses(svc.Namespace).List(labels.Everything())
	if err != nil { // a lister over memory has none
		c.message("list ingresses: %v", err)
	}
	for _, ing := range ings {
		if ours(ing) {
			c.ingressQueue.Add(keyOf(ing))
		}
	}
	c.enqueueBindings(func(b *binding) bool { return b.namespace == svc.Namespace && b.service == svc.Name })
}

// nodeChanged is for instance mode only, and leaves out what kubelets write all
// the time.
func (c *Controller) nodeChanged(old, now any) {
	before, _ := old.(*corev1.Node)
	after, _ := now.(*corev1.Node)
	if before != nil && after != nil && maps.Equal(before.Labels, after.Labels) {
		addrBefore, okBefore := nodeAddress(before)
		if addr, ok := nodeAddress(after); addr == addrBefore && ok == okBefore {
			return
		}
	}
	c.enqueueBindings(func(b *binding) bool { return b.targetType == elb.TargetInstance })
}

// podChanged looks at the groups that a pod waits for (controller,
// controllers/elbv2/eventhandlers/pod.go).
func (c *Controller) podChanged(old, now any) {
	pod, ok := eitherOf[*corev1.Pod](old, now)
	if !ok {
		return
	}
	if before, ok := old.(*corev1.Pod); ok && now != nil && equality.Semantic.DeepEqual(before.Status, pod.Status) {
		return
	}
	for _, gate := range pod.Spec.ReadinessGates {
		if isTargetHealth(gate.ConditionType) {
			c.bindingQueue.Add(string(gate.ConditionType[len(targetHealthPrefix):]))
		}
	}
}

// sliceChanged is for IP mode only: in instance mode endpoints are ignored.
func (c *Controller) sliceChanged(old, now any) {
	slice, ok := eitherOf[*discoveryv1.EndpointSlice](old, now)
	if !ok {
		return
	}
	service := slice.Labels[discoveryv1.LabelServiceName]
	for _, b := range c.bindings.with(func(b *binding) bool {
		return b.targetType == elb.TargetIP && b.namespace == slice.Namespace && b.service == service
	}) {
		c.endpointsChanged(&b)
	}
}

func (c *Controller) enqueueBindings(match func(*binding) bool) {
	for _, b := range c.bindings.with(match) {
		c.bindingQueue.Add(b.name)
	}
}
