package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"lameduck/clusters/alb/elb"
)

// A readiness gate's condition has the reason and description of its target
// and is true when the target is healthy (controller,
// pkg/targetgroupbinding/resource_manager.go). Nothing wakes the controller
// when a target becomes healthy: it asks every Options.HealthInterval.

func isTargetHealth(t corev1.PodConditionType) bool {
	return strings.HasPrefix(string(t), targetHealthPrefix)
}

func hasGate(pod *corev1.Pod, condition corev1.PodConditionType) bool {
	return slices.ContainsFunc(pod.Spec.ReadinessGates, func(g corev1.PodReadinessGate) bool { return g.ConditionType == condition })
}

// setGates tells pods with the binding's readiness gate how their targets are.
// health is from before new ones were registered. unhealthy says that a pod
// still waits.
func (c *Controller) setGates(ctx context.Context, b *binding, found endpoints, health []elb.TargetHealth) (unhealthy bool, err error) {
	condition := b.condition()
	var errs []error
	byTarget := make(map[netip.AddrPort]elb.TargetHealth, len(health))
	for _, h := range health {
		if h.State != elb.StateDraining {
			byTarget[h.Target] = h
		}
	}
	for target, pod := range found {
		if pod == nil || !hasGate(pod, condition) {
			continue
		}
		h, ok := byTarget[target]
		if !ok { // it was registered just now
			h = elb.TargetHealth{State: elb.StateInitial, Reason: elb.ReasonRegistrationInProgress, Description: "Target registration is in progress"}
		}
		if h.State != elb.StateHealthy {
			unhealthy = true
		}
		errs = append(errs, c.setCondition(ctx, pod, condition, h))
	}
	return unhealthy, errors.Join(errs...)
}

// openGates lets the pods of a binding that is no more be ready.
func (c *Controller) openGates(ctx context.Context, b *binding) error {
	if b.targetType != elb.TargetIP {
		return nil
	}
	pods, err := c.pods.Pods(b.namespace).List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	var errs []error
	for _, pod := range pods {
		if hasGate(pod, b.condition()) {
			errs = append(errs, c.setCondition(ctx, pod, b.condition(), elb.TargetHealth{
				State: elb.StateHealthy, Description: "Target Group Binding is deleted",
			}))
		}
	}
	return errors.Join(errs...)
}

// setCondition writes a condition unless the pod has it already.
func (c *Controller) setCondition(ctx context.Context, pod *corev1.Pod, kind corev1.PodConditionType, h elb.TargetHealth) error {
	status := corev1.ConditionFalse
	if h.State == elb.StateHealthy {
		status = corev1.ConditionTrue
	}
	since := metav1.Now()
	if i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind }); i >= 0 {
		old := pod.Status.Conditions[i]
		if old.Status == status && old.Reason == h.Reason && old.Message == h.Description {
			return nil
		}
		if old.Status == status {
			since = old.LastTransitionTime
		}
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID}, // not the next pod of this name
		"status": map[string]any{"conditions": []map[string]any{{
			"type": kind, "status": status, "lastTransitionTime": since,
			"reason": orNull(h.Reason), "message": orNull(h.Description),
		}}},
	})
	if err != nil {
		return fmt.Errorf("make patch: %w", err)
	}
	_, err = c.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // gone, or another pod now
		return fmt.Errorf("set readiness gate of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// orNull makes a patch remove a field that has no value any more.
func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}
