package controller

import (
	"context"
	"encoding/json"
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

// Reasons of Events, as the AWS Load Balancer Controller names them
// (controller, pkg/k8s/events.go).
const (
	reasonReconciled   = "SuccessfullyReconciled"
	reasonFailedGroup  = "FailedLoadGroupID"
	reasonFailedBuild  = "FailedBuildModel"
	reasonFailedDeploy = "FailedDeployModel"
	reasonFailedStatus = "FailedUpdateStatus"
)

// Reasons that are ours: the controller has nothing that it ignores, and only
// logs why it could not set targets.
const (
	reasonIgnored       = "Ignored"
	reasonFailedTargets = "FailedRegisterTargets"
)

// setStatus tells where the load balancer listens: the addresses of all its
// nodes, which stand for what the name of an ALB resolves to. It comes after
// the listeners, so that who reads it can connect.
func (c *Controller) setStatus(ctx context.Context, ing *networkingv1.Ingress, listeners []elb.Listener) error {
	var ports []networkingv1.IngressPortStatus
	for _, l := range listeners {
		ports = append(ports, networkingv1.IngressPortStatus{Port: int32(l.Port), Protocol: corev1.ProtocolTCP})
	}
	var want networkingv1.IngressLoadBalancerStatus
	for _, addr := range c.options.Addresses {
		want.Ingress = append(want.Ingress, networkingv1.IngressLoadBalancerIngress{IP: addr.String(), Ports: ports})
	}
	if equality.Semantic.DeepEqual(ing.Status.LoadBalancer, want) {
		return nil
	}
	// A patch, which no change of the spec in the meantime conflicts with.
	patch, err := json.Marshal(map[string]any{"status": networkingv1.IngressStatus{LoadBalancer: want}})
	if err != nil {
		return fmt.Errorf("make patch: %w", err)
	}
	_, err = c.client.NetworkingV1().Ingresses(ing.Namespace).Patch(ctx, ing.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write ingress status: %w", err)
	}
	return nil // deleted meanwhile: that is an event of its own
}

// outcome of a reconciliation; failure "" is success.
type outcome struct {
	reason, failure string
	warnings        []string
}

// say writes Events about an outcome to every Ingress of a group, unless it is
// the same as the last one of that Ingress as it is now: who changed it waits
// for the Event that the change is in force.
func (c *Controller) say(group ingressGroup, o outcome) {
	all := o.reason + "\n" + o.failure + "\n" + strings.Join(o.warnings, "\n")
	told := false
	for _, ing := range group.members {
		key := types.NamespacedName{Namespace: ing.Namespace, Name: ing.Name}
		said := fmt.Sprint(all, ing.Generation, ing.Annotations)
		if c.said[key] == said {
			continue
		}
		c.said[key] = said
		for _, w := range o.warnings {
			c.events.Event(ing, corev1.EventTypeWarning, reasonIgnored, w)
		}
		if o.failure == "" {
			c.events.Event(ing, corev1.EventTypeNormal, o.reason, "listening on "+c.addresses())
			continue
		}
		c.events.Event(ing, corev1.EventTypeWarning, o.reason, o.failure)
		if !told {
			c.message("%s: %s: %s", group.key, o.reason, o.failure)
			told = true
		}
	}
}

func (c *Controller) addresses() string {
	var list []string
	for _, a := range c.options.Addresses {
		list = append(list, a.String())
	}
	return strings.Join(list, ", ")
}

func (c *Controller) message(format string, args ...any) {
	fmt.Fprintf(c.options.Messages, format+"\n", args...)
}
