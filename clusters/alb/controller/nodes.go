package controller

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
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
func nodeAddress(n *corev1.Node) (addr string, ok bool) {
	if _, excluded := n.Labels[excludeLabel]; excluded {
		return "", false
	}
	for _, t := range n.Spec.Taints {
		if t.Key == autoscalerTaint || t.Key == karpenterTaint {
			return "", false
		}
	}
	ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	if !ready {
		return "", false
	}
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address, true
		}
	}
	return "", false
}

// instanceTargets are the nodes at a nodePort, of those that selector matches.
// Pods and endpoints are not looked at: in instance mode a target stays when its
// pods go.
func instanceTargets(nodes []*corev1.Node, selector labels.Selector, nodePort int32) []netip.AddrPort {
	var targets []netip.AddrPort
	for _, n := range nodes {
		addr, ok := nodeAddress(n)
		if !ok || !selector.Matches(labels.Set(n.Labels)) {
			continue
		}
		if ip, err := netip.ParseAddr(addr); err == nil {
			targets = append(targets, netip.AddrPortFrom(ip, uint16(nodePort)))
		}
	}
	return targets
}
