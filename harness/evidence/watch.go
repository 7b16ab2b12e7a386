package evidence

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"lameduck/harness"
)

// RoleLabel marks the pods of a trial: RoleApp those of the workload. An
// application's own labels say nothing that is the same for all.
const (
	RoleLabel = "lameduck.dev/role"
	RoleApp   = "app"
)

// Workload says what to watch, besides the pods with RoleApp: names of objects,
// and of the container that serves the requests.
type Workload struct{ Namespace, Deployment, Service, HPA, Container string }

// Watcher records what happens to one workload until it is stopped.
type Watcher struct {
	client   kubernetes.Interface
	workload Workload
	clock    harness.Clock
	rec      harness.Recorder

	cancel  context.CancelFunc
	factory informers.SharedInformerFactory
	open    openCount // pods that are not gone and logs that have not ended
	logs    sync.WaitGroup
}

// Watch starts the watchers and returns when they have seen what is there
// already; ctx bounds only that. The namespace need not exist yet. The caller
// must call Stop.
func Watch(ctx context.Context, client kubernetes.Interface, workload Workload, clock harness.Clock, rec harness.Recorder) (*Watcher, error) {
	watching, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w := &Watcher{
		client: client, workload: workload, clock: clock, rec: rec, cancel: cancel,
		factory: informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(workload.Namespace)),
	}
	pods := &podTracker{w: w, watching: watching, pods: make(map[types.UID]*podState)}
	endpoints := &endpointTracker{w: w, slices: make(map[string]endpointsByPod), recorded: make(endpointsByPod)}
	replicas := &replicaTracker{w: w, recorded: make(map[string]int32)}
	events := &objectEventTracker{w: w, recorded: make(map[types.UID]int32)}
	for _, h := range []struct {
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}{
		{w.factory.Core().V1().Pods().Informer(), handler(pods.seen, pods.gone)},
		{w.factory.Discovery().V1().EndpointSlices().Informer(), handler(endpoints.seen, endpoints.gone)},
		{w.factory.Apps().V1().Deployments().Informer(), handler(replicas.deployment, nil)},
		{w.factory.Autoscaling().V2().HorizontalPodAutoscalers().Informer(), handler(replicas.autoscaler, nil)},
		{w.factory.Core().V1().Events().Informer(), handler(events.seen, nil)},
	} {
		// The informer connects again by itself; what is worth telling is told by
		// those who wait for something to happen.
		if err := h.informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}); err != nil {
			cancel()
			return nil, fmt.Errorf("watch namespace %s: %w", workload.Namespace, err)
		}
		if _, err := h.informer.AddEventHandler(h.handler); err != nil {
			cancel()
			return nil, fmt.Errorf("watch namespace %s: %w", workload.Namespace, err)
		}
	}
	w.factory.StartWithContext(watching)
	if err := w.factory.WaitForCacheSyncWithContext(ctx).Err; err != nil {
		cancel()
		w.factory.Shutdown()
		return nil, fmt.Errorf("watch namespace %s: %w", workload.Namespace, err)
	}
	return w, nil
}

// Stop waits, as long as ctx allows, until all pods that were seen are gone and
// their logs have ended; then it stops watching. Nothing is recorded after it
// has returned.
func (w *Watcher) Stop(ctx context.Context) {
	select {
	case <-w.open.none():
	case <-ctx.Done():
	}
	w.cancel()
	w.factory.Shutdown()
	w.logs.Wait()
}

func (w *Watcher) emit(kind harness.EventKind, object string, detail map[string]string) {
	w.rec.Event(harness.Event{At: w.clock.Now(), Kind: kind, Object: object, Detail: detail})
}

func (w *Watcher) ours(pod *corev1.Pod) bool { return pod.Labels[RoleLabel] == RoleApp }

// handler adapts typed functions to an informer, which calls them from one
// goroutine: a tracker needs no lock for what only they touch.
func handler[T metav1.Object](seen, gone func(T)) cache.ResourceEventHandler {
	call := func(f func(T), object any) {
		// What was known of an object whose deletion the informer missed.
		if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = unknown.Obj
		}
		if typed, ok := object.(T); ok && f != nil {
			f(typed)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { call(seen, object) },
		UpdateFunc: func(before, object any) {
			// A new listing can show a new object under an old one's name.
			if old, ok := before.(T); ok && old.GetUID() != object.(T).GetUID() {
				call(gone, before)
			}
			call(seen, object)
		},
		DeleteFunc: func(object any) { call(gone, object) },
	}
}

// openCount counts what has begun and not ended. The zero value is ready.
type openCount struct {
	mu     sync.Mutex
	n      int
	closed chan struct{} // closed when n is 0 again
}

func (c *openCount) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == 0 {
		c.closed = make(chan struct{})
	}
	c.n++
}

func (c *openCount) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n--; c.n == 0 {
		close(c.closed)
	}
}

// none is closed when nothing that has begun by now is open.
func (c *openCount) none() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == 0 {
		done := make(chan struct{})
		close(done)
		return done
	}
	return c.closed
}
