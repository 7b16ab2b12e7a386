package controller

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lameduck/clusters/alb/certificate"
)

// WebhookOptions say where the admission webhook is served and how the API
// server reaches it.
type WebhookOptions struct {
	// Listen is the address and port to listen on. Port 0: any free one, which
	// needs Service to be nil.
	Listen netip.AddrPort
	// Host is what the API server calls, a name or an address. "": Listen's
	// address. Not used with Service.
	Host string
	// Service that leads here, for the load balancer as a pod; nil: the API
	// server calls the address directly.
	Service *WebhookService
}

// WebhookService is a Service of the cluster.
type WebhookService struct {
	Namespace, Name string
	Port            int32 // 0: 443
}

const (
	webhookConfiguration = "lameduck-alb"
	// webhookName and webhookPath are the original's.
	webhookName = "mpod.elbv2.k8s.aws"
	webhookPath = "/mutate-v1-pod"
	// injectLabel of a namespace asks for readiness gates.
	injectLabel = "elbv2.k8s.aws/pod-readiness-gate-inject"

	managedByLabel = "app.kubernetes.io/managed-by"
	managedBy      = "lameduck"

	// webhookTimeout is the longest that the creation of a pod waits, 10 s as
	// in the original's chart.
	webhookTimeout = 10
	closeTimeout   = 5 * time.Second
)

func (o *WebhookOptions) check() error {
	switch {
	case !o.Listen.IsValid():
		return errors.New("webhook: listen is empty: want an IP address and port")
	case o.Service == nil && o.Host == "" && o.Listen.Addr().IsUnspecified():
		return fmt.Errorf("webhook: listen is %s, which nobody can call: want host or service to be set too", o.Listen)
	case o.Service != nil && (o.Service.Namespace == "" || o.Service.Name == ""):
		return fmt.Errorf("webhook: service is %s/%s: want a namespace and a name", o.Service.Namespace, o.Service.Name)
	}
	return nil
}

// names are those by which the API server knows the server.
func (o *WebhookOptions) names() []string {
	switch {
	case o.Service != nil:
		return []string{o.Service.Name + "." + o.Service.Namespace + ".svc"}
	case o.Host != "":
		return []string{o.Host}
	}
	return []string{o.Listen.Addr().String()}
}

// clientConfig tells the API server how to reach the server.
func (o *WebhookOptions) clientConfig(port int, ca []byte) admissionregistrationv1.WebhookClientConfig {
	c := admissionregistrationv1.WebhookClientConfig{CABundle: ca}
	if s := o.Service; s != nil {
		path, servicePort := webhookPath, s.Port
		if servicePort == 0 {
			servicePort = 443
		}
		c.Service = &admissionregistrationv1.ServiceReference{Namespace: s.Namespace, Name: s.Name, Path: &path, Port: &servicePort}
		return c
	}
	url := "https://" + net.JoinHostPort(o.names()[0], fmt.Sprint(port)) + webhookPath
	c.URL = &url
	return c
}

// webhookServer serves until it is closed.
type webhookServer struct {
	controller *Controller
	server     *http.Server
	serving    sync.WaitGroup
}

// serveWebhook listens, and then has the API server call.
func (c *Controller) serveWebhook(ctx context.Context) (*webhookServer, error) {
	o := c.options.Webhook
	server, ca, err := certificate.SelfSigned(o.names())
	if err != nil {
		return nil, fmt.Errorf("make certificate for webhook: %w", err)
	}
	l, err := net.Listen("tcp", o.Listen.String())
	if err != nil {
		return nil, fmt.Errorf("listen for webhook: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST "+webhookPath, c.Webhook())
	s := &webhookServer{controller: c, server: &http.Server{
		Handler:           mux,
		TLSConfig:         server,
		ReadHeaderTimeout: closeTimeout,
		ErrorLog:          log.New(c.options.Messages, "webhook: ", 0),
	}}
	s.serving.Go(func() { _ = s.server.ServeTLS(l, "", "") }) // ends with close
	config := mutatingWebhook(o.clientConfig(l.Addr().(*net.TCPAddr).Port, ca))
	if err := c.installWebhook(ctx, config); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

func mutatingWebhook(client admissionregistrationv1.WebhookClientConfig) *admissionregistrationv1.MutatingWebhookConfiguration {
	// Ignore is the original's default since v2.11: pods start without a gate
	// rather than not at all while the controller is away. Here it also keeps
	// a cluster usable after kill -9, when the configuration stays behind.
	policy := admissionregistrationv1.Ignore
	match := admissionregistrationv1.Equivalent
	reinvoke := admissionregistrationv1.NeverReinvocationPolicy
	none := admissionregistrationv1.SideEffectClassNone
	timeout := int32(webhookTimeout)
	return &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: webhookConfiguration, Labels: map[string]string{managedByLabel: managedBy}},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name:         webhookName,
			ClientConfig: client,
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
			NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
				Key: injectLabel, Operator: metav1.LabelSelectorOpIn, Values: []string{"enabled"},
			}}},
			FailurePolicy:           &policy,
			MatchPolicy:             &match,
			ReinvocationPolicy:      &reinvoke,
			SideEffects:             &none,
			TimeoutSeconds:          &timeout,
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
}

// installWebhook creates the configuration, or takes over one that an earlier
// process has left.
func (c *Controller) installWebhook(ctx context.Context, config *admissionregistrationv1.MutatingWebhookConfiguration) error {
	api := c.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	_, err := api.Create(ctx, config, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		var old *admissionregistrationv1.MutatingWebhookConfiguration
		if old, err = api.Get(ctx, config.Name, metav1.GetOptions{}); err == nil {
			if old.Labels[managedByLabel] != managedBy {
				return fmt.Errorf("webhook configuration %s exists without label %s=%s: it is not ours: delete it or give it the label", config.Name, managedByLabel, managedBy)
			}
			config.ResourceVersion = old.ResourceVersion
			_, err = api.Update(ctx, config, metav1.UpdateOptions{})
		}
	}
	if err != nil {
		return fmt.Errorf("install webhook configuration: %w", err)
	}
	return nil
}

// close removes the configuration first, so that nobody calls a server that is
// gone. ctx has ended: it only gives the values.
func (s *webhookServer) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	err := s.controller.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(ctx, webhookConfiguration, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("remove webhook configuration: %w", err)
	}
	return errors.Join(err, s.stop())
}

func (s *webhookServer) stop() error {
	err := s.server.Close()
	s.serving.Wait()
	return err
}
