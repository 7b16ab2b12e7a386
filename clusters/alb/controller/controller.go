// Package controller is the Kubernetes side of the load balancer stand-in: it
// does with package elb what the AWS Load Balancer Controller does with the
// ELBv2 API, for Ingresses of class alb.
//
//	Ingress, Service --> model --> load balancers, target groups     (reconcile.go)
//	Node, EndpointSlice --> bindings --> registrations               (bindings.go)
//	Pod creation --> webhook --> readiness gate --> condition        (webhook.go, gates.go)
//
// The two queues are separate, as in the AWS controller, where a
// TargetGroupBinding has a controller of its own: a change of endpoints does not
// wait for Ingresses.
package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	"lameduck/clusters/alb/elb"
)

// IngressClass is the class of the Ingresses that the load balancer serves.
const IngressClass = "alb"

// legacyClassAnnotation named the class before spec.ingressClassName did.
const legacyClassAnnotation = "kubernetes.io/ingress.class"

// Options of a Controller.
type Options struct {
	// Addresses are those of the load balancer nodes, which the status of every
	// Ingress shows.
	Addresses []netip.Addr
	// Lag is how long a change of EndpointSlices waits before it is looked at, as
	// if the controller were slow. An Ingress or Service may have its own
	// (annotation alb.lameduck.dev/controller-lag).
	Lag elb.Range
	// WebhookAddress is where the API server reaches the webhook that adds
	// readiness gates; the zero AddrPort: there is none, and no gates.
	WebhookAddress netip.AddrPort
	// Messages is for people, a line each. Safe for concurrent use.
	Messages io.Writer
}

// Controller brings the load balancers of an elb.API to what the Ingresses of a
// cluster ask for.
type Controller struct {
	options    Options
	client     kubernetes.Interface
	events     record.EventRecorder
	api        elb.API
	limits     limits
	informers  informers.SharedInformerFactory
	ingresses  networkinglisters.IngressLister
	services   corelisters.ServiceLister
	nodes      corelisters.NodeLister
	pods       corelisters.PodLister
	namespaces corelisters.NamespaceLister
	slices     discoverylisters.EndpointSliceLister
	queue      workqueue.TypedRateLimitingInterface[types.NamespacedName] // Ingresses
	bound      workqueue.TypedRateLimitingInterface[string]               // bindings, by group ID
	synced     atomic.Bool

	mu       sync.Mutex
	bindings map[string]bindingOf // by group ID

	// Used by the worker of queue only.
	owned map[types.NamespacedName]map[string]bool // group IDs of each Ingress
	said  map[types.NamespacedName]string          // the last Events, so that none is repeated
}

// bindingOf is a binding and the Ingress that it is part of.
type bindingOf struct {
	binding
	ingress types.NamespacedName
}

// New makes a controller. Run starts it.
func New(client kubernetes.Interface, events record.EventRecorder, api elb.API, o Options) (*Controller, error) {
	f := informers.NewSharedInformerFactory(client, 0)
	c := &Controller{
		options: o, client: client, events: events, api: api, limits: newLimits(), informers: f,
		ingresses:  f.Networking().V1().Ingresses().Lister(),
		services:   f.Core().V1().Services().Lister(),
		nodes:      f.Core().V1().Nodes().Lister(),
		pods:       f.Core().V1().Pods().Lister(),
		namespaces: f.Core().V1().Namespaces().Lister(),
		slices:     f.Discovery().V1().EndpointSlices().Lister(),
		// Failures are tried again soon: what is missing is mostly a port that
		// another process still holds, or a write that came second.
		queue:    workqueue.NewTypedRateLimitingQueue(backoff[types.NamespacedName]()),
		bound:    workqueue.NewTypedRateLimitingQueue(backoff[string]()),
		bindings: make(map[string]bindingOf),
		owned:    make(map[types.NamespacedName]map[string]bool),
		said:     make(map[types.NamespacedName]string),
	}
	return c, errors.Join(
		c.watch(f.Networking().V1().Ingresses().Informer(), c.ingressChanged),
		c.watch(f.Core().V1().Services().Informer(), c.serviceChanged),
		c.watch(f.Core().V1().Nodes().Informer(), c.nodeChanged),
		c.watch(f.Core().V1().Pods().Informer(), c.podChanged),
		c.watch(f.Core().V1().Namespaces().Informer(), func(any, any) {}),
		c.watch(f.Discovery().V1().EndpointSlices().Informer(), c.endpointsChanged),
	)
}

func backoff[T comparable]() workqueue.TypedRateLimiter[T] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[T](50*time.Millisecond, 5*time.Second)
}

// Synced says whether the API server is being watched.
func (c *Controller) Synced() bool { return c.synced.Load() }

// TargetChanged tells the controller that a target's state over all nodes is
// another one: pods may wait for it with a readiness gate. It is an
// elb.Options.StateChanged.
func (c *Controller) TargetChanged(groupID string, _ netip.AddrPort, _ elb.State) {
	c.bound.Add(groupID)
}

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
		fmt.Fprintf(c.options.Messages, "watch the API server: %v: trying again\n", err)
	})
	if err != nil {
		return fmt.Errorf("watch the API server: %w", err)
	}
	return nil
}

// either is the new form of an object, or the old one of a deleted one.
func either[T any](old, now any) (T, bool) {
	for _, obj := range []any{now, old} {
		if o, ok := obj.(T); ok {
			return o, true
		}
	}
	var none T
	return none, false
}

func (c *Controller) ingressChanged(old, now any) {
	if ing, ok := either[*networkingv1.Ingress](old, now); ok {
		c.queue.Add(types.NamespacedName{Namespace: ing.Namespace, Name: ing.Name})
	}
}

func (c *Controller) serviceChanged(old, now any) {
	svc, ok := either[*corev1.Service](old, now)
	if !ok {
		return
	}
	ings, err := c.ingresses.Ingresses(svc.Namespace).List(labels.Everything())
	if err != nil { // a lister over memory has none
		fmt.Fprintf(c.options.Messages, "list ingresses: %v\n", err)
	}
	for _, ing := range ings {
		if ours(ing) {
			c.queue.Add(types.NamespacedName{Namespace: ing.Namespace, Name: ing.Name})
		}
	}
}

// nodeChanged leaves out what kubelets write all the time. In IP mode nodes do
// not matter.
func (c *Controller) nodeChanged(old, now any) {
	key := func(obj any) string {
		if n, ok := obj.(*corev1.Node); ok {
			if addr, ok := nodeAddress(n); ok {
				return addr + " " + labels.Set(n.Labels).String()
			}
		}
		return ""
	}
	if key(old) == key(now) {
		return
	}
	c.enqueueBindings(func(b bindingOf) bool { return b.group.Type == elb.TargetInstance })
}

// endpointsChanged wakes the bindings of IP mode. In instance mode endpoint
// events are ignored (S: controllers/elbv2/eventhandlers).
func (c *Controller) endpointsChanged(old, now any) {
	s, ok := either[*discoveryv1.EndpointSlice](old, now)
	if !ok {
		return
	}
	service := s.Labels[discoveryv1.LabelServiceName]
	c.enqueueBindings(func(b bindingOf) bool {
		return b.group.Type == elb.TargetIP && b.ingress.Namespace == s.Namespace && b.service == service
	})
}

// podChanged wakes the bindings that a pod waits for with a readiness gate.
func (c *Controller) podChanged(old, now any) {
	pod, ok := now.(*corev1.Pod)
	if !ok || len(pod.Spec.ReadinessGates) == 0 {
		return
	}
	c.enqueueBindings(func(b bindingOf) bool {
		return b.group.Type == elb.TargetIP && b.ingress.Namespace == pod.Namespace && hasGate(pod, b.name)
	})
}

// enqueueBindings looks again at some bindings, after the controller's lag.
func (c *Controller) enqueueBindings(chosen func(bindingOf) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, b := range c.bindings {
		if !chosen(b) {
			continue
		}
		lag := b.lag
		if lag == (elb.Range{}) {
			lag = c.options.Lag
		}
		c.bound.AddAfter(id, lag.Draw())
	}
}

func (c *Controller) binding(groupID string) (bindingOf, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, ok := c.bindings[groupID]
	return b, ok
}

func ours(ing *networkingv1.Ingress) bool {
	if ing.Spec.IngressClassName != nil {
		return *ing.Spec.IngressClassName == IngressClass
	}
	return ing.Annotations[legacyClassAnnotation] == IngressClass
}

// Run works until ctx ends. The load balancers stay as they are: whoever made
// the elb.API closes it.
func (c *Controller) Run(ctx context.Context) error {
	c.reach(ctx)
	c.informers.Start(ctx.Done())
	for kind, ok := range c.informers.WaitForCacheSync(ctx.Done()) {
		if !ok && ctx.Err() == nil {
			return fmt.Errorf("watch the API server: %v did not synchronize", kind)
		}
	}
	stopWebhook, err := c.serveWebhook(ctx)
	if err != nil {
		return err
	}
	defer stopWebhook()
	c.synced.Store(ctx.Err() == nil)
	stop := context.AfterFunc(ctx, func() {
		c.queue.ShutDown()
		c.bound.ShutDown()
	})
	defer stop()
	var workers sync.WaitGroup
	workers.Go(func() { work(ctx, c.queue, c.reconcile, c.failed) })
	// Several, as in the AWS controller (--targetgroupbinding-max-concurrent-reconciles).
	for range bindingWorkers {
		workers.Go(func() { work(ctx, c.bound, c.reconcileBinding, c.failed) })
	}
	workers.Wait()
	// The informers end with ctx too, but are not waited for: one that backs
	// off from an API server that is gone takes seconds, and nothing of ours
	// depends on them.
	return nil
}

const bindingWorkers = 3

// work takes keys until the queue is shut down. What fails is tried again.
func work[K comparable](ctx context.Context, queue workqueue.TypedRateLimitingInterface[K], do func(context.Context, K) error, failed func(key any, err error)) {
	for {
		key, shutdown := queue.Get()
		if shutdown {
			return
		}
		if err := do(ctx, key); err != nil && ctx.Err() == nil {
			failed(key, err)
			queue.AddRateLimited(key)
		} else {
			queue.Forget(key)
		}
		queue.Done(key)
	}
}

func (c *Controller) failed(key any, err error) {
	if !apierrors.IsConflict(err) { // ours was made from an old form; the new one is on its way
		fmt.Fprintf(c.options.Messages, "%v: %v: trying again\n", key, err)
	}
}

// reach waits for the API server, and says so: informers try for ever without
// a word.
func (c *Controller) reach(ctx context.Context) {
	said := ""
	// The only error is the end of ctx, which the caller sees itself.
	_ = wait.PollUntilContextCancel(ctx, 250*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		_, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil && ctx.Err() == nil && err.Error() != said {
			said = err.Error()
			fmt.Fprintf(c.options.Messages, "waiting for the API server: %v\n", err)
		}
		return err == nil, nil
	})
}
