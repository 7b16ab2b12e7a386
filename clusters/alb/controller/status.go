package controller

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

	"lameduck/clusters/alb/elb"
)

// Reasons of Events, as the AWS Load Balancer Controller names them; the last
// is ours, since the controller has nothing that it ignores.
const (
	reasonReconciled   = "SuccessfullyReconciled"
	reasonFailedBuild  = "FailedBuildModel"
	reasonFailedDeploy = "FailedDeployModel"
	reasonIgnored      = "Ignored"
)

// setStatus tells where the load balancer listens: an address for each node. It
// comes after the listeners, so that who reads it can connect.
func (c *Controller) setStatus(ctx context.Context, ing *networkingv1.Ingress, listeners []elb.Listener) error {
	var want networkingv1.IngressLoadBalancerStatus
	for _, addr := range c.options.Addresses {
		at := networkingv1.IngressLoadBalancerIngress{IP: addr.String()}
		for _, l := range listeners {
			at.Ports = append(at.Ports, networkingv1.IngressPortStatus{Port: int32(l.Port), Protocol: corev1.ProtocolTCP})
		}
		want.Ingress = append(want.Ingress, at)
	}
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
func (c *Controller) say(ing *networkingv1.Ingress, warnings []string, reason, failure string) {
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
		c.events.Event(ing, corev1.EventTypeNormal, reason, "Successfully reconciled")
		return
	}
	fmt.Fprintf(c.options.Messages, "%s: %s: %s\n", key, reason, failure)
	c.events.Event(ing, corev1.EventTypeWarning, reason, failure)
}
