package kube

import (
	"fmt"
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"lameduck/harness"
	"lameduck/harness/evidence"
)

// defaultCPU is the CPU request of the control target, and of an application of
// the user's own in a Deployment of ours that does not ask for another.
const defaultCPU = "50m"

// builtin is the built-in application as the Deployment under test.
func (m maker) builtin() *appsv1.Deployment {
	w := m.trial.Setup.Workload
	args := []string{
		"--on-sigterm=" + onSIGTERM(w),
		"--response-time=" + responseTime(w),
		"--start-delay=" + w.StartDelay.String(),
		"--keep-alive=" + w.KeepAlive.String(),
	}
	if w.ResponseTime.SlowShare > 0 {
		args = append(args, fmt.Sprintf("--slow=share=%g,time=%s", w.ResponseTime.SlowShare, w.ResponseTime.Slow))
	}
	if w.CloseWhileDraining {
		args = append(args, "--close-while-draining")
	}
	if w.FailReadiness {
		args = append(args, "--fail-readiness")
	}
	d := m.deployment(appName, w.Replicas, args)
	grace := wholeSeconds(w.GracePeriod)
	spec := &d.Spec.Template.Spec
	spec.TerminationGracePeriodSeconds = &grace
	spec.Containers[0].Lifecycle = preStop(w)
	m.rollout(&d.Spec)
	return d
}

// ownImage is an application of the user's own in a Deployment of ours.
func (m maker) ownImage(app harness.App) *appsv1.Deployment {
	w := m.trial.Setup.Workload
	d := m.deployment(appName, w.Replicas, app.Args)
	spec := &d.Spec.Template.Spec
	if w.GracePeriod.Duration > 0 {
		grace := wholeSeconds(w.GracePeriod)
		spec.TerminationGracePeriodSeconds = &grace
	}
	c := &spec.Containers[0]
	c.Image, c.ImagePullPolicy, c.Command = app.Image, corev1.PullIfNotPresent, nil
	c.Ports[0].ContainerPort = int32(app.Port)
	c.ReadinessProbe.HTTPGet.Path = app.Ready
	c.Lifecycle = preStop(w)
	m.rollout(&d.Spec)
	return d
}

// control is the static target: nothing is done to it, so that what fails
// there too is not the disruption's doing. It has the application's response
// time but no slow requests, and never closes an idle connection before the load
// balancer does.
func (m maker) control() *appsv1.Deployment {
	d := m.deployment(controlName, 1, []string{
		"--on-sigterm=" + string(harness.SIGTERMDrain),
		"--response-time=" + responseTime(m.trial.Setup.Workload),
		"--keep-alive=" + (m.trial.Setup.LoadBalancer.IdleTimeout.Duration + 15*time.Second).String(),
	})
	d.Spec.Template.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse(defaultCPU)
	return d
}

func (m maker) deployment(name string, replicas int, args []string) *appsv1.Deployment {
	n := int32(replicas)
	meta := m.meta(name)
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{nameLabel: name}}
	labels := maps.Clone(meta.Labels)
	labels[evidence.RoleLabel] = name
	no := false
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: meta,
		Spec: appsv1.DeploymentSpec{
			Replicas: &n,
			Selector: selector,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					Containers: []corev1.Container{m.container(name, args)},
					// The application looks nothing up, and a cluster without DNS of its own
					// warns about every other policy.
					DNSPolicy:                    corev1.DNSDefault,
					AutomountServiceAccountToken: &no,
					EnableServiceLinks:           &no,
					// Each node gets its share, so that a scenario touches all of them.
					TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
						MaxSkew: 1, TopologyKey: corev1.LabelHostname,
						WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: selector,
					}},
				},
			},
		},
	}
}

func (m maker) container(name string, args []string) corev1.Container {
	return corev1.Container{
		Name:            name,
		Image:           m.image,
		ImagePullPolicy: corev1.PullNever,
		Command:         []string{targetBinary},
		Args:            args,
		Env: []corev1.EnvVar{{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"},
		}}},
		Ports: []corev1.ContainerPort{{Name: portName, ContainerPort: appPort}},
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: m.cpu, corev1.ResourceMemory: resource.MustParse("16Mi"),
		}},
		ReadinessProbe: &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: healthPath, Port: intstr.FromString(portName)}},
			PeriodSeconds: 1,
		},
		// So that a pod that does not come up says in its status why.
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
}

func onSIGTERM(w harness.Workload) string {
	if w.OnSIGTERM == harness.SIGTERMWait {
		return fmt.Sprintf("%s=%s", w.OnSIGTERM, w.SIGTERMWait)
	}
	return string(w.OnSIGTERM)
}

func responseTime(w harness.Workload) string {
	return fmt.Sprintf("p50=%s,p99=%s", w.ResponseTime.P50, w.ResponseTime.P99)
}
