package kube

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"lameduck/harness/evidence"
)

// view is the present state of one namespace, kept up by watches, and a way to
// wait until it is as wanted.
type view struct {
	namespace string
	cancel    context.CancelFunc
	factory   informers.SharedInformerFactory
	pods      cache.Store
	ingresses cache.Store

	mu      sync.Mutex
	changed chan struct{} // closed, and replaced, at each change
}

// newView returns when the view shows what is there; ctx bounds only that. The
// caller must call stop.
func newView(ctx context.Context, client kubernetes.Interface, namespace string) (*view, error) {
	watching, cancel := context.WithCancel(context.WithoutCancel(ctx))
	v := &view{
		namespace: namespace, cancel: cancel, changed: make(chan struct{}),
		factory: informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace)),
	}
	pods, ingresses := v.factory.Core().V1().Pods().Informer(), v.factory.Networking().V1().Ingresses().Informer()
	v.pods, v.ingresses = pods.GetStore(), ingresses.GetStore()
	for _, informer := range []cache.SharedIndexInformer{pods, ingresses} {
		if err := v.observe(informer); err != nil {
			cancel()
			return nil, fmt.Errorf("watch namespace %s: %w", namespace, err)
		}
	}
	v.factory.StartWithContext(watching)
	if err := v.factory.WaitForCacheSyncWithContext(ctx).Err; err != nil {
		v.stop()
		return nil, fmt.Errorf("watch namespace %s: %w", namespace, err)
	}
	return v, nil
}

func (v *view) observe(informer cache.SharedIndexInformer) error {
	// The informer connects again by itself. A cluster that stays away shows as
	// a wait that its context ends.
	if err := informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}); err != nil {
		return err
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { v.wake() },
		UpdateFunc: func(any, any) { v.wake() },
		DeleteFunc: func(any) { v.wake() },
	})
	return err
}

func (v *view) stop() {
	v.cancel()
	v.factory.Shutdown()
}

func (v *view) wake() {
	v.mu.Lock()
	defer v.mu.Unlock()
	close(v.changed)
	v.changed = make(chan struct{})
}

// wait returns when cond is true; it is tried at each change. An error of cond
// ends the wait.
func (v *view) wait(ctx context.Context, cond func() (bool, error)) error {
	for {
		v.mu.Lock()
		changed := v.changed
		v.mu.Unlock()
		if ok, err := cond(); ok || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// podsOf are the pods of the role appName or controlName, also those that
// terminate, by name.
func (v *view) podsOf(role string) []*corev1.Pod {
	return slices.DeleteFunc(v.allPods(), func(p *corev1.Pod) bool { return p.Labels[evidence.RoleLabel] != role })
}

func (v *view) allPods() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, o := range v.pods.List() {
		pods = append(pods, o.(*corev1.Pod))
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods
}

// addresses are where the Ingress's load balancer listens: an address for each
// of its nodes, or a name that stands for all of them. None: it is not up yet.
func (v *view) addresses() []string {
	var all []string
	for _, o := range v.ingresses.List() {
		for _, lb := range o.(*networkingv1.Ingress).Status.LoadBalancer.Ingress {
			all = append(all, cmp.Or(lb.IP, lb.Hostname))
		}
	}
	return all
}

// census counts pods.
type census struct{ exist, ready, terminating int }

func count(pods []*corev1.Pod) census {
	c := census{exist: len(pods)}
	for _, p := range pods {
		switch {
		case p.DeletionTimestamp != nil:
			c.terminating++
		case isReady(p):
			c.ready++
		}
	}
	return c
}

// settled says whether there are exactly n pods, all ready and none terminating.
func (c census) settled(n int) bool { return c == census{exist: n, ready: n} }

func (c census) String() string {
	return fmt.Sprintf("%d exist, %d ready, %d terminating", c.exist, c.ready, c.terminating)
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
