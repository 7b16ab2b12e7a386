package kube

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	"lameduck/harness"
	"lameduck/harness/evidence"
)

// checkOwn says what an application of the user's own lacks, besides what its
// manifests themselves do.
func checkOwn(s harness.Setup) error {
	app := s.Workload.App
	if app == nil {
		return nil
	}
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check((app.Image == "") != (app.Manifests == ""), "workload.app: want either image or manifests")
	check(app.Port >= 0 && app.Port <= 65535 && (app.Port > 0 || app.Image == ""), "workload.app.port is %d: want 1..65535", app.Port)
	check(strings.HasPrefix(app.Path, "/"), "workload.app.path is %q: want the path of the requests, like /", app.Path)
	check(strings.HasPrefix(app.Ready, "/"), "workload.app.readinessPath is %q: want a path that answers 200, like /healthz", app.Ready)
	check(s.Scenario.Drive != harness.DriveCPU, "scenario.drive is %s: want %s or %s, only the built-in application can be made to use CPU", harness.DriveCPU, harness.DriveBounds, harness.DriveMetric)
	check(s.Load.Streams == 0, "load.streams is %d: want 0, only the built-in application has answers without an end", s.Load.Streams)
	return errors.Join(errs...)
}

// noteSleep says what a hook by command needs, which only the kubelet finds out.
func noteSleep(w harness.Workload, deployment string) []string {
	if hook := preStop(w); hook == nil || hook.PreStop.Exec == nil {
		return nil
	}
	return []string{fmt.Sprintf("Deployment %s: its preStop hook needs a command sleep in the image; with workload.preStopBy %s it does not", deployment, harness.PreStopSleep)}
}

// ownManifests is an application of the user's own with its own objects: as
// they are, but in the trial's namespace, with labels of ours, reachable by the
// load balancer, and with what the setup asks for.
func (m maker) ownManifests(app harness.App) (Objects, error) {
	own, err := readOwn(app)
	if err != nil {
		return Objects{}, err
	}
	names := Names{
		Deployment: own.deployment.Name, Service: own.service.Name, HPA: appName, Budget: appName,
		Container: own.container().Name, ServicePort: own.port.Port,
	}
	o := Objects{Notes: own.notes}
	for _, other := range own.others {
		m.adoptSubjects(other)
		m.adopt(other)
		o.Others = append(o.Others, other)
	}
	m.adopt(own.service)
	o.Notes = append(o.Notes, openUp(own.service)...)
	m.exposeService(own.service)
	o.Services = append(o.Services, own.service)

	m.adopt(own.deployment)
	m.applySetup(own.deployment, own.container())
	o.Notes = append(o.Notes, noteSleep(m.trial.Setup.Workload, names.Deployment)...)
	o.Deployments = append(o.Deployments, own.deployment)

	if o.HPA = own.hpa; o.HPA != nil {
		names.HPA = o.HPA.Name
		m.adopt(o.HPA)
		m.bound(o.HPA)
		o.Notes = append(o.Notes, fmt.Sprintf("HorizontalPodAutoscaler %s: its bounds are lameduck's, so that it does nothing but what the scenario asks for", o.HPA.Name))
		if m.trial.Setup.Scenario.Drive == harness.DriveMetric {
			o.Notes = append(o.Notes, fmt.Sprintf("HorizontalPodAutoscaler %s: its metrics are lameduck's, as scenario.drive is %s", o.HPA.Name, harness.DriveMetric))
		}
	} else {
		o.HPA = m.hpa(names)
	}
	if o.Budget = own.budget; o.Budget != nil {
		names.Budget = o.Budget.Name
		m.adopt(o.Budget)
		// Two budgets for one pod make its eviction fail (Eviction API).
		if asked := m.budget(names); asked != nil {
			o.Budget.Spec.MinAvailable, o.Budget.Spec.MaxUnavailable = asked.Spec.MinAvailable, nil
		}
	} else {
		o.Budget = m.budget(names)
	}
	o.Names = names
	return o, nil
}

// adopt moves an object into the trial's namespace. Nothing selects objects by
// the labels of their own metadata, so those may be ours.
func (m maker) adopt(o metav1.Object) {
	o.SetNamespace(namespaceName(m.trial))
	labels := maps.Clone(o.GetLabels())
	if labels == nil {
		labels = make(map[string]string)
	}
	maps.Copy(labels, m.labels())
	o.SetLabels(labels)
}

// adoptSubjects keeps a RoleBinding's service accounts those beside it.
func (m maker) adoptSubjects(u *unstructured.Unstructured) {
	if u.GetKind() != "RoleBinding" {
		return
	}
	subjects, _ := u.Object["subjects"].([]any)
	for _, s := range subjects {
		subject, _ := s.(map[string]any)
		if of := cmp.Or(u.GetNamespace(), "default"); subject["kind"] == "ServiceAccount" && subject["namespace"] == of {
			subject["namespace"] = namespaceName(m.trial)
		}
	}
}

// applySetup changes of a Deployment what the setup asks for. Its pods get only
// labels that are ours alone: others could be in a selector.
func (m maker) applySetup(d *appsv1.Deployment, c *corev1.Container) {
	w := m.trial.Setup.Workload
	replicas := int32(w.Replicas)
	d.Spec.Replicas = &replicas
	template := &d.Spec.Template
	template.Labels = maps.Clone(template.Labels)
	template.Labels[runLabel], template.Labels[evidence.RoleLabel] = m.trial.RunID, evidence.RoleApp
	if w.GracePeriod.Duration > 0 {
		grace := wholeSeconds(w.GracePeriod)
		template.Spec.TerminationGracePeriodSeconds = &grace
	}
	if hook := preStop(w); hook != nil {
		if c.Lifecycle == nil {
			c.Lifecycle = hook
		} else {
			c.Lifecycle.PreStop = hook.PreStop
		}
	}
	if w.CPURequest != "" {
		if c.Resources.Requests == nil {
			c.Resources.Requests = make(corev1.ResourceList)
		}
		c.Resources.Requests[corev1.ResourceCPU] = m.cpu
	}
	m.rollout(&d.Spec)
	// An image that was put on the nodes is in no registry.
	for i := range template.Spec.Containers {
		c := &template.Spec.Containers[i]
		if slices.ContainsFunc(w.App.Images, func(s harness.ImageSource) bool { return s.Name == c.Image }) {
			c.ImagePullPolicy = corev1.PullIfNotPresent
		}
	}
}

// openUp takes out of a Service what only one Service of the cluster can have,
// or what brings a load balancer of its own. It says what.
func openUp(s *corev1.Service) (notes []string) {
	note := func(format string, args ...any) {
		notes = append(notes, fmt.Sprintf("Service "+s.Name+": "+format, args...))
	}
	if kind := s.Spec.Type; kind == corev1.ServiceTypeLoadBalancer {
		s.Spec.Type = corev1.ServiceTypeClusterIP
		s.Spec.LoadBalancerClass, s.Spec.AllocateLoadBalancerNodePorts, s.Spec.HealthCheckNodePort = nil, nil, 0
		s.Spec.ExternalTrafficPolicy, s.Spec.LoadBalancerSourceRanges = "", nil
		note("not of type %s: the Ingress is in front of it", kind)
	}
	if s.Spec.ClusterIP != "" {
		note("without clusterIP %s", s.Spec.ClusterIP)
		s.Spec.ClusterIP, s.Spec.ClusterIPs = "", nil
	}
	for i := range s.Spec.Ports {
		if p := &s.Spec.Ports[i]; p.NodePort != 0 {
			note("without nodePort %d: trials run side by side", p.NodePort)
			p.NodePort = 0
		}
	}
	return notes
}

// container is the one of the Deployment's that the Service's port leads to; the
// first, if the containers do not name their ports.
func (o *own) container() *corev1.Container {
	containers := o.deployment.Spec.Template.Spec.Containers
	target := o.port.TargetPort
	if target == (intstr.IntOrString{}) {
		target = intstr.FromInt32(o.port.Port)
	}
	for i := range containers {
		for _, p := range containers[i].Ports {
			if p.Name != "" && p.Name == target.StrVal || target.StrVal == "" && p.ContainerPort == target.IntVal {
				return &containers[i]
			}
		}
	}
	return &containers[0]
}

// portsOf lists a Service's ports, for an error.
func portsOf(s *corev1.Service) string {
	var all []string
	for _, p := range s.Spec.Ports {
		all = append(all, fmt.Sprint(p.Port))
	}
	return strings.Join(all, ", ")
}
