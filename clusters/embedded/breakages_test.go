package embedded

import (
	"net/netip"
	"strings"
	"testing"

	"lameduck/clusters"
)

func TestCheckBreakage(t *testing.T) {
	pod := []netip.Addr{netip.MustParseAddr("198.19.2.7")}
	for _, c := range []struct {
		b    clusters.Breakage
		want string // in the error; "": none
	}{
		{clusters.Breakage{Kind: clusters.BreakDropFIN, Node: "n2", Addresses: pod}, ""},
		{clusters.Breakage{Kind: clusters.BreakPacketLoss, Node: "n1", Share: 0.01}, ""},
		{clusters.Breakage{Kind: clusters.BreakLinkDown, Node: "n1"}, ""},
		{clusters.Breakage{Kind: clusters.BreakSlowAPIServer, Share: 0.5}, ""},
		{clusters.Breakage{Kind: clusters.BreakPauseAPIServer}, ""},
		{clusters.Breakage{Kind: clusters.BreakPauseKubelet, Node: "n2"}, ""},
		{clusters.Breakage{Kind: clusters.BreakPauseKubeProxy, Node: "n2"}, ""},
		{clusters.Breakage{Kind: "flood", Node: "n1"}, `kind "flood"`},
		{clusters.Breakage{Kind: clusters.BreakLinkDown, Node: "n3"}, `node "n3": want one of [n1 n2]`},
		{clusters.Breakage{Kind: clusters.BreakPauseKubelet}, `node ""`},
		{clusters.Breakage{Kind: clusters.BreakLinkDown, Node: "../cp"}, "want one of"},
		{clusters.Breakage{Kind: clusters.BreakPacketLoss, Node: "n1"}, "share is 0"},
		{clusters.Breakage{Kind: clusters.BreakSlowAPIServer, Share: 1}, "share is 1"},
		{clusters.Breakage{Kind: clusters.BreakDropFIN, Node: "n1"}, "no addresses"},
		{clusters.Breakage{Kind: clusters.BreakDropFIN, Node: "n1", Addresses: pod}, "198.19.2.7: want that of a pod on n1, in 198.19.1.0/24"},
	} {
		err := checkBreakage(c.b, 2)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: error %v, want %q", c.b, err, c.want)
		}
	}
}
