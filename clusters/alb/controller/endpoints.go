package controller

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// endpoints are the targets that a Service asks for, with their pods. A pod
// that is not known yet is nil.
type endpoints map[netip.AddrPort]*corev1.Pod

// resolveEndpoints reads the targets of a Service port from its EndpointSlices
// (controller, pkg/backend/endpoint_resolver.go). portName is the Service
// port's: slices have its number already, which may differ between pods. Of a
// dual-stack Service only the IPv4 slices count, a target group being IPv4.
//
// waiting says that a pod without its readiness gate may become a target
// without any change of a slice.
func (c *Controller) resolveEndpoints(b *binding, portName string) (found endpoints, waiting bool, err error) {
	slices, err := c.slices.EndpointSlices(b.namespace).List(labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: b.service}))
	if err != nil {
		return nil, false, fmt.Errorf("list endpoint slices: %w", err)
	}
	found = make(endpoints)
	for _, s := range slices {
		if s.AddressType != discoveryv1.AddressTypeIPv4 {
			continue
		}
		for _, p := range s.Ports {
			if p.Port == nil || portName != "" && (p.Name == nil || *p.Name != portName) {
				continue
			}
			for i := range s.Endpoints {
				wait := c.addEndpoint(found, b, &s.Endpoints[i], uint16(*p.Port))
				waiting = waiting || wait
			}
		}
	}
	return found, waiting, nil
}

func (c *Controller) addEndpoint(found endpoints, b *binding, ep *discoveryv1.Endpoint, port uint16) (waiting bool) {
	if ep.TargetRef == nil || ep.TargetRef.Kind != "Pod" || len(ep.Addresses) == 0 {
		return false
	}
	addr, err := netip.ParseAddr(ep.Addresses[0])
	if err != nil {
		return false // the API server checks it
	}
	pod, err := c.pods.Pods(b.namespace).Get(ep.TargetRef.Name)
	if err != nil { // a lister over memory knows no other error than not found
		pod = nil
	}
	target := netip.AddrPortFrom(addr, port)
	switch {
	case isTrue(ep.Conditions.Ready):
		found[target] = pod
		return pod == nil
	case pod == nil:
		return !isTrue(ep.Conditions.Terminating)
	case !podCondition(pod, corev1.ContainersReady):
		return hasGate(pod, b.condition())
	case isTrue(ep.Conditions.Terminating):
	case c.onReadyNode(pod):
		// Ready but for its readiness gates: it must be a target to get past
		// this one.
		found[target] = pod
	default: // its node is looked at again
		return hasGate(pod, b.condition())
	}
	return false
}

func isTrue(b *bool) bool { return b != nil && *b }

func (c *Controller) onReadyNode(pod *corev1.Pod) bool {
	n, err := c.nodes.Get(pod.Spec.NodeName)
	return err == nil && nodeReady(n)
}

// podCondition says whether a pod has a condition that is true.
func podCondition(pod *corev1.Pod, kind corev1.PodConditionType) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == kind && c.Status == corev1.ConditionTrue
	})
}

// trimPod keeps what is needed of a pod, so that thousands take little memory.
func trimPod(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	trimmed := &corev1.Pod{}
	trimmed.Namespace, trimmed.Name, trimmed.UID = pod.Namespace, pod.Name, pod.UID
	trimmed.ResourceVersion = pod.ResourceVersion
	trimmed.Spec.NodeName, trimmed.Spec.ReadinessGates = pod.Spec.NodeName, pod.Spec.ReadinessGates
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.ContainersReady || isTargetHealth(c.Type) {
			trimmed.Status.Conditions = append(trimmed.Status.Conditions, c)
		}
	}
	return trimmed, nil
}
