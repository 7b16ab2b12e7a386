//go:build e2e

package kube

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lameduck/harness"
)

// A pod with all that an application can do about its own end, behind a load
// balancer that is told at once and has a short idle timeout.
func (v verbsOn) applicationStops(t *testing.T) {
	const idle, keepAlive, serveOn = 2 * time.Second, 4 * time.Second, 8 * time.Second
	d, rec := v.deploy(t, 41, func(s *harness.Setup) {
		s.Workload.Replicas = 2
		s.Workload.OnSIGTERM, s.Workload.SIGTERMWait = harness.SIGTERMWait, harness.Dur(serveOn)
		s.Workload.CloseWhileDraining, s.Workload.FailReadiness, s.Workload.KeepAlive = true, true, harness.Dur(keepAlive)
		s.LoadBalancer.TargetType, s.LoadBalancer.ReadinessGate, s.LoadBalancer.IdleTimeout = harness.TargetIP, true, harness.Dur(idle)
	})
	pod := d.pods()[0]
	t.Run("readiness gate", func(t *testing.T) {
		when := make(map[string]metav1.Time)
		for _, c := range pod.Status.Conditions {
			name, _, _ := strings.Cut(string(c.Type), "/")
			when[name] = c.LastTransitionTime
		}
		gate := when[strings.TrimSuffix(gatePrefix, "/")]
		ready, containers := when[string(corev1.PodReady)], when[string(corev1.ContainersReady)]
		if gate.IsZero() || ready.Before(&gate) || gate.Before(&containers) {
			t.Errorf("containers ready at %s, target healthy at %s, pod ready at %s: want this order", containers, gate, ready)
		}
	})
	t.Run("idle connections", func(t *testing.T) {
		if took := v.idleUntilClosed(t, d.Target().Nodes[0]); took < idle {
			t.Errorf("the load balancer closed an idle connection after %s, want %s", took, idle)
		} else if other := v.idleUntilClosed(t, podAddress(pod)); other < keepAlive || other < took {
			t.Errorf("the application closed an idle connection after %s, the load balancer after %s, want %s and %s", other, took, keepAlive, idle)
		}
	})
	t.Run("after SIGTERM", func(t *testing.T) {
		if a, r := v.get(t, podAddress(pod), "/"), v.get(t, podAddress(pod), "/healthz"); a.status != "200" || a.header["connection"] != "" || r.status != "200" {
			t.Errorf("before: %v, readiness %s, want 200 without Connection, and 200", a, r.status)
		}
		v.delete(t, pod)
		eventually(t, "readiness fails", func() bool { return v.get(t, podAddress(pod), "/healthz").status == "503" })
		if a := v.get(t, podAddress(pod), "/"); a.status != "200" || a.header["connection"] != "close" {
			t.Errorf("after SIGTERM: %v, want 200 with Connection: close", a)
		}
		eventually(t, "the endpoint terminates and does not serve", func() bool { return !v.serving(t, d, pod) })
		eventually(t, "the target drains", func() bool { return v.stateOf(t, d, pod) == "draining" })
		if n := v.sharePod(t, d, 6, pod.Name); n > 0 {
			t.Errorf("%d of 6 requests went to a pod whose target drains", n)
		}
		eventually(t, "the container exits", func() bool { _, ok := rec.firstOf(harness.EventContainerExited, pod.Name); return ok })
		if life, code := rec.lifeAfterDeletion(t, pod.Name); life < serveOn || code != "0" {
			t.Errorf("the application ended %s after its deletion with code %s, want %s and 0", life, code, serveOn)
		}
	})
	removeReal(t, v.world, d)
}

// calls are when targets were registered or deregistered, by their states: what
// one call did has the same time, but for moments.
func (v verbsOn) calls(t *testing.T, d *deployment) []time.Time {
	t.Helper()
	var calls []time.Time
	seen := make(map[string]bool)
	for _, c := range v.changes(t, d) {
		if (!seen[c.Target] || c.State == "draining") && (len(calls) == 0 || c.Time.Sub(calls[len(calls)-1]) > 100*time.Millisecond) {
			calls = append(calls, c.Time)
		}
		seen[c.Target] = true
	}
	return calls
}

// serving is the condition of a pod's endpoint; true if there is none.
func (v verbsOn) serving(t *testing.T, d *deployment, p *corev1.Pod) bool {
	t.Helper()
	list, err := v.world.client.DiscoveryV1().EndpointSlices(d.namespace).
		List(stepContext(t), metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + d.names.Service})
	if err != nil {
		t.Fatal(err)
	}
	for _, slice := range list.Items {
		for _, e := range slice.Endpoints {
			if e.TargetRef.Name == p.Name {
				return !*e.Conditions.Terminating || *e.Conditions.Serving
			}
		}
	}
	return true
}

// An application that ignores SIGTERM ends with its grace period; its target
// drains for the deregistration delay. The call that deregisters it and that
// which registers its successor are apart, as a throttled API allows.
func (v verbsOn) graceAndDelay(t *testing.T) {
	const grace, delay, every = 2 * time.Second, 5 * time.Second, 4 * time.Second
	d, rec := v.deploy(t, 42, func(s *harness.Setup) {
		s.Workload.Replicas, s.Workload.OnSIGTERM, s.Workload.GracePeriod = 2, harness.SIGTERMIgnore, harness.Dur(grace)
		s.LoadBalancer.TargetType, s.LoadBalancer.DeregistrationDelay = harness.TargetIP, harness.Dur(delay)
		s.Faults = []harness.Fault{{Kind: harness.FaultThrottledAPI, Every: harness.Dur(every)}}
	})
	live, err := d.Observe(stepContext(t))
	if diffs := harness.CheckLive(d.trial.Setup, live); err != nil || len(diffs) > 0 {
		t.Errorf("not live: %v, error %v", diffs, err)
	}
	pod := d.pods()[0]
	v.delete(t, pod)
	eventually(t, "the container exits", func() bool { _, ok := rec.firstOf(harness.EventContainerExited, pod.Name); return ok })
	if life, code := rec.lifeAfterDeletion(t, pod.Name); life < grace || code != "137" {
		t.Errorf("the application ended %s after its deletion with code %s, want %s and 137 (SIGKILL)", life, code, grace)
	}
	eventually(t, "the target is gone", func() bool { return v.stateOf(t, d, pod) == "unused" })
	var draining, unused time.Time
	for _, c := range v.changes(t, d) {
		switch {
		case c.Target != podAddress(pod):
		case c.State == "draining":
			draining = c.Time
		case c.State == "unused":
			unused = c.Time
		}
	}
	if draining.IsZero() || unused.Sub(draining) < delay {
		t.Errorf("the target drained from %s to %s, want %s", draining, unused, delay)
	}
	eventually(t, "the successor is registered", func() bool { return len(v.calls(t, d)) >= 3 })
	closest, calls := time.Duration(math.MaxInt64), v.calls(t, d)
	for i := 1; i < len(calls); i++ {
		closest = min(closest, calls[i].Sub(calls[i-1]))
	}
	t.Logf("%d calls for targets, the closest %s apart", len(calls), closest)
	if closest < every-100*time.Millisecond {
		t.Errorf("two calls for targets are %s apart, want %s", closest, every)
	}
	removeReal(t, v.world, d)
}

// lateDeregistration shows a load balancer that hears late of a pod's end: the
// API says that its target drains, and it gets requests.
func (v verbsOn) lateDeregistration(t *testing.T) {
	const lag = 4 * time.Second
	d, _ := v.deploy(t, 43, func(s *harness.Setup) {
		s.Workload.Replicas, s.Workload.OnSIGTERM, s.Workload.SIGTERMWait = 2, harness.SIGTERMWait, harness.Dur(12*time.Second)
		s.LoadBalancer.TargetType = harness.TargetIP
		s.Faults = []harness.Fault{{Kind: harness.FaultLateDeregistration, Lag: harness.DurationRange{Min: lag, Max: lag}}}
	})
	pod := d.pods()[0]
	v.delete(t, pod)
	eventually(t, "the target drains", func() bool { return v.stateOf(t, d, pod) == "draining" })
	if n := v.sharePod(t, d, 10, pod.Name); n == 0 {
		t.Error("a target that drains gets no requests, though the load balancer's nodes do not know it")
	}
	eventually(t, "the target gets no more requests", func() bool { return v.sharePod(t, d, 10, pod.Name) == 0 })
	if a := v.get(t, podAddress(pod), "/"); a.status != "200" {
		t.Errorf("the pod itself answers %v, want 200", a)
	}
	removeReal(t, v.world, d)
}

// lostDeregistration shows a load balancer that never hears of a pod's end,
// though it has heard of its successor.
func (v verbsOn) lostDeregistration(t *testing.T) {
	d, _ := v.deploy(t, 44, func(s *harness.Setup) {
		s.Workload.Replicas, s.Workload.OnSIGTERM, s.Workload.SIGTERMWait = 2, harness.SIGTERMWait, harness.Dur(12*time.Second)
		s.LoadBalancer.TargetType = harness.TargetIP
		s.Faults = []harness.Fault{{Kind: harness.FaultLostDeregistration}}
	})
	pod := d.pods()[0]
	v.delete(t, pod)
	eventually(t, "the successor is registered", func() bool {
		targets := make(map[string]bool)
		for _, c := range v.changes(t, d) {
			targets[c.Target] = true
		}
		return len(targets) == 3
	})
	if state := v.stateOf(t, d, pod); state != "healthy" {
		t.Errorf("the target of a pod that is to go is %s, want healthy: its deregistration is lost", state)
	}
	if n := v.sharePod(t, d, 12, pod.Name); n == 0 {
		t.Error("a pod that is to go gets no requests, though its deregistration is lost")
	}
	removeReal(t, v.world, d)
}

// nodeFaults breaks the node of a deployment's pod, by the name of the fault.
func (v verbsOn) nodeFaults(t *testing.T) {
	d, _ := v.deploy(t, 45, func(s *harness.Setup) { s.Workload.GracePeriod = harness.Dur(time.Second) })
	node, err := d.node()
	if err != nil {
		t.Fatal(err)
	}
	pod := d.on(node)[0]
	others := slices.DeleteFunc(d.pods(), func(p *corev1.Pod) bool { return p.Spec.NodeName == node })
	broken := func(f harness.Fault, during func()) {
		t.Helper()
		mend, err := d.Break(stepContext(t), f)
		if err != nil {
			t.Fatal(err)
		}
		during()
		if err := mend(stepContext(t)); err != nil {
			t.Error(err)
		}
	}
	broken(harness.Fault{Kind: harness.FaultLinkDown}, func() {
		if a, b := v.get(t, podAddress(pod), "/"), v.get(t, podAddress(others[0]), "/"); a.status != "" || b.status != "200" {
			t.Errorf("link of %s down: its pod answers %q, another %q, want nothing and 200", node, a.status, b.status)
		}
	})
	eventually(t, "the pod answers when the link is up", func() bool { return v.get(t, podAddress(pod), "/").status == "200" })
	broken(harness.Fault{Kind: harness.FaultPacketLoss, Share: 0.9}, func() {
		answered := 0
		for range 4 { // each within 2 s, in which a lost segment is sent again once or twice
			if v.get(t, podAddress(pod), "/").status == "200" {
				answered++
			}
		}
		if answered == 4 {
			t.Error("all requests are answered with 90 % of the packets lost")
		}
	})
	broken(harness.Fault{Kind: harness.FaultPausedKubelet}, func() {
		v.delete(t, pod)
		time.Sleep(3 * time.Second)
		if a := v.get(t, podAddress(pod), "/"); a.status != "200" {
			t.Errorf("kubelet paused: the pod answers %q 3s after it was deleted with 1s of grace, want 200", a.status)
		}
	})
	eventually(t, "the pod goes when the kubelet runs", func() bool {
		return !slices.ContainsFunc(d.pods(), func(p *corev1.Pod) bool { return p.UID == pod.UID })
	})
	removeReal(t, v.world, d)
}

// oneByOne checks that the HPA took its time, and one pod in each period.
func oneByOne(t *testing.T, rec *memory, stopped, stabilization, period time.Duration) {
	t.Helper()
	rec.mu.Lock()
	defer rec.mu.Unlock()
	last, steps := stopped, 0
	for _, e := range rec.events {
		from, _ := strconv.Atoi(e.Detail["from"])
		to, _ := strconv.Atoi(e.Detail["to"])
		if e.Kind != harness.EventReplicas || e.Object != "Deployment/"+appName || e.At < stopped || to < 2 {
			continue
		}
		least := period
		if steps == 0 {
			least = stabilization
		}
		// The HPA looks at its policies and its past once a second, and the watcher
		// sees the change a moment later.
		if from-to != 1 || e.At-last < least-1500*time.Millisecond {
			t.Errorf("the HPA went from %d to %d pods %s after what came before, want one less and %s", from, to, e.At-last, least)
		}
		last, steps = e.At, steps+1
	}
	if steps != 4 {
		t.Errorf("the HPA scaled in with %d steps, want 4", steps)
	}
}
