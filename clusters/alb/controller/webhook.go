package controller

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"lameduck/clusters/alb/certificate"
	"lameduck/clusters/alb/elb"
)

const (
	// injectLabel on a namespace asks for readiness gates (AWS Load Balancer
	// Controller guide, Pod readiness gate).
	injectLabel   = "elbv2.k8s.aws/pod-readiness-gate-inject"
	webhookPath   = "/mutate-v1-pod"
	webhookConfig = "lameduck-alb"
	managedBy     = "app.kubernetes.io/managed-by"
	// stopLimit bounds removing the webhook's configuration at the end.
	stopLimit = 3 * time.Second
)

// serveWebhook serves the webhook and tells the API server of it. stop undoes
// both.
func (c *Controller) serveWebhook(ctx context.Context) (stop func(), err error) {
	at := c.options.WebhookAddress
	if !at.IsValid() {
		return func() {}, nil
	}
	cert, err := certificate.SelfSigned(at.Addr())
	if err != nil {
		return nil, err
	}
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
	if err != nil {
		return nil, fmt.Errorf("listen for the webhook: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+webhookPath, c.admit)
	s := &http.Server{Handler: mux, ReadTimeout: 10 * time.Second, TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}}
	go func() { _ = s.ServeTLS(l, "", "") }() // ends with stop
	if err := c.configureWebhook(ctx, "https://"+l.Addr().String()+webhookPath, cert); err != nil && ctx.Err() == nil {
		return nil, errors.Join(err, s.Close())
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
		defer cancel()
		err := c.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(ctx, webhookConfig, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			fmt.Fprintf(c.options.Messages, "remove webhook configuration %s: %v\n", webhookConfig, err)
		}
		_ = s.Close()
	}, nil
}

// configureWebhook writes the configuration anew: an earlier process had another
// certificate. The failure policy is Ignore, as in the AWS controller's Helm
// chart: a webhook that is gone must not keep pods from being created.
func (c *Controller) configureWebhook(ctx context.Context, url string, cert tls.Certificate) error {
	ignore, none, timeout := admissionregv1.Ignore, admissionregv1.SideEffectClassNone, int32(5)
	config := &admissionregv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: webhookConfig, Labels: map[string]string{managedBy: "lameduck"}},
		Webhooks: []admissionregv1.MutatingWebhook{{
			Name: "mpod.elbv2.k8s.aws",
			ClientConfig: admissionregv1.WebhookClientConfig{
				URL: &url, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}),
			},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{injectLabel: "enabled"}},
			Rules: []admissionregv1.RuleWithOperations{{
				Operations: []admissionregv1.OperationType{admissionregv1.Create},
				Rule:       admissionregv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
			FailurePolicy: &ignore, SideEffects: &none, TimeoutSeconds: &timeout, AdmissionReviewVersions: []string{"v1"},
		}},
	}
	configs := c.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	if err := configs.Delete(ctx, webhookConfig, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("replace webhook configuration: %w", err)
	}
	if _, err := configs.Create(ctx, config, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("write webhook configuration: %w", err)
	}
	return nil
}

// admit answers one AdmissionReview.
func (c *Controller) admit(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 8<<20)).Decode(&review); err != nil || review.Request == nil {
		http.Error(w, "want an AdmissionReview with a request", http.StatusBadRequest)
		return
	}
	var pod corev1.Pod
	if err := json.Unmarshal(review.Request.Object.Raw, &pod); err != nil {
		http.Error(w, "want a pod: "+err.Error(), http.StatusBadRequest)
		return
	}
	answer := &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	if gates := c.gatesFor(review.Request.Namespace, &pod); len(gates) > 0 {
		patch, err := json.Marshal([]map[string]any{{"op": "add", "path": "/spec/readinessGates", "value": append(pod.Spec.ReadinessGates, gates...)}})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		kind := admissionv1.PatchTypeJSONPatch
		answer.Patch, answer.PatchType = patch, &kind
	}
	w.Header().Set("Content-Type", "application/json")
	// A client that has gone away is not told.
	_ = json.NewEncoder(w).Encode(admissionv1.AdmissionReview{TypeMeta: review.TypeMeta, Response: answer})
}

// gatesFor are the gates that a new pod gets: one for each binding in IP mode
// whose Service selects it. A pod keeps what it was created with.
func (c *Controller) gatesFor(namespace string, pod *corev1.Pod) []corev1.PodReadinessGate {
	c.mu.Lock()
	defer c.mu.Unlock()
	var gates []corev1.PodReadinessGate
	for _, b := range c.bindings {
		if b.group.Type != elb.TargetIP || b.ingress.Namespace != namespace || hasGate(pod, b.name) {
			continue
		}
		svc, err := c.services.Services(namespace).Get(b.service)
		if err != nil || len(svc.Spec.Selector) == 0 || !labels.SelectorFromSet(svc.Spec.Selector).Matches(labels.Set(pod.Labels)) {
			continue
		}
		gates = append(gates, corev1.PodReadinessGate{ConditionType: gateOf(b.name)})
	}
	return gates
}
