package kube

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"lameduck/harness"
)

// ManifestsInfo is what an application's own manifests say, as far as a setup
// needs to know.
type ManifestsInfo struct {
	Deployment  string
	Service     string
	Port        int // of the Service
	Services    []string
	Replicas    int              // 1 if the Deployment does not say
	GracePeriod harness.Duration // 30s if the Deployment does not say
	Notes       []string         // what is left out, and why
}

// ReadManifests reads App.Manifests without a cluster. An error names the field
// of the setup, and the object.
func ReadManifests(app harness.App) (ManifestsInfo, error) {
	o, err := readOwn(app)
	if err != nil {
		return ManifestsInfo{}, err
	}
	info := ManifestsInfo{
		Deployment: o.deployment.Name, Service: o.service.Name, Port: int(o.port.Port), Services: o.services,
		Replicas: 1, GracePeriod: harness.Dur(corev1.DefaultTerminationGracePeriodSeconds * time.Second), Notes: o.notes,
	}
	if n := o.deployment.Spec.Replicas; n != nil {
		info.Replicas = int(*n)
	}
	if s := o.deployment.Spec.Template.Spec.TerminationGracePeriodSeconds; s != nil {
		info.GracePeriod = harness.Dur(time.Duration(*s) * time.Second)
	}
	return info, nil
}

// own is an application of the user's own, read from its manifests.
type own struct {
	deployment *appsv1.Deployment
	service    *corev1.Service
	port       corev1.ServicePort
	hpa        *autoscalingv2.HorizontalPodAutoscaler // nil: none
	budget     *policyv1.PodDisruptionBudget          // nil: none
	others     []*unstructured.Unstructured
	services   []string // names of all
	notes      []string
}

// clusterScoped are the kinds without a namespace of Kubernetes itself that
// people have in manifests. The cluster knows of others: see World.createOther.
var clusterScoped = []string{
	"APIService", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "IngressClass", "MutatingAdmissionPolicy",
	"MutatingAdmissionPolicyBinding", "MutatingWebhookConfiguration", "Node", "PersistentVolume", "PriorityClass", "RuntimeClass",
	"StorageClass", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration",
}

func readOwn(app harness.App) (*own, error) {
	objects, err := readDocuments(app.Manifests)
	if err != nil {
		return nil, fmt.Errorf("workload.app.manifests: %w", err)
	}
	o := &own{}
	var errs []error
	var rest []*unstructured.Unstructured
	seen := make(map[string]bool)
	for _, object := range objects {
		kind, id := object.GetKind(), identity(object)
		if seen[id] {
			errs = append(errs, fmt.Errorf("%s is there twice: want one", id))
		}
		seen[id] = true
		switch {
		case kind == "Ingress":
			o.notes = append(o.notes, id+": left out: lameduck makes its own")
		case kind == "Namespace":
			o.notes = append(o.notes, id+": left out: each trial has one of its own")
		case slices.Contains(clusterScoped, kind):
			errs = append(errs, fmt.Errorf("%s is of the whole cluster: leave it out, and create it before the run if the application needs it", id))
		case object.GetName() == controlName && (kind == "Deployment" || kind == "Service"):
			errs = append(errs, fmt.Errorf("%s has the name of lameduck's control target: want another name", id))
		default:
			rest = append(rest, object)
		}
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("workload.app.manifests: %w", errors.Join(errs...))
	}
	if rest, err = o.takeService(rest, app); err != nil {
		return nil, err
	}
	if rest, err = o.takeDeployment(rest); err != nil {
		return nil, err
	}
	if o.others, err = o.takeScaling(rest); err != nil {
		return nil, err
	}
	return o, errors.Join(o.checkPort(), o.checkOthers())
}

// takeService finds the Service that the load balancer sends to.
func (o *own) takeService(objects []*unstructured.Unstructured, app harness.App) ([]*unstructured.Unstructured, error) {
	services, err := take[corev1.Service](objects, "v1", "Service")
	if err != nil {
		return nil, err
	}
	for _, s := range services {
		o.services = append(o.services, s.Name)
		if s.Name == app.Service || app.Service == "" && len(services) == 1 {
			o.service = s
		}
	}
	names := cmp.Or(strings.Join(o.services, ", "), "none")
	switch {
	case o.service == nil && app.Service == "":
		return nil, fmt.Errorf("workload.app.service: want the name of the Service to send to; workload.app.manifests has: %s", names)
	case o.service == nil:
		return nil, fmt.Errorf("workload.app.service is %s: want a Service of workload.app.manifests, which has: %s", app.Service, names)
	case o.service.Spec.Type == corev1.ServiceTypeExternalName:
		return nil, fmt.Errorf("workload.app.service: Service %s is of type ExternalName: want one that selects the pods of a Deployment", o.service.Name)
	case len(o.service.Spec.Selector) == 0:
		return nil, fmt.Errorf("workload.app.service: Service %s has no selector: want one that selects the pods of a Deployment", o.service.Name)
	}
	for _, p := range o.service.Spec.Ports {
		// A port may be there once for each protocol.
		wanted := int(p.Port) == app.Port || app.Port == 0 && len(o.service.Spec.Ports) == 1
		if wanted && (o.port.Port == 0 || isTCP(p.Protocol)) {
			o.port = p
		}
	}
	if o.port.Port == 0 {
		return nil, fmt.Errorf("workload.app.port is %d: want a port of Service %s, which has: %s", app.Port, o.service.Name, cmp.Or(portsOf(o.service), "none"))
	}
	if !isTCP(o.port.Protocol) {
		return nil, fmt.Errorf("workload.app.port: port %d of Service %s is %s: want TCP, which a load balancer for HTTP sends by", o.port.Port, o.service.Name, o.port.Protocol)
	}
	return without(objects, "Service", o.service.Name), nil
}

// without leaves one object out.
func without(objects []*unstructured.Unstructured, kind, name string) []*unstructured.Unstructured {
	return slices.DeleteFunc(objects, func(u *unstructured.Unstructured) bool { return u.GetKind() == kind && u.GetName() == name })
}

// takeDeployment finds the Deployment behind the Service.
func (o *own) takeDeployment(objects []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	deployments, err := take[appsv1.Deployment](objects, "apps/v1", "Deployment")
	if err != nil {
		return nil, err
	}
	selector := labels.SelectorFromSet(o.service.Spec.Selector)
	var behind []string
	for _, d := range deployments {
		if selector.Matches(labels.Set(d.Spec.Template.Labels)) {
			behind = append(behind, d.Name)
			o.deployment = d
		}
	}
	if len(behind) != 1 {
		return nil, fmt.Errorf("workload.app.service: Service %s selects the pods of %d Deployments (%s): want exactly one",
			o.service.Name, len(behind), cmp.Or(strings.Join(behind, ", "), "none has the labels "+selector.String()))
	}
	if len(o.deployment.Spec.Template.Spec.Containers) == 0 {
		return nil, fmt.Errorf("workload.app.manifests: Deployment %s has no container", o.deployment.Name)
	}
	return without(objects, "Deployment", o.deployment.Name), nil
}

// takeScaling finds the HorizontalPodAutoscaler and the PodDisruptionBudget of
// the Deployment, and returns what is left.
func (o *own) takeScaling(objects []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	hpas, err := take[autoscalingv2.HorizontalPodAutoscaler](objects, "autoscaling/v2", "HorizontalPodAutoscaler")
	if err != nil {
		return nil, err
	}
	for _, h := range hpas {
		if ref := h.Spec.ScaleTargetRef; ref.Kind == "Deployment" && ref.Name == o.deployment.Name {
			if o.hpa != nil {
				return nil, fmt.Errorf("workload.app.manifests: HorizontalPodAutoscalers %s and %s both scale Deployment %s: want one", o.hpa.Name, h.Name, ref.Name)
			}
			o.hpa = h
		}
	}
	budgets, err := take[policyv1.PodDisruptionBudget](objects, "policy/v1", "PodDisruptionBudget")
	if err != nil {
		return nil, err
	}
	for _, b := range budgets {
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil {
			return nil, fmt.Errorf("workload.app.manifests: PodDisruptionBudget %s: %w", b.Name, err)
		}
		if selector.Matches(labels.Set(o.deployment.Spec.Template.Labels)) {
			if o.budget != nil {
				return nil, fmt.Errorf("workload.app.manifests: PodDisruptionBudgets %s and %s both select the pods of Deployment %s: want one, the eviction of a pod with two fails",
					o.budget.Name, b.Name, o.deployment.Name)
			}
			o.budget = b
		}
	}
	if o.hpa != nil {
		objects = without(objects, o.hpa.Kind, o.hpa.Name)
	}
	if o.budget != nil {
		objects = without(objects, o.budget.Kind, o.budget.Name)
	}
	return objects, nil
}

// take are the objects of a kind, typed. A field that the type does not have is
// an error: it would be lost.
func take[T any](objects []*unstructured.Unstructured, apiVersion, kind string) (taken []*T, err error) {
	for _, u := range objects {
		if u.GetKind() != kind {
			continue
		}
		if u.GetAPIVersion() != apiVersion {
			return nil, fmt.Errorf("workload.app.manifests: %s has apiVersion %s: want %s", identity(u), u.GetAPIVersion(), apiVersion)
		}
		typed := new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, typed, true); err != nil {
			return nil, fmt.Errorf("workload.app.manifests: %s: %w", identity(u), err)
		}
		taken = append(taken, typed)
	}
	return taken, nil
}

func identity(u *unstructured.Unstructured) string { return u.GetKind() + " " + u.GetName() }

// readDocuments reads YAML or JSON documents; Lists are taken apart.
func readDocuments(text string) ([]*unstructured.Unstructured, error) {
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	var objects []*unstructured.Unstructured
	for n := 1; ; n++ {
		var fields map[string]any
		err := decoder.Decode(&fields)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		if len(fields) == 0 {
			continue // nothing but comments
		}
		items := []*unstructured.Unstructured{{Object: fields}}
		if items[0].IsList() {
			list, err := items[0].ToList()
			if err != nil {
				return nil, fmt.Errorf("document %d: %w", n, err)
			}
			items = items[:0]
			for i := range list.Items {
				items = append(items, &list.Items[i])
			}
		}
		for _, u := range items {
			if u.GetName() == "" && u.GetGenerateName() != "" {
				return nil, fmt.Errorf("document %d: %s has metadata.generateName %q: want metadata.name, by which lameduck finds it", n, u.GetKind(), u.GetGenerateName())
			}
			if _, err := schema.ParseGroupVersion(u.GetAPIVersion()); err != nil || u.GetAPIVersion() == "" || u.GetKind() == "" || u.GetName() == "" {
				return nil, fmt.Errorf("document %d: has apiVersion %q, kind %q and metadata.name %q: want all three", n, u.GetAPIVersion(), u.GetKind(), u.GetName())
			}
		}
		objects = append(objects, items...)
	}
}
