package controller

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"lameduck/clusters/alb/elb"
)

const group = "ns/app:80"

func TestNodeRules(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*corev1.Node)
		want bool
	}{
		"ready":           {func(*corev1.Node) {}, true},
		"not ready":       {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }, false},
		"unknown":         {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }, false},
		"no condition":    {func(n *corev1.Node) { n.Status.Conditions = nil }, false},
		"no address":      {func(n *corev1.Node) { n.Status.Addresses = nil }, false},
		"IPv6 only":       {func(n *corev1.Node) { n.Status.Addresses = n.Status.Addresses[:2] }, false},
		"excluding label": {func(n *corev1.Node) { n.Labels = map[string]string{excludeLabel: ""} }, false},
		"autoscaler":      {func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: autoscalerTaint}} }, false},
		"karpenter":       {func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: karpenterTaint}} }, false},
		"other taint":     {func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "other"}} }, true},
		"cordoned":        {func(n *corev1.Node) { n.Spec.Unschedulable = true }, true},
	} {
		n := node("a", "198.18.0.11")
		c.edit(n)
		if _, got := nodeAddress(n); got != c.want {
			t.Errorf("%s: target %v, want %v", name, got, c.want)
		}
	}
}

// TestInstanceModeFollowsNodes and the Service, not pods and endpoints.
func TestInstanceModeFollowsNodes(t *testing.T) {
	w := start(t, newFakeAPI(), Options{}, node("a", "198.18.0.11"), service("app"), annotated(ingress("app", 80), "target-node-labels", "role=web"))
	w.deployed("app")
	labelled := func(n *corev1.Node) *corev1.Node { n.Labels = map[string]string{"role": "web"}; return n }
	w.put(labelled(node("a", "198.18.0.11")))
	w.targets(group, "198.18.0.11:30080")
	w.put(labelled(node("b", "198.18.0.12")))
	w.put(node("c", "198.18.0.13")) // has not the label
	w.targets(group, "198.18.0.11:30080", "198.18.0.12:30080")

	w.put(pod(podName("198.18.0.1")))
	w.put(slice("s", ready("198.18.0.1")...))
	w.put(slice("s"))
	cordoned := labelled(node("b", "198.18.0.12"))
	cordoned.Spec.Unschedulable = true
	w.put(cordoned)

	tainted := labelled(node("a", "198.18.0.11"))
	tainted.Spec.Taints = []corev1.Taint{{Key: autoscalerTaint}}
	w.put(tainted)
	w.targets(group, "198.18.0.12:30080")
	if n := w.api.count("DeregisterTargets"); n != 1 {
		t.Errorf("%d deregistrations, want only that of the tainted node", n)
	}

	svc := service("app")
	svc.Spec.Ports[0].NodePort = 30099
	w.put(svc)
	w.targets(group, "198.18.0.12:30099")
	if err := w.client.CoreV1().Services("ns").Delete(context.Background(), "app", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("end of the group", func() bool { return w.api.count("DeleteTargetGroup") == 1 })
}

// TestIPModeFollowsEndpoints: ready ones only, on the port that the slice says.
func TestIPModeFollowsEndpoints(t *testing.T) {
	v6 := slice("v6", ready("fd00::2")...)
	v6.AddressType = discoveryv1.AddressTypeIPv6
	noPod := slice("manual", ready("198.18.0.9")...)
	noPod.Endpoints[0].TargetRef = nil
	other := slice("other", ready("198.18.0.8")...)
	other.Labels[discoveryv1.LabelServiceName] = "someone-else"
	w := start(t, newFakeAPI(), Options{}, node("a", "198.18.0.11"), service("app"), pod(podName("198.18.0.1")), v6, noPod, other,
		slice("s", endpoint{addr: "198.18.0.1", ready: true}, endpoint{addr: "198.18.0.2", terminating: true}), ipIngress("app", 80))
	w.targets(group, "198.18.0.1:8080")
	w.put(slice("s2", ready("198.18.0.3", "198.18.0.2")...))
	w.targets(group, "198.18.0.1:8080", "198.18.0.2:8080", "198.18.0.3:8080")
	// A terminating pod is not ready: it is deregistered right away, whatever
	// its preStop hook does.
	w.put(slice("s2", endpoint{addr: "198.18.0.3", terminating: true}, endpoint{addr: "198.18.0.2", ready: true}))
	w.targets(group, "198.18.0.1:8080", "198.18.0.2:8080")
	// A pod's port may be another one in another slice.
	moved := slice("s2", ready("198.18.0.2")...)
	moved.Ports[0].Port = ptr(int32(8888))
	w.put(moved)
	w.targets(group, "198.18.0.1:8080", "198.18.0.2:8888")

	if err := w.client.DiscoveryV1().EndpointSlices("ns").Delete(context.Background(), "s2", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.targets(group, "198.18.0.1:8080")
}

// TestThrottledTargets: while calls for targets are throttled a target that has
// gone stays registered; then it is deregistered without another change.
func TestThrottledTargets(t *testing.T) {
	api := newFakeAPI()
	w := start(t, api, Options{}, service("app"), slice("s", ready("198.18.0.1", "198.18.0.2")...), ipIngress("app", 80))
	w.targets(group, "198.18.0.1:8080", "198.18.0.2:8080")
	api.with(func() { api.fail["DeregisterTargets"] = elb.ErrThrottling })
	w.put(slice("s", ready("198.18.0.1")...))
	w.eventually("retries", func() bool { return api.count("DeregisterTargets") > maxAttempts })
	w.event("Warning", "ThrottlingException")
	w.targets(group, "198.18.0.1:8080", "198.18.0.2:8080")
	api.with(func() { delete(api.fail, "DeregisterTargets") })
	w.targets(group, "198.18.0.1:8080")
}

func TestDeregistersBeforeItRegisters(t *testing.T) {
	var before, after []string
	for i := range 250 {
		before = append(before, fmt.Sprintf("198.18.1.%d", i))
		after = append(after, fmt.Sprintf("198.18.2.%d", i))
	}
	api := newFakeAPI()
	api.quota = 250 // there is room only when the others have gone
	w := start(t, api, Options{}, service("app"), slice("s", ready(before...)...), ipIngress("app", 80))
	w.eventually("targets", func() bool { return len(api.registered(group)) == 250 })
	api.with(func() { api.calls = nil })
	w.put(slice("s", ready(after...)...))
	w.eventually("new targets", func() bool {
		return slices.Contains(api.registered(group), "198.18.2.249:8080") && len(api.registered(group)) == 250
	})
	var changes []string
	api.with(func() { changes = slices.Clone(api.calls) })
	want := []string{"DeregisterTargets ns/app:80 200", "DeregisterTargets ns/app:80 50", "RegisterTargets ns/app:80 200", "RegisterTargets ns/app:80 50"}
	if !slices.Equal(changes, want) {
		t.Errorf("calls %q, want %q", changes, want)
	}
}

// TestTooManyTargets: the other targets are kept in step, unless over-quota
// says that they grow stale.
func TestTooManyTargets(t *testing.T) {
	for quota, wantGone := range map[OverQuota]bool{OverQuotaRefuse: true, OverQuotaStale: false} {
		t.Run(string(quota), func(t *testing.T) {
			api := newFakeAPI()
			api.quota = 2
			w := start(t, api, Options{OverQuota: quota}, service("app"), slice("s", ready("198.18.0.1", "198.18.0.2")...), ipIngress("app", 80))
			w.targets(group, "198.18.0.1:8080", "198.18.0.2:8080")
			w.put(slice("s", ready("198.18.0.2", "198.18.0.3", "198.18.0.4")...))
			w.event("Warning FailedRegisterTargets", "TooManyTargets", group)
			w.eventually("retries", func() bool { return api.count("RegisterTargets") > 3 })
			if gone := !slices.Contains(api.registered(group), "198.18.0.1:8080"); gone != wantGone {
				t.Errorf("the old target is gone: %v, want %v", gone, wantGone)
			}
			if !slices.Contains(api.registered(group), "198.18.0.2:8080") {
				t.Error("a target that should stay is gone")
			}
			w.put(slice("s", ready("198.18.0.4")...))
			w.targets(group, "198.18.0.4:8080")
		})
	}
}

// TestDrainingAddress: a target that is draining counts as gone and is
// registered again as soon as that is allowed.
func TestDrainingAddress(t *testing.T) {
	api := newFakeAPI()
	api.drains = true
	w := start(t, api, Options{}, service("app"), slice("s", ready("198.18.0.1", "198.18.0.2")...), ipIngress("app", 80))
	w.targets(group, "198.18.0.1:8080", "198.18.0.2:8080")
	w.put(slice("s", ready("198.18.0.2")...))
	w.targets(group, "198.18.0.2:8080")
	w.put(slice("s", ready("198.18.0.1", "198.18.0.2")...))
	w.event("Warning FailedRegisterTargets", "InvalidTarget", "198.18.0.1:8080 is draining")
	w.eventually("retries", func() bool { return api.count("RegisterTargets") > 3 })
	if n := api.count("DeregisterTargets"); n != 1 {
		t.Errorf("%d deregistrations, want 1", n)
	}
	api.with(func() {
		for target, h := range api.targets[group] {
			if h.State == elb.StateDraining {
				delete(api.targets[group], target) // the delay is over
			}
		}
	})
	w.targets(group, "198.18.0.1:8080", "198.18.0.2:8080")
}

// TestControllerLag: a change of endpoints is not acted on before.
func TestControllerLag(t *testing.T) {
	const lag = 100 * time.Millisecond
	w := start(t, newFakeAPI(), Options{}, service("app"), pod(podName("198.18.0.1")), slice("s", ready("198.18.0.1")...),
		annotated(ipIngress("app", 80), overridePrefix+"controller-lag", lag.String()))
	w.targets(group, "198.18.0.1:8080")
	begin := time.Now()
	w.put(slice("s"))
	w.eventually("lag", func() bool {
		b := w.c.bindings.with(func(*binding) bool { return true })[0]
		_, _, held, _ := w.c.bindings.get(b.name)
		return held > 0
	})
	w.put(annotated(service("app"), "healthcheck-path", "/x")) // another reason to look at the group
	w.targets(group)
	if took := time.Since(begin); took < lag {
		t.Errorf("deregistered after %s, want no sooner than %s", took, lag)
	}
}

// TestModelDoesNotHoldUpBindings: endpoints are followed while a load balancer
// cannot be put.
func TestModelDoesNotHoldUpBindings(t *testing.T) {
	api := newFakeAPI()
	w := start(t, api, Options{}, service("app"), pod(podName("198.18.0.1")), slice("s", ready("198.18.0.1")...), ipIngress("app", 80))
	w.targets(group, "198.18.0.1:8080")
	release := make(chan struct{})
	held := make(chan struct{})
	blocking := &blockingAPI{fakeAPI: api, held: held, release: release}
	w.c.api.(*throttled).api = blocking
	w.put(ipIngress("app", 81))
	<-held
	w.put(slice("s", ready("198.18.0.2")...))
	w.targets(group, "198.18.0.2:8080")
	close(release)
}

type blockingAPI struct {
	*fakeAPI
	held, release chan struct{}
}

func (b *blockingAPI) PutLoadBalancer(ctx context.Context, lb elb.LoadBalancer) error {
	close(b.held)
	<-b.release
	return b.fakeAPI.PutLoadBalancer(ctx, lb)
}

// manyEndpoints are n pods in slices of 100, as the endpoint slice controller
// makes them.
func manyEndpoints(n int) (objects []runtime.Object, first *discoveryv1.EndpointSlice) {
	for i := 0; i < n; i += 100 {
		var addrs []string
		for j := range 100 {
			addr := fmt.Sprintf("198.18.%d.%d", i/100, j)
			addrs = append(addrs, addr)
			objects = append(objects, pod(podName(addr)))
		}
		s := slice(fmt.Sprintf("s%d", i), ready(addrs...)...)
		if first == nil {
			first = s
		}
		objects = append(objects, s)
	}
	return objects, first
}

// reaction is the time from the write of an EndpointSlice without its last
// endpoint to the call of DeregisterTargets.
func reaction(w *world, s *discoveryv1.EndpointSlice) (took time.Duration, removed string) {
	s = s.DeepCopy()
	last := len(s.Endpoints) - 1
	removed = s.Endpoints[last].Addresses[0]
	s.Endpoints[last].Conditions.Ready = ptr(false)
	s.Endpoints[last].Conditions.Terminating = ptr(true)
	calls := w.api.count("DeregisterTargets")
	for len(w.api.called) > 0 {
		<-w.api.called
	}
	begin := time.Now()
	w.put(s)
	for w.api.count("DeregisterTargets") == calls {
		<-w.api.called
	}
	return time.Since(begin), removed
}

// TestReaction: a target that leaves the EndpointSlices of a Service with 1,000
// is deregistered within 100 ms. It is the one promise in time that this
// package makes; three tries allow for a busy machine.
func TestReaction(t *testing.T) {
	objects, s := manyEndpoints(1000)
	w := start(t, newFakeAPI(), Options{}, append(objects, service("app"), ipIngress("app", 80))...)
	w.eventually("1000 targets", func() bool { return len(w.api.registered(group)) == 1000 })
	var best time.Duration
	for range 3 {
		took, removed := reaction(w, s)
		if best == 0 || took < best {
			best = took
		}
		if slices.Contains(w.api.registered(group), removed+":8080") {
			t.Errorf("%s is still registered", removed)
		}
		if best <= 100*time.Millisecond {
			break
		}
		w.put(s)
		w.eventually("1000 targets", func() bool { return len(w.api.registered(group)) == 1000 })
	}
	if best > 100*time.Millisecond {
		t.Errorf("deregistered after %s, want at most 100ms", best)
	}
	t.Logf("deregistered after %s", best)
}

// BenchmarkReaction reports the reaction time, the worst one too.
func BenchmarkReaction(b *testing.B) {
	objects, s := manyEndpoints(1000)
	w := start(b, newFakeAPI(), Options{}, append(objects, service("app"), ipIngress("app", 80))...)
	full := func() bool { return len(w.api.registered(group)) == 1000 }
	w.eventually("1000 targets", full)
	var worst time.Duration
	for b.Loop() {
		took, _ := reaction(w, s)
		worst = max(worst, took)
		b.StopTimer()
		w.put(s)
		w.eventually("1000 targets", full)
		b.StartTimer()
	}
	b.ReportMetric(float64(worst.Microseconds())/1000, "worst-ms")
}

// A pod with a gate whose node is ready only after its containers is registered
// without another change of endpoints.
func TestNodeThatIsReadyLate(t *testing.T) {
	late := node("a", "198.18.0.1")
	late.Status.Conditions[0].Status = corev1.ConditionFalse
	w := start(t, newFakeAPI(), Options{HealthInterval: 10 * time.Millisecond}, late, service("app"), ipIngress("web", 80))
	w.deployed("web")
	var gate corev1.PodConditionType
	for _, b := range w.c.bindings.with(func(*binding) bool { return true }) {
		gate = b.condition()
	}
	w.put(pod(podName("198.19.10.1"), gate))
	w.put(slice("s", endpoint{addr: "198.19.10.1"}))
	w.targets(group)
	w.put(node("a", "198.18.0.1"))
	w.targets(group, "198.19.10.1:8080")
}

// An address that comes back while it drains does not hold up a new one.
func TestDrainingAddressDoesNotHoldUpOthers(t *testing.T) {
	api := newFakeAPI()
	api.drains = true
	w := start(t, api, Options{}, node("a", "198.18.0.1"), service("app"), ipIngress("web", 80), slice("s", ready("198.19.10.1", "198.19.10.2")...))
	w.targets(group, "198.19.10.1:8080", "198.19.10.2:8080")
	w.put(slice("s", ready("198.19.10.2")...))
	w.targets(group, "198.19.10.2:8080")
	w.put(slice("s", ready("198.19.10.1", "198.19.10.2", "198.19.10.3")...))
	w.targets(group, "198.19.10.2:8080", "198.19.10.3:8080")
}
