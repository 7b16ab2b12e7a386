package network

import (
	"fmt"
	"net/netip"
	"path/filepath"
)

// Dir is where named network namespaces are, by the convention of ip-netns(8).
const Dir = "/run/netns"

// Path is the file of a named network namespace.
func Path(name string) string { return filepath.Join(Dir, name) }

// Topology is the whole network of a cluster.
type Topology struct {
	Router string       // namespace of the router
	Subnet netip.Prefix // the router's address in the subnet of all hosts
	Hosts  []Host
}

// Host is one simulated machine.
type Host struct {
	Name      string // of its interface on the router, at most 15 bytes
	Namespace string
	Address   netip.Addr
	More      []netip.Addr // further addresses
	// Pods are the addresses of this node's pods, routed to it by the router;
	// the zero Prefix for a host that is no node.
	Pods netip.Prefix
	// Dead is what happens to packets for an address in Pods that no pod has.
	Dead Dead
	// Sysctls are settings below /proc/sys/net of the host's namespace.
	Sysctls map[string]string
}

// Dead is what answers at the address of a pod that is gone.
type Dead string

// The answers. Which one a real network gives depends on its CNI plugin.
const (
	Drop        Dead = "drop"        // none, as in a cloud VPC
	Unreachable Dead = "unreachable" // ICMP host unreachable
	Reset       Dead = "reset"       // TCP RST
)

// ParseDead reads one of the answers; "" is Drop.
func ParseDead(s string) (Dead, error) {
	switch d := Dead(s); d {
	case "":
		return Drop, nil
	case Drop, Unreachable, Reset:
		return d, nil
	}
	return "", fmt.Errorf("dead address %q: want drop, unreachable or reset", s)
}
