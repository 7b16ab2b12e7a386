package conformance

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"net/http"
	"net/netip"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"lameduck/clusters/alb/controller"
	"lameduck/clusters/alb/elb"
)

func gateFacts() []Fact {
	return []Fact{
		{"8-gate-injected", 8, Source, controllerSource, "readiness gate: added when a pod is created, in namespaces with the label, in IP mode only", gateInjected},
		{"8-gate-condition", 8, Source, controllerSource, "readiness gate: its condition is true only when the target is healthy", gateCondition},
		{"8-gate-registers", 8, Source, controllerSource, "readiness gate: a pod that waits only for its gate is registered", gateRegisters},
	}
}

// gatePrefix is in front of the binding's name in a readiness gate.
const gatePrefix = "target-health.elbv2.k8s.aws/"

// webhookWorld serves the webhook, and waits until it is configured.
func webhookWorld(t *T, a annotated) (*world, admissionregv1.MutatingWebhook) {
	at := netip.MustParseAddrPort("127.0.0.1:0")
	w := newWorldWith(t, controller.Options{Webhook: &controller.WebhookOptions{Listen: at}, HealthInterval: 10 * time.Millisecond}, node("a", "198.18.0.11"), service("app"), ingress("app", a), slice(nil))
	w.group(t)
	var hooks []admissionregv1.MutatingWebhook
	t.eventually("webhook configuration", func() bool {
		all, err := w.client.AdmissionregistrationV1().MutatingWebhookConfigurations().List(t.Context(), metav1.ListOptions{})
		t.must(err)
		if len(all.Items) > 0 {
			hooks = all.Items[0].Webhooks
		}
		return len(hooks) == 1
	})
	return w, hooks[0]
}

// admit sends a pod through the webhook and returns the gates it gets.
func (w *world) admit(hook admissionregv1.MutatingWebhook, p *corev1.Pod) []corev1.PodReadinessGate {
	t := w.t
	raw, err := json.Marshal(p)
	t.must(err)
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request:  &admissionv1.AdmissionRequest{UID: "1", Namespace: "ns", Operation: admissionv1.Create, Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Object: runtime.RawExtension{Raw: raw}},
	})
	t.must(err)
	client := newClient(t, false)
	client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: pool(t, hook.ClientConfig.CABundle)}
	req := newRequest(t, http.MethodPost, *hook.ClientConfig.URL, bytes.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	a := do(t, client, req)
	var review admissionv1.AdmissionReview
	t.must(json.Unmarshal([]byte(a.body), &review))
	if a.status != http.StatusOK || review.Response == nil || !review.Response.Allowed || review.Response.UID != "1" {
		t.Fatalf("status %d, answer %s", a.status, a.body)
	}
	if len(review.Response.Patch) == 0 {
		return nil
	}
	var patch []struct {
		Path  string
		Value []corev1.PodReadinessGate
	}
	t.must(json.Unmarshal(review.Response.Patch, &patch))
	if len(patch) != 1 || !strings.HasPrefix(patch[0].Path, "/spec/readinessGates") {
		t.Fatalf("patch %s", review.Response.Patch)
	}
	return patch[0].Value
}

func gateInjected(t *T) {
	w, hook := webhookWorld(t, ipMode)
	selector, err := metav1.LabelSelectorAsSelector(hook.NamespaceSelector)
	t.must(err)
	const inject = "elbv2.k8s.aws/pod-readiness-gate-inject"
	if !selector.Matches(labels.Set{inject: "enabled"}) || selector.Matches(labels.Set{inject: "disabled"}) || selector.Matches(labels.Set{}) {
		t.Errorf("namespace selector %v", hook.NamespaceSelector)
	}
	if r := hook.Rules; len(r) != 1 || len(r[0].Operations) != 1 || r[0].Operations[0] != admissionregv1.Create || r[0].Resources[0] != "pods" {
		t.Errorf("rules %+v, want the creation of pods", hook.Rules)
	}
	if gates := w.admit(hook, pod(1)); len(gates) != 1 || !strings.HasPrefix(string(gates[0].ConditionType), gatePrefix) {
		t.Errorf("gates %v, want one with %s", gates, gatePrefix)
	}
	other := pod(1)
	other.Labels = map[string]string{"app": "other"}
	if gates := w.admit(hook, other); len(gates) != 0 {
		t.Errorf("a pod of another Service gets %v", gates)
	}
	w, hook = webhookWorld(t, nil)
	if gates := w.admit(hook, pod(1)); len(gates) != 0 {
		t.Errorf("in instance mode a pod gets %v", gates)
	}
}

// gated is a world with a pod that waits for its gate only, and the gate.
func gated(t *T) (*world, corev1.PodConditionType) {
	w, hook := webhookWorld(t, ipMode)
	w.become(elb.StateInitial)
	gates := w.admit(hook, pod(1))
	if len(gates) != 1 {
		t.Fatalf("gates %v, want one", gates)
	}
	p := pod(1, gates[0].ConditionType)
	w.create(p)
	w.update(unready())
	return w, gates[0].ConditionType
}

// unready is the EndpointSlice of gated.
func unready() *discoveryv1.EndpointSlice {
	no, yes := false, true
	return slice([]int{1}, func(_ int, e *discoveryv1.Endpoint) {
		e.Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &no}
	})
}

func gateRegisters(t *T) {
	w, _ := gated(t)
	w.wantTargets(podTarget(1))
}

func gateCondition(t *T) {
	w, gate := gated(t)
	w.wantTargets(podTarget(1))
	for _, step := range []struct {
		state elb.State
		want  corev1.ConditionStatus
	}{{elb.StateInitial, corev1.ConditionFalse}, {elb.StateHealthy, corev1.ConditionTrue}, {elb.StateUnhealthy, corev1.ConditionFalse}} {
		w.become(step.state)
		if step.state == elb.StateUnhealthy {
			w.update(unready()) // no pod waits: the controller looks only after a change
		}
		t.eventually(string(step.state)+": condition "+string(step.want), func() bool {
			p, err := w.client.CoreV1().Pods("ns").Get(t.Context(), "app-1", metav1.GetOptions{})
			t.must(err)
			for _, c := range p.Status.Conditions {
				if c.Type == gate {
					return c.Status == step.want
				}
			}
			return false
		})
	}
}
