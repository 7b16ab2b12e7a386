package embedded

import (
	"slices"
	"testing"
	"time"

	"lameduck/clusters"
)

func TestAltered(t *testing.T) {
	made := condition{linkUp: true, proxy: kubeProxyDefaults, proxyFile: true}
	for name, c := range map[string]struct {
		change func(*condition)
		want   []string
	}{
		"as made": {func(*condition) {}, nil},
		"stopped": {func(c *condition) { *c = condition{stopped: true} }, []string{"node n2 is stopped"}},
		"broken": {func(c *condition) { c.linkUp, c.losesPackets, c.dropsFIN = false, true, true }, []string{
			"the link of node n2 is down", "the link of node n2 loses packets", "node n2 drops FIN and RST of pods",
		}},
		"kube-proxy's mode": {func(c *condition) { c.proxy.Mode, c.proxyFile = "nftables", false }, []string{
			"kube-proxy of node n2 runs with mode nftables and minSyncPeriod 1s (was made with iptables and 1s)",
		}},
		"kube-proxy's period": {func(c *condition) { c.proxy.MinSyncPeriod = 10 * time.Second }, []string{
			"kube-proxy of node n2 runs with mode iptables and minSyncPeriod 10s (was made with iptables and 1s)",
		}},
		"kube-proxy's file": {func(c *condition) { c.proxyFile = false }, []string{
			"kube-proxy of node n2 has other settings in its file, and will start with them",
		}},
	} {
		is := made
		c.change(&is)
		if got := is.altered("n2"); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// A new cluster's kube-proxy must not count as changed.
func TestKubeProxyDefaultsAreTheFile(t *testing.T) {
	if kubeProxyConfig("/d", 1, clusters.KubeProxySettings{}) != kubeProxyConfig("/d", 1, kubeProxyDefaults) {
		t.Error("the file of a new node has other settings than kubeProxyDefaults")
	}
}

func TestHasTable(t *testing.T) {
	const tables = "table ip kube-proxy\ntable bridge lameduck-n12\ntable ip lameduck\n"
	for name, want := range map[string]bool{"ip lameduck": true, "bridge lameduck-n12": true, "bridge lameduck-n1": false, "ip lame": false} {
		if got := hasTable(tables, name); got != want {
			t.Errorf("%s: %t, want %t", name, got, want)
		}
	}
}
