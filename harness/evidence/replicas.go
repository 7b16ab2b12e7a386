package evidence

import (
	"strconv"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"

	"lameduck/harness"
)

// replicaTracker records what the autoscaler wants (its status.desiredReplicas)
// and what the Deployment was told (its spec.replicas, which the autoscaler
// sets). The first number seen is not a change.
type replicaTracker struct {
	w *Watcher
	// Each key belongs to one informer's goroutine, the map to two.
	mu       sync.Mutex
	recorded map[string]int32
}

func (t *replicaTracker) deployment(d *appsv1.Deployment) {
	if d.Name == t.w.workload.Deployment && d.Spec.Replicas != nil {
		t.record("Deployment/"+d.Name, *d.Spec.Replicas)
	}
}

func (t *replicaTracker) autoscaler(h *autoscalingv2.HorizontalPodAutoscaler) {
	// Before the controller's first look the status is empty.
	if h.Name == t.w.workload.HPA && (h.Status.DesiredReplicas > 0 || h.Status.LastScaleTime != nil) {
		t.record("HorizontalPodAutoscaler/"+h.Name, h.Status.DesiredReplicas)
	}
}

func (t *replicaTracker) record(object string, n int32) {
	t.mu.Lock()
	before, known := t.recorded[object]
	t.recorded[object] = n
	t.mu.Unlock()
	if known && before != n {
		t.w.emit(harness.EventReplicas, object, map[string]string{"from": strconv.Itoa(int(before)), "to": strconv.Itoa(int(n))})
	}
}
