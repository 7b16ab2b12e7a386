package alb

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Reasons of Events, as the AWS Load Balancer Controller names them; the last
// is ours, since the controller has nothing that it ignores.
const (
	reasonReconciled   = "SuccessfullyReconciled"
	reasonFailedBuild  = "FailedBuildModel"
	reasonFailedDeploy = "FailedDeployModel"
	reasonIgnored      = "Ignored"
)

// setStatus tells where the load balancer listens. It comes after the
// listener, so that who reads it can connect.
func (c *controller) setStatus(ctx context.Context, ing *networkingv1.Ingress, ports []uint16) error {
	at := networkingv1.IngressLoadBalancerIngress{IP: c.env.address}
	for _, p := range ports {
		at.Ports = append(at.Ports, networkingv1.IngressPortStatus{Port: int32(p), Protocol: corev1.ProtocolTCP})
	}
	want := networkingv1.IngressLoadBalancerStatus{Ingress: []networkingv1.IngressLoadBalancerIngress{at}}
	if equality.Semantic.DeepEqual(ing.Status.LoadBalancer, want) {
		return nil
	}
	changed := ing.DeepCopy()
	changed.Status.LoadBalancer = want
	_, err := c.client.NetworkingV1().Ingresses(ing.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write ingress status: %w", err)
	}
	return nil // deleted meanwhile: that is an event of its own
}

// say writes Events about the outcome of a reconciliation, unless it is the
// same as last time.
func (c *controller) say(ing *networkingv1.Ingress, warnings []string, reason, failure string) {
	key := types.NamespacedName{Namespace: ing.Namespace, Name: ing.Name}
	all := reason + "\n" + failure + "\n" + strings.Join(warnings, "\n")
	if c.said[key] == all {
		return
	}
	c.said[key] = all
	for _, w := range warnings {
		c.events.Event(ing, corev1.EventTypeWarning, reasonIgnored, w)
	}
	if failure == "" {
		c.events.Event(ing, corev1.EventTypeNormal, reason, "listening on "+c.env.address)
		return
	}
	fmt.Fprintf(c.env.messages, "%s: %s: %s\n", key, reason, failure)
	c.events.Event(ing, corev1.EventTypeWarning, reason, failure)
}
