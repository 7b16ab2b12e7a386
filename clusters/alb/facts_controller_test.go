package alb

import (
	"net/http"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func controllerFacts() []fact {
	return []fact{
		{"8", gradeSource, controllerSource, "instance targets are the Ready nodes, without the excluding label and taints; cordon does not matter", nodeRules},
		{"8", gradeSource, controllerSource, "instance mode follows nodes and the Service, not pods and endpoints", followsNodes},
		{"8", gradeSource, controllerSource, "the default target type is instance, and the Service must have a nodePort", instanceByDefault},
		{"8", gradeSource, controllerSource, "a Service's annotations win over its Ingress's", serviceAnnotationsWin},
		{"8", gradeSource, controllerSource, "a wrong annotation keeps what was there before", wrongChangeKeepsOld},
		{"8", gradeInferred, controllerSource, "the port listens before the status tells of it", listensBeforeStatus},
	}
}

func nodeRules(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*corev1.Node)
		want bool
	}{
		"ready":           {func(*corev1.Node) {}, true},
		"not ready":       {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }, false},
		"unknown":         {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }, false},
		"no condition":    {func(n *corev1.Node) { n.Status.Conditions = nil }, false},
		"no address":      {func(n *corev1.Node) { n.Status.Addresses = nil }, false},
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
	got := instanceTargets([]*corev1.Node{node("b", "198.18.0.12"), node("a", "198.18.0.11")}, 30080)
	if want := []string{"198.18.0.11:30080", "198.18.0.12:30080"}; !slices.Equal(got, want) {
		t.Errorf("targets %v, want %v", got, want)
	}
}

func followsNodes(t *testing.T) {
	w := newWorld(t, node("a", "127.0.0.1"), service("app"), ingress("app", freePort(t)))
	key := w.key("app")
	w.address("app")
	target := func(want ...string) {
		t.Helper()
		eventually(t, "targets", func() bool {
			var got []string
			for _, t := range *w.c.groupOf(key, "ns/app:80").serving.Load() {
				got = append(got, t.addr)
			}
			return slices.Equal(got, want)
		})
	}
	target("127.0.0.1:30080")

	w.create(node("b", "127.0.0.2"))
	target("127.0.0.1:30080", "127.0.0.2:30080")

	n := node("a", "127.0.0.1")
	n.Spec.Taints = []corev1.Taint{{Key: autoscalerTaint}}
	w.update(n)
	target("127.0.0.2:30080")

	svc := service("app")
	svc.Spec.Ports[0].NodePort = 30081
	w.update(svc)
	target("127.0.0.2:30081")

	if err := w.client.CoreV1().Nodes().Delete(t.Context(), "b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	target()
	if status := w.get("app"); status != http.StatusServiceUnavailable {
		t.Errorf("no node: status %d, want 503", status)
	}
}

func instanceByDefault(t *testing.T) {
	svc := service("app")
	svc.Spec.Type = corev1.ServiceTypeClusterIP
	_, _, err := buildModel(ingress("app", 80), stateOf(svc))
	wantError(t, err, "service ns/app is of type ClusterIP: want NodePort or LoadBalancer with target-type instance")
	m, _, err := buildModel(ingress("app", 80), stateOf(service("app")))
	if err != nil || len(m.groups["ns/app:80"].targets) != 1 {
		t.Errorf("%+v, %v", m.groups, err)
	}
}

func serviceAnnotationsWin(t *testing.T) {
	ing, svc := ingress("app", 80), service("app")
	ing.Annotations[annotationPrefix+"target-group-attributes"] = "deregistration_delay.timeout_seconds=1"
	svc.Annotations = map[string]string{annotationPrefix + "target-group-attributes": "deregistration_delay.timeout_seconds=2"}
	m, _, err := buildModel(ing, stateOf(svc))
	if err != nil || m.groups["ns/app:80"].deregistrationDelay.Seconds() != 2 {
		t.Errorf("%+v, %v", m.groups, err)
	}
}

func wrongChangeKeepsOld(t *testing.T) {
	port := freePort(t)
	w := newWorld(t, node("a", "127.0.0.1"), service("app"), ingress("app", port))
	addr := w.address("app")
	bad := ingress("app", port)
	bad.Annotations[annotationPrefix+"load-balancer-attributes"] = "idle_timeout.timeout_seconds=0"
	w.update(bad)
	w.event("FailedBuildModel")
	resp, err := http.Get("http://" + addr)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusBadGateway { // nothing listens on the nodePort
		t.Errorf("status %d, want 502", resp.StatusCode)
	}
}

func listensBeforeStatus(t *testing.T) {
	w := newWorld(t, node("a", "127.0.0.1"), service("app"), ingress("app", freePort(t)))
	w.address("app") // connects as soon as there is one
	w.get("app")
}
