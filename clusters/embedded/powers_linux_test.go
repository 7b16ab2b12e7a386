package embedded

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"lameduck/clusters"
)

func TestParseProxySettings(t *testing.T) {
	config := []byte(`{"kubeproxy.config.k8s.io":{"kind":"KubeProxyConfiguration","mode":"nftables",
		"iptables":{"minSyncPeriod":"1s","syncPeriod":"30s"},"nftables":{"minSyncPeriod":"100ms","syncPeriod":"30s"}}}`)
	for mode, want := range map[string]time.Duration{"iptables": time.Second, "nftables": 100 * time.Millisecond} {
		got, err := parseProxySettings(mode, config)
		if err != nil || got != (clusters.KubeProxySettings{Mode: mode, MinSyncPeriod: want}) {
			t.Errorf("%s: %+v, %v", mode, got, err)
		}
	}
	for _, bad := range [][2]string{{"ipvs", string(config)}, {"iptables", "{}"}, {"iptables", "not found"}} {
		if got, err := parseProxySettings(bad[0], []byte(bad[1])); err == nil {
			t.Errorf("%s of %s: %+v and no error", bad[0], bad[1], got)
		}
	}
}

func TestLastSync(t *testing.T) {
	const help = "# TYPE kubeproxy_sync_proxy_rules_last_timestamp_seconds gauge\n"
	const metric = "kubeproxy_sync_proxy_rules_last_timestamp_seconds"
	for text, want := range map[string]bool{
		help: false,
		help + metric + `{ip_family="IPv4"} 0` + "\n":                      false,
		help + metric + `{ip_family="IPv4"} 1.7966145781526206e+09` + "\n": true,
	} {
		if got := lastSync.MatchString(text); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}

func TestProxyRules(t *testing.T) {
	// What the kubelet makes is not kube-proxy's.
	if proxyRules["iptables"].MatchString(":KUBE-KUBELET-CANARY - [0:0]\n:KUBE-FIREWALL - [0:0]\n") {
		t.Error("the kubelet's chains are taken for kube-proxy's")
	}
	if !proxyRules["iptables"].MatchString("-A PREROUTING -j KUBE-SERVICES\n") {
		t.Error("kube-proxy's jump is not seen")
	}
	if !proxyRules["nftables"].MatchString("table ip lameduck\ntable ip kube-proxy\n") {
		t.Error("kube-proxy's table is not seen")
	}
}

func TestFlow(t *testing.T) {
	f := &netlink.ConntrackFlow{
		Forward: netlink.IPTuple{
			Protocol: unix.IPPROTO_TCP, SrcIP: net.IP{198, 18, 0, 5}, SrcPort: 40000, DstIP: net.IP{198, 18, 0, 11}, DstPort: 30080,
		},
		Reverse:   netlink.IPTuple{SrcIP: net.IP{198, 19, 1, 2}, SrcPort: 8080, DstIP: net.IP{198, 18, 0, 11}, DstPort: 1024},
		ProtoInfo: &netlink.ProtoInfoTCP{State: 5},
	}
	want := clusters.Flow{
		State: "CLOSE_WAIT", Source: netip.MustParseAddrPort("198.18.0.5:40000"),
		Destination: netip.MustParseAddrPort("198.18.0.11:30080"), Reply: netip.MustParseAddrPort("198.19.1.2:8080"),
	}
	if got := flow(f); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestLoseLink(t *testing.T) {
	for share, want := range map[float64]string{0.05: "mod 100000 < 5000 ", 0.0000001: "mod 100000 < 1 "} {
		if got := loseLink("n1", share); strings.Count(got, want) != 2 {
			t.Errorf("share %g: want %q twice in\n%s", share, want, got)
		}
	}
}
