package alb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
)

// IngressClass is the class of the Ingresses that the load balancer serves.
const IngressClass = "alb"

// legacyClassAnnotation named the class before spec.ingressClassName did.
const legacyClassAnnotation = "kubernetes.io/ingress.class"

// controller brings one balancer per Ingress to what the Ingress asks for. One
// worker does all of it, so that its maps need no lock.
type controller struct {
	env       *environment
	client    kubernetes.Interface
	events    record.EventRecorder
	informers informers.SharedInformerFactory
	ingresses networkinglisters.IngressLister
	services  corelisters.ServiceLister
	nodes     corelisters.NodeLister
	queue     workqueue.TypedRateLimitingInterface[types.NamespacedName]
	synced    atomic.Bool

	balancers map[types.NamespacedName]*balancer
	ports     map[uint16]types.NamespacedName // who listens where
	waiting   map[types.NamespacedName]bool   // those that want a port that another has
	said      map[types.NamespacedName]string // the last Events, so that none is repeated
}

func newController(client kubernetes.Interface, events record.EventRecorder, env *environment) (*controller, error) {
	f := informers.NewSharedInformerFactory(client, 0)
	c := &controller{
		env:       env,
		client:    client,
		events:    events,
		informers: f,
		ingresses: f.Networking().V1().Ingresses().Lister(),
		services:  f.Core().V1().Services().Lister(),
		nodes:     f.Core().V1().Nodes().Lister(),
		// Failures are tried again soon: what is missing is mostly a port that
		// another process still holds, or a write that came second.
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](
			50*time.Millisecond, 5*time.Second)),
		balancers: make(map[types.NamespacedName]*balancer),
		ports:     make(map[uint16]types.NamespacedName),
		waiting:   make(map[types.NamespacedName]bool),
		said:      make(map[types.NamespacedName]string),
	}
	return c, errors.Join(
		c.watch(f.Networking().V1().Ingresses().Informer(), c.ingressChanged),
		c.watch(f.Core().V1().Services().Informer(), c.serviceChanged),
		c.watch(f.Core().V1().Nodes().Informer(), c.nodeChanged),
	)
}

// watch calls changed with the old and the new form of an object; one of them
// is nil when it was added or deleted.
func (c *controller) watch(i cache.SharedIndexInformer, changed func(old, now any)) error {
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
		fmt.Fprintf(c.env.messages, "watch the API server: %v: trying again\n", err)
	})
	if err != nil {
		return fmt.Errorf("watch the API server: %w", err)
	}
	return nil
}

func (c *controller) ingressChanged(old, now any) {
	for _, obj := range []any{old, now} {
		if ing, ok := obj.(*networkingv1.Ingress); ok {
			c.queue.Add(types.NamespacedName{Namespace: ing.Namespace, Name: ing.Name})
			return
		}
	}
}

func (c *controller) serviceChanged(old, now any) {
	for _, obj := range []any{old, now} {
		if svc, ok := obj.(*corev1.Service); ok {
			c.enqueue(svc.Namespace)
			return
		}
	}
}

// nodeChanged leaves out what kubelets write all the time.
func (c *controller) nodeChanged(old, now any) {
	address := func(obj any) string {
		if n, ok := obj.(*corev1.Node); ok {
			if addr, ok := nodeAddress(n); ok {
				return addr
			}
		}
		return ""
	}
	if address(old) != address(now) {
		c.enqueue("")
	}
}

// enqueue looks again at the Ingresses of a namespace; "" is all of them.
func (c *controller) enqueue(namespace string) {
	ings, err := c.ingresses.Ingresses(namespace).List(labels.Everything())
	if err != nil { // a lister over memory has none
		fmt.Fprintf(c.env.messages, "list ingresses: %v\n", err)
	}
	for _, ing := range ings {
		if ours(ing) {
			c.queue.Add(types.NamespacedName{Namespace: ing.Namespace, Name: ing.Name})
		}
	}
}

func ours(ing *networkingv1.Ingress) bool {
	if ing.Spec.IngressClassName != nil {
		return *ing.Spec.IngressClassName == IngressClass
	}
	return ing.Annotations[legacyClassAnnotation] == IngressClass
}

// run works until ctx ends, and closes everything before it returns.
func (c *controller) run(ctx context.Context) error {
	c.reach(ctx)
	c.informers.Start(ctx.Done())
	for kind, ok := range c.informers.WaitForCacheSync(ctx.Done()) {
		if !ok && ctx.Err() == nil {
			return fmt.Errorf("watch the API server: %v did not synchronize", kind)
		}
	}
	c.synced.Store(ctx.Err() == nil)
	stop := context.AfterFunc(ctx, c.queue.ShutDown)
	defer stop()
	for {
		key, shutdown := c.queue.Get()
		if shutdown {
			break
		}
		if err := c.reconcile(ctx, key); err != nil && ctx.Err() == nil {
			if !apierrors.IsConflict(err) { // ours was made from an old form; the new one is on its way
				fmt.Fprintf(c.env.messages, "%s: %v: trying again\n", key, err)
			}
			c.queue.AddRateLimited(key)
		} else {
			c.queue.Forget(key)
		}
		c.queue.Done(key)
	}
	// The informers end with ctx too, but are not waited for: one that backs
	// off from an API server that is gone takes seconds, and nothing of ours
	// depends on them.
	return c.closeAll()
}

// reach waits for the API server, and says so: informers try for ever without
// a word.
func (c *controller) reach(ctx context.Context) {
	said := ""
	// The only error is the end of ctx, which the caller sees itself.
	_ = wait.PollUntilContextCancel(ctx, 250*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		_, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil && ctx.Err() == nil && err.Error() != said {
			said = err.Error()
			fmt.Fprintf(c.env.messages, "waiting for the API server: %v\n", err)
		}
		return err == nil, nil
	})
}

// closeAll lets the requests in flight of all Ingresses end side by side.
func (c *controller) closeAll() error {
	results := make(chan error)
	for _, b := range c.balancers {
		go func() { results <- b.close(c.env.settings.DrainTimeout) }()
	}
	var errs []error
	for range c.balancers {
		errs = append(errs, <-results)
	}
	return errors.Join(errs...)
}

// reconcile brings one Ingress's balancer to what the Ingress asks for now. An
// error is tried again; what only its author can mend is an Event instead.
func (c *controller) reconcile(ctx context.Context, key types.NamespacedName) error {
	ing, err := c.ingresses.Ingresses(key.Namespace).Get(key.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("get ingress: %w", err)
	}
	if err != nil || !ours(ing) || ing.DeletionTimestamp != nil {
		return c.remove(key)
	}
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	m, warnings, err := buildModel(ing, clusterState{
		nodes: nodes,
		service: func(name string) *corev1.Service {
			svc, err := c.services.Services(key.Namespace).Get(name)
			if err != nil {
				return nil // a lister over memory knows no other error than not found
			}
			return svc
		},
	})
	if err == nil {
		err = c.claim(key, m.ports)
	}
	if err != nil {
		// As in the AWS controller, a balancer that exists keeps what it has.
		c.say(ing, warnings, reasonFailedBuild, err.Error())
		return nil
	}
	if err := c.deploy(key, m); err != nil {
		c.say(ing, warnings, reasonFailedDeploy, err.Error())
		return err
	}
	if err := c.setStatus(ctx, ing, m.ports); err != nil {
		return err
	}
	c.say(ing, warnings, reasonReconciled, "")
	return nil
}

// claim takes ports for an Ingress. Every ALB has an address of its own; here
// all share one, so a port has room for one Ingress.
func (c *controller) claim(key types.NamespacedName, ports []uint16) error {
	for _, p := range ports {
		if owner, taken := c.ports[p]; taken && owner != key {
			c.waiting[key] = true
			return fmt.Errorf("port %d is taken by Ingress %s: this stand-in has one address for all, choose another port in %slisten-ports",
				p, owner, annotationPrefix)
		}
	}
	delete(c.waiting, key)
	c.release(key, ports)
	for _, p := range ports {
		c.ports[p] = key
	}
	return nil
}

// release gives back the ports that an Ingress has, except those it keeps, and
// lets those who wait look again.
func (c *controller) release(key types.NamespacedName, keep []uint16) {
	released := false
	for p, owner := range c.ports {
		if owner == key && !slices.Contains(keep, p) {
			delete(c.ports, p)
			released = true
		}
	}
	if released {
		for w := range c.waiting {
			c.queue.Add(w)
		}
	}
}

func (c *controller) deploy(key types.NamespacedName, m model) error {
	b := c.balancers[key]
	if b == nil {
		var err error
		if b, err = newBalancer(c.env, key.Namespace, key.Name); err != nil {
			return err
		}
		c.balancers[key] = b
	}
	return b.apply(m)
}

// remove closes an Ingress's balancer, if there is one.
func (c *controller) remove(key types.NamespacedName) error {
	delete(c.said, key)
	delete(c.waiting, key)
	b := c.balancers[key]
	if b == nil {
		return nil
	}
	delete(c.balancers, key)
	err := b.close(0)
	c.release(key, nil)
	return err
}
