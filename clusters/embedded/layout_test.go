package embedded

import (
	"net/netip"
	"strings"
	"testing"

	"lameduck/clusters/embedded/network"
)

func TestAddresses(t *testing.T) {
	if got := nodeAddress(MaxNodes).String(); got != "198.18.0.30" {
		t.Errorf("address of the last node is %s", got)
	}
	if got := nodePods(2).String(); got != "198.19.2.0/24" {
		t.Errorf("pods of n2 are %s", got)
	}
	if got := kubernetesSvc.String(); got != "198.18.128.1" {
		t.Errorf("Service kubernetes is %s", got)
	}
	used := map[netip.Addr]string{subnet.Addr(): hostVPC}
	for _, h := range (layout{name: "x"}).topology(MaxNodes, network.Drop).Hosts {
		if other, twice := used[h.Address]; twice {
			t.Errorf("%s and %s have the same address %s", h.Name, other, h.Address)
		}
		used[h.Address] = h.Name
		if !subnet.Masked().Contains(h.Address) || serviceRange.Contains(h.Address) || podRange.Contains(h.Address) {
			t.Errorf("%s has address %s, which is not in the subnet of hosts alone", h.Name, h.Address)
		}
		if h.Pods.IsValid() && !podRange.Overlaps(h.Pods) {
			t.Errorf("pods of %s are %s, outside of %s", h.Name, h.Pods, podRange)
		}
	}
}

func TestTopology(t *testing.T) {
	top := layout{name: "x"}.topology(2, network.Reset)
	var names []string
	for _, h := range top.Hosts {
		names = append(names, h.Namespace)
		isNode := strings.HasPrefix(h.Name, "n")
		if h.Pods.IsValid() != isNode || (h.Dead == network.Reset) != isNode || (h.Sysctls["ipv4/ip_forward"] == "1") != isNode {
			t.Errorf("%s: %+v", h.Name, h)
		}
	}
	if got, want := strings.Join(names, " "), "lameduck-x-cp lameduck-x-lb lameduck-x-client lameduck-x-n1 lameduck-x-n2"; got != want {
		t.Errorf("hosts are %s", got)
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "lameduck": true, "a-b": true, "0": true, strings.Repeat("a", 40): true,
		"": false, "A": false, "-a": false, "a-": false, "a/b": false, "..": false, "a b": false, strings.Repeat("a", 41): false,
	} {
		if got := validName.MatchString(name); got != want {
			t.Errorf("%q: valid is %t", name, got)
		}
	}
}

// A cluster must never own what belongs to one whose name is longer.
func TestNetnsPattern(t *testing.T) {
	for ns, owner := range map[string]string{
		"lameduck-a-cp": "a", "lameduck-a-n12": "a", "lameduck-a-b-cp": "a-b", "lameduck-a-n1-cp": "a-n1",
		"lameduck-a-vpc": "a", "lameduck-a": "", "lameduck-a-nx": "", "other-a-cp": "", "lameduck-a-cp-": "",
	} {
		for _, name := range []string{"a", "a-b", "a-n1", "b"} {
			if got := (layout{name: name}).netnsPattern().MatchString(ns); got != (name == owner) {
				t.Errorf("cluster %s owns %s: %t", name, ns, got)
			}
		}
		m := netnsName.FindStringSubmatch(ns)
		if owner == "" && m != nil || owner != "" && (m == nil || m[1] != owner) {
			t.Errorf("%s: found cluster in %v, want %q", ns, m, owner)
		}
	}
}

func TestInfo(t *testing.T) {
	l := layout{name: "x", dir: t.TempDir()}
	want := info{Name: "x", Nodes: 3, DeadAddress: network.Drop, Published: map[string]string{"api": "https://127.0.0.1:1"}, Ready: true}
	if err := l.writeInfo(want); err != nil {
		t.Fatal(err)
	}
	got, err := l.readInfo()
	if err != nil || got.Nodes != 3 || !got.Ready || got.Published["api"] != want.Published["api"] {
		t.Errorf("got %+v, %v", got, err)
	}
}
