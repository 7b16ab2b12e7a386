package embedded

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	systemNamespace = metav1.NamespaceSystem
	externalService = "external-metrics"
)

// metricsAPI is one that the API server passes on to another server.
type metricsAPI struct {
	service string // in the system namespace; also the process
	group   string
	port    int32 // at the control plane's address
}

const metricsVersion = "v1beta1" // of all

func (a metricsAPI) name() string { return metricsVersion + "." + a.group }

// metricsAPIs are those that a HorizontalPodAutoscaler asks.
var metricsAPIs = []metricsAPI{
	{"metrics-server", "metrics.k8s.io", metricsPort},
	{externalService, "external.metrics.k8s.io", externalPort},
}

// IngressClass is the class of Ingresses that the load balancer serves; its
// controller is the name that the AWS Load Balancer Controller uses.
const (
	IngressClass      = "alb"
	ingressController = "ingress.k8s.aws/alb"
)

// createObjects creates what the cluster needs besides its processes.
func (l layout) createObjects(ctx context.Context, c kubernetes.Interface) error {
	class := &networkingv1.IngressClass{
		ObjectMeta: metav1.ObjectMeta{Name: IngressClass},
		Spec:       networkingv1.IngressClassSpec{Controller: ingressController},
	}
	if _, err := c.NetworkingV1().IngressClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create IngressClass: %w", err)
	}
	ca, err := os.ReadFile(l.pki("ca.crt"))
	if err != nil {
		return err
	}
	// The system namespace is made by the API server itself, soon after start.
	err = poll(ctx, func(ctx context.Context) error {
		_, err := c.CoreV1().Namespaces().Get(ctx, systemNamespace, metav1.GetOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("wait for namespace %s: %w", systemNamespace, err)
	}
	for _, api := range metricsAPIs {
		if err := api.create(ctx, c, ca); err != nil {
			return err
		}
	}
	return nil
}

// create makes the API known.
func (a metricsAPI) create(ctx context.Context, c kubernetes.Interface, ca []byte) error {
	if err := a.createService(ctx, c); err != nil {
		return fmt.Errorf("create Service %s: %w", a.service, err)
	}
	body, err := json.Marshal(a.apiService(ca))
	if err != nil {
		return err
	}
	err = c.Discovery().RESTClient().Post().AbsPath("/apis/apiregistration.k8s.io/v1/apiservices").
		SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("create APIService %s: %w", a.name(), err)
	}
	return nil
}

// createService leads to the server, which is no pod: a Service without a
// selector, and its endpoint.
func (a metricsAPI) createService(ctx context.Context, c kubernetes.Interface) error {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: a.service, Namespace: systemNamespace},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443}}},
	}
	if _, err := c.CoreV1().Services(systemNamespace).Create(ctx, service, metav1.CreateOptions{}); err != nil {
		return err
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: a.service, Namespace: systemNamespace,
			Labels: map[string]string{discoveryv1.LabelServiceName: a.service, discoveryv1.LabelManagedBy: "lameduck"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{controlPlane.String()}}},
		Ports:       []discoveryv1.EndpointPort{{Name: &service.Spec.Ports[0].Name, Port: &a.port}},
	}
	_, err := c.DiscoveryV1().EndpointSlices(systemNamespace).Create(ctx, slice, metav1.CreateOptions{})
	return err
}

// apiService is an apiregistration.k8s.io/v1 APIService. Its Go type would be
// one more module for a dozen lines.
func (a metricsAPI) apiService(ca []byte) map[string]any {
	return map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1",
		"kind":       "APIService",
		"metadata":   map[string]any{"name": a.name()},
		"spec": map[string]any{
			"group": a.group, "version": metricsVersion,
			"groupPriorityMinimum": 100, "versionPriority": 100,
			"caBundle": ca, // []byte: base64, as the API wants it
			"service":  map[string]any{"name": a.service, "namespace": systemNamespace, "port": 443},
		},
	}
}

// metricsAvailable says whether the API server reaches the metrics' servers.
// Until then no namespace can be deleted: the deletion asks every API.
func metricsAvailable(ctx context.Context, c kubernetes.Interface) error {
	for _, api := range metricsAPIs {
		if err := api.available(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

func (a metricsAPI) available(ctx context.Context, c kubernetes.Interface) error {
	b, err := c.Discovery().RESTClient().Get().
		AbsPath("/apis/apiregistration.k8s.io/v1/apiservices/"+a.name()).SetHeader("Accept", "application/json").DoRaw(ctx)
	if err != nil {
		return err
	}
	var got struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	if err := json.Unmarshal(b, &got); err != nil {
		return err
	}
	for _, cond := range got.Status.Conditions {
		if cond.Type == "Available" {
			if cond.Status == metav1.ConditionTrue {
				return nil
			}
			return fmt.Errorf("the API %s is not available: %s", a.name(), cond.Message)
		}
	}
	return fmt.Errorf("the API %s is not available yet", a.name())
}

// nodesReady says whether n nodes are Ready.
func nodesReady(ctx context.Context, c kubernetes.Interface, n int) error {
	nodes, err := c.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	ready, last := 0, ""
	for _, node := range nodes.Items {
		for _, cond := range node.Status.Conditions {
			if cond.Type != corev1.NodeReady {
				continue
			}
			if cond.Status == corev1.ConditionTrue && len(node.Spec.Taints) == 0 {
				ready++
			} else if cond.Status != corev1.ConditionTrue {
				last = ": " + cond.Message
			}
		}
	}
	if ready < n {
		return fmt.Errorf("%d of %d nodes are ready%s", ready, n, last)
	}
	return nil
}

// pollInterval is short, because every wait is on the way to a running
// cluster.
const pollInterval = 50 * time.Millisecond

// poll repeats check until it returns nil or ctx ends; then the error is the
// last one that check gave, or that of ctx if there was none.
func poll(ctx context.Context, check func(context.Context) error) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if fatal(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

// fatal says whether waiting longer cannot help.
func fatal(err error) bool {
	return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err)
}
