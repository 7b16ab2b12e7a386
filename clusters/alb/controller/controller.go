package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	"lameduck/clusters/alb/elb"
)

// Controller keeps load balancers and target groups in step with a cluster.
type Controller struct {
	client    kubernetes.Interface
	events    record.EventRecorder
	api       elb.API // throttled
	options   Options
	informers informers.SharedInformerFactory
	ingresses networkinglisters.IngressLister
	services  corelisters.ServiceLister
	nodes     corelisters.NodeLister
	pods      corelisters.PodLister
	slices    discoverylisters.EndpointSliceLister
	synced    atomic.Bool

	bindings     *bindingSet
	bindingQueue workqueue.TypedRateLimitingInterface[string]

	// The Ingress queue has one worker, so that its maps need no lock.
	ingressQueue workqueue.TypedRateLimitingInterface[groupKey]
	deployed     map[groupKey]*deployment
	names        *groupNames
	waiting      map[groupKey]bool               // those that want a port that another has
	said         map[types.NamespacedName]string // the last Events, so that none is repeated
}

// New makes a controller. It does nothing before Run.
func New(client kubernetes.Interface, events record.EventRecorder, api elb.API, o Options) (*Controller, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	f := informers.NewSharedInformerFactory(client, 0)
	c := &Controller{
		client:       client,
		events:       events,
		api:          newThrottled(api, o.Limits, o.RetryBase),
		options:      o,
		informers:    f,
		ingresses:    f.Networking().V1().Ingresses().Lister(),
		services:     f.Core().V1().Services().Lister(),
		nodes:        f.Core().V1().Nodes().Lister(),
		pods:         f.Core().V1().Pods().Lister(),
		slices:       f.Discovery().V1().EndpointSlices().Lister(),
		bindings:     newBindingSet(),
		bindingQueue: newQueue[string](5*time.Millisecond, o.MaxBackoff),
		ingressQueue: newQueue[groupKey](50*time.Millisecond, min(o.MaxBackoff, maxIngressBackoff)),
		deployed:     make(map[groupKey]*deployment),
		names:        newGroupNames(),
		waiting:      make(map[groupKey]bool),
		said:         make(map[types.NamespacedName]string),
	}
	return c, errors.Join(
		f.Core().V1().Pods().Informer().SetTransform(trimPod),
		c.watch(f.Networking().V1().Ingresses().Informer(), c.ingressChanged),
		c.watch(f.Core().V1().Services().Informer(), c.serviceChanged),
		c.watch(f.Core().V1().Nodes().Informer(), c.nodeChanged),
		c.watch(f.Core().V1().Pods().Informer(), c.podChanged),
		c.watch(f.Discovery().V1().EndpointSlices().Informer(), c.sliceChanged),
	)
}

func newQueue[T comparable](first, last time.Duration) workqueue.TypedRateLimitingInterface[T] {
	return workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[T](first, last))
}

// Synced says whether the cluster is being watched and pods get their
// readiness gates.
func (c *Controller) Synced() bool { return c.synced.Load() }

// Webhook is the handler of the readiness gates' admission webhook, which Run
// serves if Options.Webhook is set.
func (c *Controller) Webhook() http.Handler {
	return &injector{bindings: c.bindings, service: c.service}
}

// Run works until ctx ends. The load balancers are left as they are. The end
// of ctx is not an error.
func (c *Controller) Run(ctx context.Context) (err error) {
	c.reach(ctx)
	c.informers.Start(ctx.Done())
	for kind, ok := range c.informers.WaitForCacheSync(ctx.Done()) {
		if !ok && ctx.Err() == nil {
			return fmt.Errorf("watch the API server: %v did not synchronize", kind)
		}
	}
	var serving *webhookServer
	if c.options.Webhook != nil && ctx.Err() == nil {
		if serving, err = c.serveWebhook(ctx); err != nil {
			return err
		}
	}
	c.synced.Store(ctx.Err() == nil)

	stop := context.AfterFunc(ctx, func() {
		c.ingressQueue.ShutDown()
		c.bindingQueue.ShutDown()
	})
	defer stop()
	var workers sync.WaitGroup
	for range bindingWorkers {
		workers.Go(func() {
			for c.nextBinding(ctx) {
			}
		})
	}
	for c.nextGroup(ctx) {
	}
	workers.Wait()
	// The informers end with ctx too, but are not waited for: one that backs
	// off from an API server that is gone takes seconds, and nothing of ours
	// depends on them.
	c.synced.Store(false)
	if serving != nil {
		return serving.close(ctx)
	}
	return nil
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
			c.message("waiting for the API server: %v", err)
		}
		return err == nil, nil
	})
}

// service returns nil if there is no such Service.
func (c *Controller) service(namespace, name string) *corev1.Service {
	svc, err := c.services.Services(namespace).Get(name)
	if err != nil {
		return nil // a lister over memory knows no other error than not found
	}
	return svc
}
