package controller

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lameduck/clusters/alb/elb"
)

// gateOf is the readiness gate of app in IP mode, once its binding exists.
func (w *world) gateOf() (gate corev1.PodConditionType) {
	w.t.Helper()
	w.eventually("binding", func() bool {
		for _, b := range w.c.bindings.with(func(b *binding) bool { return b.service == "app" }) {
			gate = b.condition()
		}
		return gate != ""
	})
	return gate
}

// condition waits until a pod has a condition like this.
func (w *world) condition(pod string, want corev1.PodCondition) (got corev1.PodCondition) {
	w.t.Helper()
	w.eventually(string(want.Status)+" "+want.Reason+" of "+pod, func() bool {
		p, err := w.client.CoreV1().Pods("ns").Get(context.Background(), pod, metav1.GetOptions{})
		if err != nil {
			w.t.Fatal(err)
		}
		i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == want.Type })
		if i < 0 {
			return false
		}
		got = p.Status.Conditions[i]
		return got.Status == want.Status && got.Reason == want.Reason && got.Message == want.Message
	})
	return got
}

// TestReadinessGate: a pod that is ready but for its gate becomes a target; the
// gate has its target's reason and is true when the target is healthy.
func TestReadinessGate(t *testing.T) {
	const addr = "198.18.0.1"
	api := newFakeAPI()
	api.initial = true
	w := start(t, api, Options{}, node("a", "198.18.0.11"), service("app"), ipIngress("app", 80))
	gate := w.gateOf()
	if !strings.HasPrefix(string(gate), "target-health.elbv2.k8s.aws/k8s-ns-app-") {
		t.Errorf("gate %q", gate)
	}
	waiting := pod(podName(addr), gate, "example.com/other")
	waiting.Status.Conditions[0].Status = corev1.ConditionFalse
	w.put(waiting)
	w.put(slice("s", endpoint{addr: addr}))
	w.put(pod(podName(addr), gate, "example.com/other")) // its containers are ready now; no slice changes
	w.targets(group, addr+":8080")
	first := w.condition(podName(addr), corev1.PodCondition{Type: gate, Status: corev1.ConditionFalse,
		Reason: elb.ReasonInitialHealthChecking, Message: "Initial health checks in progress"})

	api.with(func() {
		for target, h := range api.targets[group] {
			h.State, h.Reason, h.Description = elb.StateHealthy, "", ""
			api.targets[group][target] = h
		}
	})
	last := w.condition(podName(addr), corev1.PodCondition{Type: gate, Status: corev1.ConditionTrue})
	if first.LastTransitionTime.IsZero() || last.LastTransitionTime.Before(&first.LastTransitionTime) {
		t.Errorf("transitions at %s and %s", first.LastTransitionTime, last.LastTransitionTime)
	}
	// Nobody waits any more: nothing is polled.
	w.eventually("the last look", func() bool {
		var before, after int
		api.with(func() { before = api.looks })
		time.Sleep(5 * w.c.options.HealthInterval)
		api.with(func() { after = api.looks })
		return before == after
	})
	p, _ := w.client.CoreV1().Pods("ns").Get(t.Context(), podName(addr), metav1.GetOptions{})
	if len(p.Status.Conditions) != 2 {
		t.Errorf("conditions %v: only the binding's own may be set", p.Status.Conditions)
	}
}

// TestGateOfTerminatingPod: one that goes is not registered for its gate's sake.
func TestGateOfTerminatingPod(t *testing.T) {
	w := start(t, newFakeAPI(), Options{}, node("a", "198.18.0.11"), service("app"), ipIngress("app", 80))
	gate := w.gateOf()
	w.put(pod(podName("198.18.0.1"), gate))
	w.put(pod(podName("198.18.0.2"), gate))
	w.put(slice("s", endpoint{addr: "198.18.0.1", terminating: true}, endpoint{addr: "198.18.0.2"}))
	w.targets(group, "198.18.0.2:8080")
	lost := node("a", "198.18.0.11")
	lost.Status.Conditions[0].Status = corev1.ConditionUnknown
	w.put(lost)
	w.put(slice("s", endpoint{addr: "198.18.0.2"}, endpoint{addr: "198.18.0.3"}))
	w.targets(group)
}

// TestGateOfRemovedBinding: pods must not wait for what is no more.
func TestGateOfRemovedBinding(t *testing.T) {
	api := newFakeAPI()
	api.initial = true
	w := start(t, api, Options{}, node("a", "198.18.0.11"), service("app"), ipIngress("app", 80))
	gate := w.gateOf()
	w.put(pod(podName("198.18.0.1"), gate))
	w.put(slice("s", endpoint{addr: "198.18.0.1"}))
	w.condition(podName("198.18.0.1"), corev1.PodCondition{Type: gate, Status: corev1.ConditionFalse,
		Reason: elb.ReasonInitialHealthChecking, Message: "Initial health checks in progress"})
	w.removeIngress("app")
	w.condition(podName("198.18.0.1"), corev1.PodCondition{Type: gate, Status: corev1.ConditionTrue, Message: "Target Group Binding is deleted"})
	w.eventually("end of the binding", func() bool {
		b, _, _, ok := w.c.bindings.get(strings.TrimPrefix(string(gate), targetHealthPrefix))
		return !ok && b.name == ""
	})
}
