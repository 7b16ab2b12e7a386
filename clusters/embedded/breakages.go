package embedded

import (
	"fmt"
	"slices"

	"lameduck/clusters"
)

// checkBreakage says what is wrong with a breakage on a cluster with so many
// nodes.
func checkBreakage(b clusters.Breakage, nodes int) error {
	ofNode := true
	switch b.Kind {
	case clusters.BreakDropFIN, clusters.BreakPacketLoss, clusters.BreakLinkDown,
		clusters.BreakPauseKubelet, clusters.BreakPauseKubeProxy:
	case clusters.BreakSlowAPIServer, clusters.BreakPauseAPIServer:
		ofNode = false
	default:
		return fmt.Errorf("kind %q is not known", b.Kind)
	}
	var names []string
	for n := 1; n <= nodes; n++ {
		names = append(names, nodeName(n))
	}
	number := slices.Index(names, b.Node) + 1
	if ofNode && number == 0 {
		return fmt.Errorf("node %q: want one of %v", b.Node, names)
	}
	if b.Kind == clusters.BreakPacketLoss || b.Kind == clusters.BreakSlowAPIServer {
		if !(b.Share > 0 && b.Share < 1) {
			return fmt.Errorf("share is %g: want more than 0 and less than 1", b.Share)
		}
	}
	if b.Kind == clusters.BreakDropFIN {
		if len(b.Addresses) == 0 {
			return fmt.Errorf("no addresses: want those of pods on %s", b.Node)
		}
		for _, a := range b.Addresses {
			if !nodePods(number).Contains(a) {
				return fmt.Errorf("address %s: want that of a pod on %s, in %s", a, b.Node, nodePods(number))
			}
		}
	}
	return nil
}
