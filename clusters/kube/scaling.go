package kube

import (
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"lameduck/harness"
	"lameduck/harness/evidence"
)

const (
	// cpuTarget is the HPA's target, in percent of the CPU request. A pod that
	// burns its request is far above it and an idle one far below, so that
	// neither the HPA's tolerance of 10 % nor the load's own use matters.
	cpuTarget = 50
	// stabilization is how long the HPA looks back for a higher recommendation
	// before it scales in, where the setup does not say. The default of 300 s would
	// add five minutes to each trial; one scrape of metrics-server (15 s by default)
	// is enough that no single odd sample removes pods.
	stabilization = 15
)

// hpa scales the workload by its CPU.
func (m maker) hpa(names Names) *autoscalingv2.HorizontalPodAutoscaler {
	target := int32(cpuTarget)
	h := &autoscalingv2.HorizontalPodAutoscaler{
		TypeMeta:   metav1.TypeMeta{APIVersion: "autoscaling/v2", Kind: "HorizontalPodAutoscaler"},
		ObjectMeta: m.meta(names.HPA),
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: names.Deployment},
			Metrics: []autoscalingv2.MetricSpec{{
				Type: autoscalingv2.ResourceMetricSourceType,
				Resource: &autoscalingv2.ResourceMetricSource{
					Name:   corev1.ResourceCPU,
					Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &target},
				},
			}},
		},
	}
	m.bound(h)
	return h
}

// bound gives an HPA bounds between which the controller cannot move, except
// where it must be free to follow its metric down, and the behaviour that the
// setup asks for.
func (m maker) bound(h *autoscalingv2.HorizontalPodAutoscaler) {
	s := m.trial.Setup
	minReplicas := int32(s.Workload.Replicas)
	h.Spec.MaxReplicas = minReplicas
	asked := s.Workload.HPA
	var window *int32 // where nobody says; nil: Kubernetes' default
	switch s.Scenario.Drive {
	case harness.DriveMetric:
		minReplicas, window = int32(s.Scenario.To), new(int32)
		h.Spec.Metrics = []autoscalingv2.MetricSpec{metricSpec()}
	case harness.DriveCPU:
		minReplicas, window = int32(s.Scenario.To), new(int32(stabilization))
	}
	h.Spec.MinReplicas = &minReplicas

	if window == nil && asked == (harness.HPABehavior{}) {
		return
	}
	if h.Spec.Behavior == nil {
		h.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{}
	}
	if h.Spec.Behavior.ScaleDown == nil {
		h.Spec.Behavior.ScaleDown = &autoscalingv2.HPAScalingRules{}
	}
	down := h.Spec.Behavior.ScaleDown
	if asked.Stabilization.Duration > 0 {
		down.StabilizationWindowSeconds = new(int32(wholeSeconds(asked.Stabilization)))
	} else if down.StabilizationWindowSeconds == nil {
		down.StabilizationWindowSeconds = window
	}
	if asked.Pods > 0 {
		down.SelectPolicy = nil
		down.Policies = []autoscalingv2.HPAScalingPolicy{{
			Type: autoscalingv2.PodsScalingPolicy, Value: int32(asked.Pods), PeriodSeconds: int32(wholeSeconds(asked.Period)),
		}}
	}
}

// budget limits evictions of the workload's pods, of both colours; nil if the
// setup does not ask for one.
func (m maker) budget(names Names) *policyv1.PodDisruptionBudget {
	asked := m.trial.Setup.Workload.PodDisruptionBudget
	if asked == "" {
		return nil
	}
	available := intstr.Parse(asked)
	return &policyv1.PodDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"},
		ObjectMeta: m.meta(names.Budget),
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &available,
			Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{evidence.RoleLabel: evidence.RoleApp}},
		},
	}
}

// rollout sets what the setup asks for of a rolling update.
func (m maker) rollout(spec *appsv1.DeploymentSpec) {
	w := m.trial.Setup.Workload
	if w.MinReadySeconds > 0 {
		spec.MinReadySeconds = int32(w.MinReadySeconds)
	}
	if w.MaxSurge == "" && w.MaxUnavailable == "" {
		return
	}
	if spec.Strategy.RollingUpdate == nil {
		spec.Strategy = appsv1.DeploymentStrategy{
			Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{},
		}
	}
	set := func(to **intstr.IntOrString, asked string) {
		if asked != "" {
			value := intstr.Parse(asked)
			*to = &value
		}
	}
	set(&spec.Strategy.RollingUpdate.MaxSurge, w.MaxSurge)
	set(&spec.Strategy.RollingUpdate.MaxUnavailable, w.MaxUnavailable)
}
