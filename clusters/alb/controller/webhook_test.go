package controller

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
)

// review is what the API server asks about a pod.
func review(t *testing.T, operation admissionv1.Operation, p *corev1.Pod) []byte {
	t.Helper()
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "1", Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Namespace: "ns", Operation: operation, Object: runtime.RawExtension{Raw: raw},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// injected are the gates of a pod after its review, nil if it is left alone.
func injected(t *testing.T, body []byte) []corev1.PodReadinessGate {
	t.Helper()
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &answer); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	if answer.APIVersion != "admission.k8s.io/v1" || answer.Kind != "AdmissionReview" || answer.Response.UID != "1" || !answer.Response.Allowed {
		t.Errorf("answer %s", body)
	}
	if answer.Response.Patch == nil {
		return nil
	}
	var patch []struct {
		Op, Path string
		Value    []corev1.PodReadinessGate
	}
	if err := json.Unmarshal(answer.Response.Patch, &patch); err != nil {
		t.Fatal(err)
	}
	if len(patch) != 1 || patch[0].Op != "add" || patch[0].Path != "/spec/readinessGates" || *answer.Response.PatchType != admissionv1.PatchTypeJSONPatch {
		t.Errorf("patch %s", answer.Response.Patch)
	}
	return patch[0].Value
}

func configuration(w *world) (*admissionregistrationv1.MutatingWebhookConfiguration, error) {
	return w.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(w.t.Context(), webhookConfiguration, metav1.GetOptions{})
}

// TestWebhookOverTLS calls the webhook the way the API server does: with what
// the configuration says.
func TestWebhookOverTLS(t *testing.T) {
	w := start(t, newFakeAPI(), Options{Webhook: &WebhookOptions{Listen: netip.MustParseAddrPort("127.0.0.1:0")}}, service("app"), ipIngress("app", 80))
	gate := w.gateOf()
	config, err := configuration(w)
	if err != nil {
		t.Fatal(err)
	}
	hook := config.Webhooks[0]
	if config.Labels[managedByLabel] != managedBy || *hook.FailurePolicy != admissionregistrationv1.Ignore || len(hook.AdmissionReviewVersions) != 1 ||
		hook.NamespaceSelector.MatchExpressions[0].Key != "elbv2.k8s.aws/pod-readiness-gate-inject" ||
		!reflect.DeepEqual(hook.Rules[0].Operations, []admissionregistrationv1.OperationType{admissionregistrationv1.Create}) {
		t.Errorf("configuration %+v", config)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(hook.ClientConfig.CABundle) {
		t.Fatal("no CA in the configuration")
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	defer client.CloseIdleConnections()
	resp, err := client.Post(*hook.ClientConfig.URL, "application/json", bytes.NewReader(review(t, admissionv1.Create, pod("p"))))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(resp.Body); err != nil {
		t.Fatal(err)
	}
	if got, want := injected(t, body.Bytes()), []corev1.PodReadinessGate{{ConditionType: gate}}; !reflect.DeepEqual(got, want) {
		t.Errorf("gates %v, want %v", got, want)
	}

	w.stop()
	if _, err := configuration(w); !apierrors.IsNotFound(err) {
		t.Errorf("configuration after the end: %v", err)
	}
	if resp, err := client.Post(*hook.ClientConfig.URL, "application/json", nil); err == nil {
		resp.Body.Close()
		t.Error("it listens after the end")
	}
}

func TestInjection(t *testing.T) {
	elsewhere := service("instance")
	elsewhere.Spec.Selector = map[string]string{"app": "app"}
	ing := ipIngress("app", 80)
	ing.Spec.DefaultBackend = ptr(backend("instance"))
	annotated(elsewhere, "target-type", "instance")
	noSelector := service("none")
	noSelector.Spec.Selector = nil
	other := ipIngress("other", 81)
	other.Spec.Rules[0].HTTP.Paths[0].Backend = backend("none")
	w := start(t, newFakeAPI(), Options{}, service("app"), elsewhere, noSelector, ing, other)
	w.deployed("app")
	w.deployed("other")
	gate := w.gateOf()
	ask := func(operation admissionv1.Operation, p *corev1.Pod) []corev1.PodReadinessGate {
		t.Helper()
		answer := httptest.NewRecorder()
		w.c.Webhook().ServeHTTP(answer, httptest.NewRequest(http.MethodPost, webhookPath, bytes.NewReader(review(t, operation, p))))
		return injected(t, answer.Body.Bytes())
	}
	gates := func(types ...corev1.PodConditionType) (all []corev1.PodReadinessGate) {
		for _, c := range types {
			all = append(all, corev1.PodReadinessGate{ConditionType: c})
		}
		return all
	}
	unselected := pod("p")
	unselected.Labels = map[string]string{"app": "other"}
	for name, c := range map[string]struct {
		operation admissionv1.Operation
		pod       *corev1.Pod
		want      []corev1.PodReadinessGate
	}{
		"created":                {admissionv1.Create, pod("p"), gates(gate)},
		"has others":             {admissionv1.Create, pod("p", "example.com/x"), gates("example.com/x", gate)},
		"has it":                 {admissionv1.Create, pod("p", gate), nil},
		"has a legacy one":       {admissionv1.Create, pod("p", legacyGatePrefix+"/x"), gates(gate)},
		"updated":                {admissionv1.Update, pod("p"), nil},
		"not one of a Service's": {admissionv1.Create, unselected, nil},
	} {
		if got := ask(c.operation, c.pod); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: gates %v, want %v", name, got, c.want)
		}
	}
}

func TestWebhookBadRequests(t *testing.T) {
	i := &injector{bindings: newBindingSet()}
	for _, body := range []string{"", "{", "{}", `{"request":null}`, strings.Repeat("x", maxReview+1)} {
		answer := httptest.NewRecorder()
		i.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, webhookPath, strings.NewReader(body)))
		if answer.Code != http.StatusBadRequest {
			t.Errorf("%.10q: status %d, want 400", body, answer.Code)
		}
	}
	broken := &admissionv1.AdmissionRequest{Operation: admissionv1.Create, Kind: metav1.GroupVersionKind{Kind: "Pod"}, Object: runtime.RawExtension{Raw: []byte("[]")}}
	if r := i.admit(broken); r.Allowed || r.Result == nil || !strings.Contains(r.Result.Message, "read the pod") {
		t.Errorf("answer %+v", r)
	}
}

// TestWebhookConfigurationLeftBehind: one of an earlier process is taken over,
// another's is not.
func TestWebhookConfigurationLeftBehind(t *testing.T) {
	old := mutatingWebhook(admissionregistrationv1.WebhookClientConfig{URL: ptr("https://127.0.0.1:1/"), CABundle: []byte("old")})
	o := Options{Webhook: &WebhookOptions{Listen: netip.MustParseAddrPort("127.0.0.1:0"), Service: &WebhookService{Namespace: "kube-system", Name: "alb"}}}
	w := start(t, newFakeAPI(), o, old)
	config, err := configuration(w)
	if err != nil {
		t.Fatal(err)
	}
	if c := config.Webhooks[0].ClientConfig; c.URL != nil || c.Service.Name != "alb" || *c.Service.Port != 443 || *c.Service.Path != webhookPath || bytes.Equal(c.CABundle, []byte("old")) {
		t.Errorf("client configuration %+v", c)
	}

	foreign := mutatingWebhook(old.Webhooks[0].ClientConfig)
	foreign.Labels = nil
	o.Addresses = []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	client := fake.NewClientset(foreign)
	c, err := New(client, record.NewFakeRecorder(1), newFakeAPI(), o)
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, c.Run(t.Context()), "it is not ours")
	if _, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(t.Context(), webhookConfiguration, metav1.GetOptions{}); err != nil {
		t.Errorf("the foreign configuration: %v", err)
	}
}
