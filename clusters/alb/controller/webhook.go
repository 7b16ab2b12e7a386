package controller

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"lameduck/clusters/alb/elb"
)

// legacyGatePrefix is that of the first generation of the controller; its gates
// would never be set, so they are taken off (controller,
// pkg/inject/pod_readiness/pod_readiness_gate.go).
const legacyGatePrefix = "target-health.alb.ingress.k8s.aws"

// maxReview is more than any AdmissionReview has: the API server limits
// requests to 3 MiB, and a review has an object once when it is created.
const maxReview = 8 << 20

// injector adds readiness gates to pods that are being created.
type injector struct {
	bindings *bindingSet
	service  func(namespace, name string) *corev1.Service
}

// ServeHTTP answers an AdmissionReview of admission.k8s.io/v1.
func (i *injector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxReview))
	if err == nil {
		err = json.Unmarshal(body, &review)
	}
	if err != nil || review.Request == nil {
		http.Error(w, "want an AdmissionReview with a request", http.StatusBadRequest)
		return
	}
	answer := admissionv1.AdmissionReview{TypeMeta: review.TypeMeta, Response: i.admit(review.Request)}
	answer.Response.UID = review.Request.UID
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // the API server has hung up: nothing to tell it
}

// admit allows every pod. Where it cannot tell what to do it says so: the
// failure policy decides.
func (i *injector) admit(req *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	allowed := &admissionv1.AdmissionResponse{Allowed: true}
	if req.Operation != admissionv1.Create || req.Kind.Kind != "Pod" {
		return allowed // gates cannot be added later
	}
	var pod corev1.Pod
	if err := json.Unmarshal(req.Object.Raw, &pod); err != nil {
		return refusal(fmt.Errorf("read the pod: %w", err))
	}
	// The pod itself need not have its namespace yet.
	gates, changed := i.gates(req.Namespace, &pod)
	if !changed {
		return allowed
	}
	// "add" replaces what is there (RFC 6902, 4.1).
	patch, err := json.Marshal([]map[string]any{{"op": "add", "path": "/spec/readinessGates", "value": gates}})
	if err != nil {
		return refusal(fmt.Errorf("make patch: %w", err))
	}
	kind := admissionv1.PatchTypeJSONPatch
	allowed.Patch, allowed.PatchType = patch, &kind
	return allowed
}

func refusal(err error) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Result: &metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}}
}

// gates are those that a pod should have: one for every binding in IP mode
// whose Service selects it.
func (i *injector) gates(namespace string, pod *corev1.Pod) (gates []corev1.PodReadinessGate, changed bool) {
	var wanted []corev1.PodConditionType
	for _, b := range i.bindings.with(func(b *binding) bool { return b.namespace == namespace && b.targetType == elb.TargetIP }) {
		svc := i.service(namespace, b.service)
		if svc == nil || len(svc.Spec.Selector) == 0 {
			continue
		}
		if labels.SelectorFromSet(svc.Spec.Selector).Matches(labels.Set(pod.Labels)) {
			wanted = append(wanted, b.condition())
		}
	}
	if len(wanted) == 0 {
		return nil, false
	}
	slices.Sort(wanted)
	gates = slices.DeleteFunc(slices.Clone(pod.Spec.ReadinessGates), func(g corev1.PodReadinessGate) bool {
		return strings.HasPrefix(string(g.ConditionType), legacyGatePrefix)
	})
	changed = len(gates) != len(pod.Spec.ReadinessGates)
	for _, condition := range wanted {
		if !slices.ContainsFunc(gates, func(g corev1.PodReadinessGate) bool { return g.ConditionType == condition }) {
			gates = append(gates, corev1.PodReadinessGate{ConditionType: condition})
			changed = true
		}
	}
	return gates, changed
}
