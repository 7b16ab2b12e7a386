package kube

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lameduck/harness"
	"lameduck/harness/evidence"
)

const (
	// undoLimit bounds removing what a failed deployment has made so far.
	undoLimit = 60 * time.Second
	// namespaceLimit bounds one request to the API server.
	namespaceLimit = 10 * time.Second
)

// Deploy implements harness.World. It returns when all pods are ready and the
// load balancer has an address and, where it can be asked, only healthy targets;
// whether it answers is for the load's source to find out, because this process
// may not be able to reach it. It waits as long as ctx allows, except for pods
// that are sure not to start.
func (w *World) Deploy(ctx context.Context, t harness.Trial, clock harness.Clock, rec harness.Recorder) (_ harness.Deployment, err error) {
	port := w.cfg.ListenPort(t)
	objects, err := Manifests(t, w.cfg.TargetImage, port)
	if err != nil {
		return nil, err
	}
	namespace := objects.Namespace.Name
	if err := w.createNamespace(ctx, objects.Namespace); err != nil {
		return nil, err
	}
	d := &deployment{
		world: w, trial: t, namespace: namespace, names: objects.Names, clock: clock, rec: rec,
		localTraffic: objects.Services[0].Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal,
	}
	defer func() {
		if err != nil {
			undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
			defer cancel()
			err = errors.Join(err, d.remove(undo))
		}
	}()
	workload := evidence.Workload{
		Namespace: namespace, Deployment: d.names.Deployment, Service: d.names.Service, HPA: d.names.HPA, Container: d.names.Container,
	}
	if d.evidence, err = evidence.Watch(ctx, w.client, workload, clock, rec); err != nil {
		return nil, err
	}
	if d.view, err = newView(ctx, w.client, namespace); err != nil {
		return nil, err
	}
	if err := d.create(ctx, objects); err != nil {
		return nil, err
	}
	if err := d.waitTargets(ctx); err != nil {
		return nil, err
	}
	d.target = targetAt(t.Setup, d.view.addresses(), port)
	return d, nil
}

// create makes everything but the namespace, and returns when the pods are ready
// and the load balancer has an address.
//
// The load balancer comes last: a check that fails because nothing listens yet
// would cost a whole interval. A readiness gate however is added when a pod is
// created, and only if the controller knows its target group by then.
func (d *deployment) create(ctx context.Context, o Objects) error {
	w := d.world
	steps := []func(context.Context, Objects) error{w.createRest, w.createPods, d.waitPodsUp, w.createIngress, d.waitAddress}
	if d.trial.Setup.LoadBalancer.ReadinessGate {
		steps = []func(context.Context, Objects) error{w.createRest, w.createIngress, d.waitAddress, w.createPods, d.waitPodsUp}
	}
	for _, step := range steps {
		if err := step(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// targetAt is the load's destination at the addresses of a load balancer.
func targetAt(s harness.Setup, addresses []string, port int) harness.Target {
	base := "http://"
	if s.Load.HTTP2 {
		base = "https://"
	}
	base += net.JoinHostPort(addresses[0], strconv.Itoa(port))
	t := harness.Target{URL: base + "/", ReadyURL: base + healthPath, ControlURL: base + controlPath, StreamURL: base + streamPath}
	if app := s.Workload.App; app != nil {
		t.URL, t.ReadyURL, t.StreamURL = base+app.Path, base+app.Ready, ""
	}
	if len(addresses) > 1 {
		for _, a := range addresses {
			t.Nodes = append(t.Nodes, net.JoinHostPort(a, strconv.Itoa(port)))
		}
	}
	return t
}

// createNamespace does not stop half-way when ctx ends: a request that is cut
// off may have been carried out, and nobody would remove the namespace.
func (w *World) createNamespace(ctx context.Context, ns *corev1.Namespace) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), namespaceLimit)
	defer cancel()
	_, err := w.client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		err = fmt.Errorf("%w; it is another run's: remove it, or choose another run id", err)
	}
	if err != nil {
		return fmt.Errorf("create namespace %s: %w", ns.Name, err)
	}
	return nil
}

// createRest makes what the pods need, and what limits their eviction.
func (w *World) createRest(ctx context.Context, o Objects) error {
	namespace, options := o.Namespace.Name, metav1.CreateOptions{}
	for _, u := range o.Others {
		if err := created(u.GetKind(), u.GetName(), namespace, w.createOther(ctx, namespace, u)); err != nil {
			return err
		}
	}
	if o.Metric != nil {
		_, err := w.client.CoreV1().ConfigMaps(namespace).Create(ctx, o.Metric, options)
		if err := created("ConfigMap", o.Metric.Name, namespace, err); err != nil {
			return err
		}
	}
	for _, s := range o.Services {
		_, err := w.client.CoreV1().Services(namespace).Create(ctx, s, options)
		if err := created("Service", s.Name, namespace, err); err != nil {
			return err
		}
	}
	if o.Budget == nil {
		return nil
	}
	_, err := w.client.PolicyV1().PodDisruptionBudgets(namespace).Create(ctx, o.Budget, options)
	return created("PodDisruptionBudget", o.Budget.Name, namespace, err)
}

// createPods makes the Deployments and what scales them.
func (w *World) createPods(ctx context.Context, o Objects) error {
	namespace, options := o.Namespace.Name, metav1.CreateOptions{}
	for _, d := range o.Deployments {
		_, err := w.client.AppsV1().Deployments(namespace).Create(ctx, d, options)
		if err := created("Deployment", d.Name, namespace, err); err != nil {
			return err
		}
	}
	_, err := w.client.AutoscalingV2().HorizontalPodAutoscalers(namespace).Create(ctx, o.HPA, options)
	return created("HorizontalPodAutoscaler", o.HPA.Name, namespace, err)
}

func (w *World) createIngress(ctx context.Context, o Objects) error {
	_, err := w.client.NetworkingV1().Ingresses(o.Namespace.Name).Create(ctx, o.Ingress, metav1.CreateOptions{})
	return created(o.Ingress.Kind, o.Ingress.Name, o.Namespace.Name, err)
}

func created(kind, name, namespace string, err error) error {
	if err != nil {
		return fmt.Errorf("create %s %s in namespace %s: %w", kind, name, namespace, err)
	}
	return nil
}

// waitPodsUp waits for the pods; its error says what is missing.
func (d *deployment) waitPodsUp(ctx context.Context, _ Objects) error {
	replicas := d.trial.Setup.Workload.Replicas
	return d.waitUp(ctx, func() (bool, error) {
		if err := giveUp(d.view.allPods()); err != nil {
			return false, err
		}
		return count(d.view.podsOf(appName)).settled(replicas) && count(d.view.podsOf(controlName)).settled(1), nil
	})
}

// waitAddress waits for the load balancer.
func (d *deployment) waitAddress(ctx context.Context, _ Objects) error {
	return d.waitUp(ctx, func() (bool, error) { return len(d.view.addresses()) > 0, nil })
}

func (d *deployment) waitUp(ctx context.Context, up func() (bool, error)) error {
	if err := d.view.wait(ctx, up); err != nil {
		return fmt.Errorf("wait until namespace %s is up: %w: %s", d.namespace, err, d.state(ctx, d.trial.Setup.Workload.Replicas))
	}
	return nil
}

// state says what of the deployment is not as it should be, and why.
func (d *deployment) state(ctx context.Context, replicas int) string {
	parts := []string{fmt.Sprintf("%d of %d pods ready", count(d.view.podsOf(appName)).ready, replicas)}
	if count(d.view.podsOf(controlName)).ready == 0 {
		parts = append(parts, "control pod not ready")
	}
	if len(d.view.ingresses.List()) > 0 && len(d.view.addresses()) == 0 {
		parts = append(parts, fmt.Sprintf("the Ingress has no address (does a controller for ingress class %s run?)", IngressClass))
	}
	parts = append(parts, troubles(d.view.allPods())...)
	if last := warnings(ctx, d.world.client, d.namespace); len(last) > 0 {
		parts = append(parts, "last warnings: "+strings.Join(last, " | "))
	}
	return strings.Join(parts, "; ")
}
