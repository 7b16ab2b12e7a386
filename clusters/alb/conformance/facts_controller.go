package conformance

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"lameduck/clusters/alb/controller"
	"lameduck/clusters/alb/elb"
)

func controllerFacts() []Fact {
	return []Fact{
		{"8-instance-default", 8, Source, controllerSource, "the default target type is instance, and the Service must have a nodePort", instanceByDefault},
		{"8-node-rules", 8, Source, controllerSource, "instance targets are the Ready nodes, without the excluding label and taints; cordon does not matter", nodeRules},
		{"8-instance-follows", 8, Source, controllerSource, "instance mode follows nodes and the Service", followsNodes},
		{"8-instance-ignores", 8, Source, controllerSource, "instance mode ignores endpoints: nothing is deregistered when a pod dies", ignoresEndpoints},
		{"8-ip-follows", 8, Source, controllerSource, "IP mode follows EndpointSlices, targets are pod addresses", followsEndpoints},
		{"8-terminating", 8, Source, controllerSource, "a terminating pod is deregistered right after its deletion starts", deregistersTerminating},
		{"8-deregister-first", 8, Source, controllerSource, "deregister first, then register", deregistersFirst},
		{"8-200-per-call", 8, Source, controllerSource, "up to 200 targets a call", targetsPerCall},
		{"7-own-rate", 7, Source, controllerSource, "the controller allows itself 4 calls a second for targets, and a burst of 20", ownRate},
		{"7-modify-rate", 7, Source, controllerSource, "and 3 a second for changes of load balancers and groups, with a burst of 20", modifyRate},
		{"5-controller-lag", 5, Unknown, notPublished, "how late the controller sees endpoints is a setting", controllerLag},
		{"8-weighted-action", 8, Source, controllerSource, "actions.<name> with a weighted forwardConfig", weightedAction},
		{"8-service-annotations", 8, Source, controllerSource, "a Service's annotations win over its Ingress's", serviceAnnotationsWin},
		{"8-wrong-change", 8, Source, controllerSource, "a wrong annotation keeps what was there before", wrongChangeKeepsOld},
		{"8-local-policy", 8, Source, controllerSource, "externalTrafficPolicy Local: all nodes are targets, checked at the traffic port", localPolicy},
		{"8-status", 8, Source, controllerSource, "the Ingress's status has the load balancer's address", ingressStatus},
		{"8-default-backend", 8, Source, controllerSource, "without a default backend the default action answers 404", defaultAction},
	}
}

func instanceByDefault(t *T) {
	w := newWorld(t, node("a", "198.18.0.11"), service("app"), ingress("app", nil))
	if g := w.group(t); g.Type != elb.TargetInstance {
		t.Errorf("target type %s, want instance", g.Type)
	}
	w.wantTargets("198.18.0.11:30080")
	plain := service("plain")
	plain.Spec.Type, plain.Spec.Ports[0].NodePort = corev1.ServiceTypeClusterIP, 0
	other := ingress("other", nil)
	other.Spec.Rules[0].HTTP.Paths[0].Backend = backend("plain")
	w.create(plain, other)
	w.event("Warning", "FailedBuildModel", "ClusterIP", "NodePort")
}

func nodeRules(t *T) {
	label := "node.kubernetes.io/exclude-from-external-load-balancers"
	taint := func(key string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoSchedule}} }
	}
	w := newWorld(t, node("base", "198.18.0.1"), service("app"), ingress("app", nil))
	w.wantTargets("198.18.0.1:30080")
	for i, c := range []struct {
		name string
		edit func(*corev1.Node)
		want bool
	}{
		{"ready", func(*corev1.Node) {}, true},
		{"not ready", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }, false},
		{"unknown", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }, false},
		{"excluding label", func(n *corev1.Node) { n.Labels = map[string]string{label: ""} }, false},
		{"cluster autoscaler", taint("ToBeDeletedByClusterAutoscaler"), false},
		{"karpenter", taint("karpenter.sh/disrupted"), false},
		{"another taint", taint("example.com/other"), true},
		{"cordoned", func(n *corev1.Node) { n.Spec.Unschedulable = true }, true},
	} {
		addr := fmt.Sprintf("198.18.1.%d", i+1)
		n := node(fmt.Sprintf("n%d", i), addr)
		c.edit(n)
		// Whether it is a target shows when the next node is one: they are looked
		// at together.
		next := node(fmt.Sprintf("z%d", i), fmt.Sprintf("198.18.2.%d", i+1))
		w.create(n, next)
		t.eventually("next node", func() bool { return slices.Contains(w.registered(), fmt.Sprintf("198.18.2.%d:30080", i+1)) })
		if got := slices.Contains(w.registered(), addr+":30080"); got != c.want {
			t.Errorf("%s: target %v, want %v", c.name, got, c.want)
		}
	}
}

func followsNodes(t *T) {
	w := newWorld(t, node("a", "198.18.0.11"), service("app"), ingress("app", nil))
	w.wantTargets("198.18.0.11:30080")
	w.create(node("b", "198.18.0.12"))
	w.wantTargets("198.18.0.11:30080", "198.18.0.12:30080")
	n := node("a", "198.18.0.11")
	n.Spec.Taints = []corev1.Taint{{Key: "ToBeDeletedByClusterAutoscaler"}}
	w.update(n)
	w.wantTargets("198.18.0.12:30080")
	svc := service("app")
	svc.Spec.Ports[0].NodePort = 30081
	w.update(svc)
	w.wantTargets("198.18.0.12:30081")
	t.must(w.client.CoreV1().Nodes().Delete(t.Context(), "b", metav1.DeleteOptions{}))
	w.wantTargets()
}

func ignoresEndpoints(t *T) {
	w := newWorld(t, node("a", "198.18.0.11"), service("app"), ingress("app", nil), pod(1), slice([]int{1}))
	w.wantTargets("198.18.0.11:30080")
	before := len(w.history())
	w.update(slice(nil))
	t.must(w.client.CoreV1().Pods("ns").Delete(t.Context(), "app-1", metav1.DeleteOptions{}))
	w.create(node("b", "198.18.0.12")) // an event that is acted on, after those that are not
	w.wantTargets("198.18.0.11:30080", "198.18.0.12:30080")
	for _, c := range w.history()[before:] {
		if c.name != "Register" || len(c.targets) != 1 {
			t.Errorf("%s of %v, want only the new node", c.name, c.targets)
		}
	}
}

// ipMode is an Ingress with IP targets.
var ipMode = annotated{"target-type": "ip"}

// ipWorld has pods 1..n behind an Ingress with IP targets, and waits for them.
func ipWorld(t *T, n int) *world {
	w := newWorld(t, node("a", "198.18.255.254"), service("app"), ingress("app", ipMode), slice(upTo(n)))
	w.wantTargets(podTargets(upTo(n))...)
	return w
}

func upTo(n int) []int {
	var all []int
	for i := range n {
		all = append(all, i+1)
	}
	return all
}

func podTargets(pods []int) []string {
	var all []string
	for _, n := range pods {
		all = append(all, podTarget(n))
	}
	slices.Sort(all)
	return all
}

func followsEndpoints(t *T) {
	w := ipWorld(t, 2)
	if g := w.group(t); g.Type != elb.TargetIP {
		t.Errorf("target type %s, want ip", g.Type)
	}
	w.update(slice([]int{2, 3}))
	w.wantTargets(podTargets([]int{2, 3})...)
	w.update(slice(nil))
	w.wantTargets()
}

func deregistersTerminating(t *T) {
	w := ipWorld(t, 2)
	yes, no := true, false
	w.update(slice([]int{1, 2}, func(n int, e *discoveryv1.Endpoint) {
		if n == 1 { // as the endpoint slice controller writes it during preStop
			e.Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &yes}
		}
	}))
	w.wantTargets(podTarget(2))
}

func deregistersFirst(t *T) {
	w := ipWorld(t, 2)
	before := len(w.history())
	w.update(slice([]int{2, 3}))
	w.wantTargets(podTargets([]int{2, 3})...)
	var order []string
	for _, c := range w.history()[before:] {
		order = append(order, c.name)
	}
	if !slices.Equal(order, []string{"Deregister", "Register"}) {
		t.Errorf("calls %v, want Deregister, Register", order)
	}
}

func targetsPerCall(t *T) {
	w := ipWorld(t, 450)
	w.update(slice(nil))
	w.wantTargets()
	var sizes []int
	for _, c := range w.history() {
		sizes = append(sizes, len(c.targets))
	}
	if !slices.Equal(sizes, []int{200, 200, 50, 200, 200, 50}) {
		t.Errorf("calls with %v targets, want 200, 200, 50 twice", sizes)
	}
}

func ownRate(t *T) {
	w := ipWorld(t, 1) // one call
	start := time.Now()
	for n := 2; n <= 22; n++ { // and one each
		w.update(slice(upTo(n)))
		w.wantTargets(podTargets(upTo(n))...)
	}
	// 20 at once, the other two with 250 ms between; what came back while the
	// calls were made is counted in.
	if d, calls := time.Since(start), len(w.history()); calls != 22 || d < 200*time.Millisecond {
		t.Errorf("%d calls in %s, want 22 in at least 250ms", calls, d)
	}
}

func modifyRate(t *T) {
	var objects []runtime.Object
	const n = 11 // each needs a group and a load balancer: 22 calls
	for i := range n {
		objects = append(objects, ingress(fmt.Sprintf("app-%d", i), nil))
	}
	start := time.Now()
	w := newWorld(t, append(objects, service("app"))...)
	t.eventually("load balancers", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.lbs) == n
	})
	if d := time.Since(start); d < 600*time.Millisecond { // two of them wait 333 ms each
		t.Errorf("22 calls in %s, want at least 666ms", d)
	}
}

func controllerLag(t *T) {
	const lag = 100 * time.Millisecond
	w := newWorldWith(t, controller.Options{ControllerLag: elb.Range{Min: lag, Max: lag}}, service("app"), ingress("app", ipMode), slice([]int{1}))
	w.wantTargets(podTarget(1))
	time.Sleep(2 * lag) // what the start has left behind is over
	start := time.Now()
	w.update(slice([]int{2}))
	w.wantTargets(podTarget(2))
	if d := time.Since(start); d < lag {
		t.Errorf("acted on after %s, want not before %s", d, lag)
	}
}

func weightedAction(t *T) {
	ing := ingress("app", annotated{"actions.split": `{"type":"forward","forwardConfig":{"targetGroups":[
		{"serviceName":"blue","servicePort":80,"weight":90},{"serviceName":"green","servicePort":"http","weight":10}],
		"targetGroupStickinessConfig":{"enabled":true,"durationSeconds":120}}}`})
	b := &ing.Spec.Rules[0].HTTP.Paths[0].Backend.Service
	(*b).Name = "split"
	(*b).Port.Number, (*b).Port.Name = 0, "use-annotation"
	w := newWorld(t, node("a", "198.18.0.11"), service("blue"), service("green"), ing)
	lb := w.loadBalancer(t)
	if len(lb.Rules) != 1 || len(lb.Rules[0].Action.Forward) != 2 {
		t.Fatalf("rules %+v, want one that forwards to two groups", lb.Rules)
	}
	a := lb.Rules[0].Action
	if a.Forward[0].Weight != 90 || a.Forward[1].Weight != 10 || a.Forward[0].Group == a.Forward[1].Group || a.Sticky != 2*time.Minute {
		t.Errorf("action %+v, want weights 90 and 10, sticky for 2m", a)
	}
}

func serviceAnnotationsWin(t *T) {
	svc := service("app")
	svc.Annotations = map[string]string{prefix + "target-group-attributes": "deregistration_delay.timeout_seconds=2"}
	w := newWorld(t, node("a", "198.18.0.11"), svc, ingress("app", annotated{"target-group-attributes": "deregistration_delay.timeout_seconds=1"}))
	if g := w.group(t); g.DeregistrationDelay != 2*time.Second {
		t.Errorf("deregistration delay %s, want the Service's 2s", g.DeregistrationDelay)
	}
}

func wrongChangeKeepsOld(t *T) {
	w := newWorld(t, node("a", "198.18.0.11"), service("app"), ingress("app", annotated{"load-balancer-attributes": "idle_timeout.timeout_seconds=30"}))
	w.settle()
	w.update(ingress("app", annotated{"load-balancer-attributes": "idle_timeout.timeout_seconds=0"}))
	w.event("Warning", "FailedBuildModel", "load-balancer-attributes", "idle_timeout.timeout_seconds")
	if lb := w.loadBalancer(t); lb.IdleTimeout != 30*time.Second {
		t.Errorf("idle timeout %s, want 30s", lb.IdleTimeout)
	}
	w.wantTargets("198.18.0.11:30080")
}

func localPolicy(t *T) {
	svc := service("app")
	svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	w := newWorld(t, node("a", "198.18.0.11"), node("b", "198.18.0.12"), svc, ingress("app", nil), slice([]int{1}))
	w.wantTargets("198.18.0.11:30080", "198.18.0.12:30080")
	if g := w.group(t); g.HealthCheck.Port != 0 {
		t.Errorf("checks go to port %d, want the traffic port", g.HealthCheck.Port)
	}
}

func ingressStatus(t *T) {
	w := newWorld(t, node("a", "198.18.0.11"), service("app"), ingress("app", nil))
	w.settle()
}

func defaultAction(t *T) {
	w := newWorld(t, node("a", "198.18.0.11"), service("app"), service("fallback"), ingress("app", nil))
	lb := w.loadBalancer(t)
	if a := lb.Default; a.Forward != nil || a.Redirect != nil || (a.Fixed != nil && a.Fixed.Status != 404) {
		t.Errorf("default action %+v, want 404", a)
	}
	w.settle()
	ing := ingress("app", nil)
	fallback := backend("fallback")
	ing.Spec.DefaultBackend = &fallback
	w.update(ing)
	t.eventually("default backend", func() bool { return len(w.loadBalancer(t).Default.Forward) == 1 })
}
