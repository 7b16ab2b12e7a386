package controller

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// The labels and taints by which the AWS Load Balancer Controller leaves a
// node out of instance target groups.
const (
	excludeLabel    = "node.kubernetes.io/exclude-from-external-load-balancers"
	autoscalerTaint = "ToBeDeletedByClusterAutoscaler"
	karpenterTaint  = "karpenter.sh/disrupted"
)

// nodeAddress is where an instance target group reaches the node; ok says
// whether it is a target at all. A cordoned node is one.
func nodeAddress(n *corev1.Node) (addr netip.Addr, ok bool) {
	if _, excluded := n.Labels[excludeLabel]; excluded {
		return netip.Addr{}, false
	}
	for _, t := range n.Spec.Taints {
		if t.Key == autoscalerTaint || t.Key == karpenterTaint {
			return netip.Addr{}, false
		}
	}
	if !nodeReady(n) {
		return netip.Addr{}, false
	}
	for _, a := range n.Status.Addresses {
		// A dual-stack node has one of each; target groups are IPv4.
		if addr, err := netip.ParseAddr(a.Address); a.Type == corev1.NodeInternalIP && err == nil && addr.Is4() {
			return addr, true
		}
	}
	return netip.Addr{}, false
}

func nodeReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// instanceTargets are the nodes at a nodePort. Pods and endpoints are not
// looked at: in instance mode a target stays when its pods go.
func instanceTargets(nodes []*corev1.Node, nodePort uint16) map[netip.AddrPort]bool {
	targets := make(map[netip.AddrPort]bool, len(nodes))
	for _, n := range nodes {
		if addr, ok := nodeAddress(n); ok {
			targets[netip.AddrPortFrom(addr, nodePort)] = true
		}
	}
	return targets
}
