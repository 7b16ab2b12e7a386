package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lameduck/clusters/alb/elb"
)

// gatePrefix is in front of the binding's name in a readiness gate (AWS Load
// Balancer Controller guide, Pod readiness gate).
const gatePrefix = "target-health.elbv2.k8s.aws/"

func gateOf(binding string) corev1.PodConditionType {
	return corev1.PodConditionType(gatePrefix + binding)
}

func hasGate(pod *corev1.Pod, binding string) bool {
	for _, g := range pod.Spec.ReadinessGates {
		if g.ConditionType == gateOf(binding) {
			return true
		}
	}
	return false
}

func condition(pod *corev1.Pod, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == t {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// waitsForGate says whether a pod is ready but for the gate of a binding.
func (c *Controller) waitsForGate(b bindingOf, name string) bool {
	pod, err := c.pods.Pods(b.ingress.Namespace).Get(name)
	if err != nil || pod.DeletionTimestamp != nil || !hasGate(pod, b.name) {
		return false
	}
	containers := condition(pod, corev1.ContainersReady)
	return containers != nil && containers.Status == corev1.ConditionTrue
}

// setGates writes the states of targets into the conditions of the pods that
// have a gate for them. It is true only while the target is healthy. elb tells
// of changes (Controller.TargetChanged), so nothing is polled.
func (c *Controller) setGates(ctx context.Context, b bindingOf, wanted []endpoint, present []elb.TargetHealth) error {
	states := make(map[netip.AddrPort]elb.TargetHealth)
	for _, p := range present {
		states[p.Target] = p
	}
	for _, e := range wanted {
		if e.pod == "" {
			continue
		}
		pod, err := c.pods.Pods(b.ingress.Namespace).Get(e.pod)
		if err != nil || !hasGate(pod, b.name) {
			continue
		}
		h, known := states[e.addr]
		if !known {
			h = elb.TargetHealth{State: elb.StateUnused, Reason: elb.ReasonNotRegistered, Description: "Target is not registered to the target group"}
		}
		if err := c.setGate(ctx, pod, gateOf(b.name), h); err != nil {
			return err
		}
	}
	return nil
}

func (c *Controller) setGate(ctx context.Context, pod *corev1.Pod, gate corev1.PodConditionType, h elb.TargetHealth) error {
	want := corev1.PodCondition{Type: gate, Status: corev1.ConditionFalse, Reason: h.Reason, Message: h.Description}
	if h.State == elb.StateHealthy {
		want.Status = corev1.ConditionTrue
	}
	have := condition(pod, gate)
	if have != nil && have.Status == want.Status && have.Reason == want.Reason && have.Message == want.Message {
		return nil
	}
	want.LastTransitionTime = metav1.Now()
	if have != nil && have.Status == want.Status {
		want.LastTransitionTime = have.LastTransitionTime
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID}, // not another pod of the same name
		"status":   map[string]any{"conditions": []corev1.PodCondition{want}},
	})
	if err != nil {
		return err
	}
	_, err = c.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // gone, or another one
	}
	if err != nil {
		return fmt.Errorf("set condition %s of pod %s/%s: %w", gate, pod.Namespace, pod.Name, err)
	}
	return nil
}
