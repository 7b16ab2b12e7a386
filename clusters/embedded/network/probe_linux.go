package network

import (
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// probeRules need the kernel features that kube-proxy needs.
const probeRules = `*nat
-A PREROUTING -m addrtype --dst-type LOCAL -m comment --comment probe -j ACCEPT
-A PREROUTING -p tcp -m statistic --mode random --probability 0.5 -j DNAT --to-destination 198.19.1.2:80
-A POSTROUTING -m mark --mark 0x4000/0x4000 -j MASQUERADE
COMMIT
*filter
-A FORWARD -m conntrack --ctstate INVALID -j DROP
-A FORWARD -j REJECT
COMMIT
`

// Probe tries, in a namespace that is gone afterwards, whether the kernel has
// what a cluster's network needs.
func Probe() error {
	return onOwnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("create a network namespace: %w", err)
		}
		nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer nl.Close()
		attrs := netlink.NewLinkAttrs()
		attrs.Name = bridge
		if err := nl.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
			return fmt.Errorf("create a bridge (kernel option BRIDGE): %w", err)
		}
		attrs.Name = "probe0"
		if err := nl.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "probe1"}); err != nil {
			return fmt.Errorf("create a veth pair (kernel option VETH): %w", err)
		}
		cmd := exec.Command("iptables-restore", "--noflush") // forked by this thread, so in its namespace
		// The older iptables takes a lock in a file that would stay behind.
		cmd.Env = append(os.Environ(), "XTABLES_LOCKFILE=/dev/null")
		cmd.Stdin = strings.NewReader(probeRules)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("set up NAT with iptables (kernel options NF_NAT, NF_CONNTRACK, NETFILTER_XT_*): %w: %s",
				err, strings.TrimSpace(string(out)))
		}
		return nil
	})
}
