package evidence

import (
	"maps"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"

	"lameduck/harness"
)

// endpoint is one pod as the Service's EndpointSlices show it.
type endpoint struct {
	address            string
	ready, terminating bool
}

type endpointsByPod map[string]endpoint

// endpointTracker turns EndpointSlices into events. A Service can have several
// slices and the controller moves endpoints between them, so that what is
// compared is the sum of all slices.
type endpointTracker struct {
	w        *Watcher
	slices   map[string]endpointsByPod // by slice
	recorded endpointsByPod
}

func (t *endpointTracker) seen(slice *discoveryv1.EndpointSlice) {
	if slice.Labels[discoveryv1.LabelServiceName] != t.w.workload.Service {
		return
	}
	pods := make(endpointsByPod, len(slice.Endpoints))
	for _, e := range slice.Endpoints {
		if e.TargetRef == nil || len(e.Addresses) == 0 {
			continue
		}
		pods[e.TargetRef.Name] = endpoint{
			// Without a value, ready means true (API reference, EndpointConditions).
			address:     e.Addresses[0],
			ready:       e.Conditions.Ready == nil || *e.Conditions.Ready,
			terminating: e.Conditions.Terminating != nil && *e.Conditions.Terminating,
		}
	}
	t.slices[slice.Name] = pods
	t.record()
}

func (t *endpointTracker) gone(slice *discoveryv1.EndpointSlice) {
	delete(t.slices, slice.Name)
	t.record()
}

// record compares the sum of all slices with what was recorded.
func (t *endpointTracker) record() {
	now := make(endpointsByPod)
	for _, pods := range t.slices {
		for pod, e := range pods {
			if other, twice := now[pod]; twice { // while it moves to another slice
				e.ready = e.ready || other.ready
				e.terminating = e.terminating && other.terminating
			}
			now[pod] = e
		}
	}
	emit := func(kind harness.EventKind, pod string, e endpoint) {
		t.w.emit(kind, pod, map[string]string{"address": e.address})
	}
	// Sorted, so that what came in one notification is recorded in one order.
	for _, pod := range slices.Sorted(maps.Keys(t.recorded)) {
		if _, there := now[pod]; !there {
			emit(harness.EventEndpointRemoved, pod, t.recorded[pod])
		}
	}
	for _, pod := range slices.Sorted(maps.Keys(now)) {
		e, before := now[pod], t.recorded[pod]
		if e.ready && !before.ready {
			emit(harness.EventEndpointReady, pod, e)
		}
		if e.terminating && !before.terminating {
			emit(harness.EventEndpointTerminating, pod, e)
		}
	}
	t.recorded = now
}
