package kube

import (
	"cmp"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"lameduck/harness"
)

// Describe says what Deploy would create for a trial, a line for each object,
// and what it leaves out of an application's own manifests. It needs no cluster.
func Describe(t harness.Trial) ([]string, error) {
	port := listenPort(t)
	o, err := Manifests(t, "(built in)", port)
	if err != nil {
		return nil, err
	}
	lb := t.Setup.LoadBalancer
	lines := []string{"Namespace " + o.Namespace.Name + note(lb.ReadinessGate, "its pods get readiness gates")}
	for _, u := range o.Others {
		lines = append(lines, identity(u))
	}
	for _, s := range o.Services {
		lines = append(lines, fmt.Sprintf("Service %s: %s%s", s.Name, s.Spec.Type, note(s.Spec.ExternalTrafficPolicy != "", "externalTrafficPolicy "+string(s.Spec.ExternalTrafficPolicy))))
	}
	lines = append(lines, fmt.Sprintf("Ingress %s: %s listener, %s targets, idle timeout %s, deregistration delay %s",
		o.Ingress.Name, maker{trial: t}.listenProtocol(), lb.TargetType, lb.IdleTimeout, lb.DeregistrationDelay))
	for _, d := range o.Deployments {
		lines = append(lines, describeDeployment(d))
	}
	if o.Metric != nil {
		lines = append(lines, fmt.Sprintf("ConfigMap %s: the metric %s is %s", o.Metric.Name, metricName, o.Metric.Data[metricName]))
	}
	lines = append(lines, fmt.Sprintf("HorizontalPodAutoscaler %s: %d..%d pods of Deployment %s%s",
		o.HPA.Name, *o.HPA.Spec.MinReplicas, o.HPA.Spec.MaxReplicas, o.HPA.Spec.ScaleTargetRef.Name,
		note(o.Metric != nil, fmt.Sprintf("for each %d of the metric one", harness.MetricPerPod))))
	if b := o.Budget; b != nil {
		what := "maxUnavailable " + b.Spec.MaxUnavailable.String()
		if b.Spec.MinAvailable != nil {
			what = "minAvailable " + b.Spec.MinAvailable.String()
		}
		lines = append(lines, fmt.Sprintf("PodDisruptionBudget %s: %s", b.Name, what))
	}
	return append(lines, o.Notes...), nil
}

func describeDeployment(d *appsv1.Deployment) string {
	var images, hooks []string
	for _, c := range d.Spec.Template.Spec.Containers {
		images = append(images, c.Image)
		if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
			hooks = append(hooks, describeHook(*c.Lifecycle.PreStop))
		}
	}
	grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if s := d.Spec.Template.Spec.TerminationGracePeriodSeconds; s != nil {
		grace = *s
	}
	return fmt.Sprintf("Deployment %s: %d replicas of %s, preStop %s, grace period %ds",
		d.Name, *d.Spec.Replicas, strings.Join(images, ", "), cmp.Or(strings.Join(hooks, ", "), "none"), grace)
}

func describeHook(h corev1.LifecycleHandler) string {
	switch {
	case h.Exec != nil:
		return strings.Join(h.Exec.Command, " ")
	case h.Sleep != nil:
		return fmt.Sprintf("sleep action of %ds", h.Sleep.Seconds)
	case h.HTTPGet != nil:
		return "GET " + h.HTTPGet.Path
	}
	return "of another kind"
}

func note(there bool, text string) string {
	if !there {
		return ""
	}
	return ", " + text
}
