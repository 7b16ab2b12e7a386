package embedded

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"

	"lameduck/clusters/embedded/network"
)

// What is dropped on purpose is dropped by nftables in tables of our own, which
// kube-proxy leaves alone in every mode. A script is one transaction, and each
// of these can be applied twice.

// finTable is in a node's namespace. Its hook comes before connection tracking,
// which then does not learn of the end of a connection either.
const finTable = `add table ip lameduck
add set ip lameduck pods { type ipv4_addr; }
add chain ip lameduck fin { type filter hook prerouting priority -310; }
flush chain ip lameduck fin
add rule ip lameduck fin ip saddr @pods tcp flags & (fin | rst) != 0 counter drop
`

func dropFIN(pods []netip.Addr) string {
	return finTable + fmt.Sprintf("add element ip lameduck pods { %s }\n", list(pods))
}

// passFIN adds the addresses first because only what is there can be deleted.
func passFIN(pods []netip.Addr) string {
	return dropFIN(pods) + fmt.Sprintf("delete element ip lameduck pods { %s }\n", list(pods))
}

func list(pods []netip.Addr) string {
	var s []string
	for _, a := range pods {
		s = append(s, a.String())
	}
	return strings.Join(s, ", ")
}

// passAllFIN removes finTable.
const passAllFIN = "add table ip lameduck\ndelete table ip lameduck\n"

// parts is the resolution of a share of packets.
const parts = 100000

// loseLink is for the router's namespace: the table loses packets on the router's
// end of a host's link, the interface of the host's name, where a sender is not
// told of it.
func loseLink(host string, share float64) string {
	lose := fmt.Sprintf("numgen random mod %d < %d counter drop", parts, max(1, int(share*parts)))
	return passLink(host) + strings.NewReplacer("HOST", host, "LOSE", lose).Replace(`add table bridge lameduck-HOST
add chain bridge lameduck-HOST from { type filter hook prerouting priority 0; }
add chain bridge lameduck-HOST to { type filter hook postrouting priority 0; }
add rule bridge lameduck-HOST from iifname "HOST" LOSE
add rule bridge lameduck-HOST to oifname "HOST" LOSE
`)
}

func passLink(host string) string {
	return fmt.Sprintf("add table bridge lameduck-%[1]s\ndelete table bridge lameduck-%[1]s\n", host)
}

// nft applies a script in a host's network namespace.
func (l layout) nft(ctx context.Context, host, script string) error {
	cmd := exec.CommandContext(ctx, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	_, err := l.output(cmd, host)
	return err
}

// output runs a command in a host's network namespace.
func (l layout) output(cmd *exec.Cmd, host string) (string, error) {
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := network.Inside(l.netnsPath(host), cmd.Run); err != nil {
		return "", fmt.Errorf("%s on %s: %w: %s", strings.Join(cmd.Args, " "), host, err, bytes.TrimSpace(complaint.Bytes()))
	}
	return out.String(), nil
}

// hasTable says whether nft list tables has a table.
func hasTable(tables, name string) bool {
	return slices.Contains(strings.Split(tables, "\n"), "table "+name)
}

// dropsFIN says whether the rule of finTable has an address to drop from: mended
// by passFIN the table stays, and matches nothing.
func (l layout) dropsFIN(ctx context.Context, host string) (bool, error) {
	tables, err := l.output(exec.CommandContext(ctx, "nft", "list", "tables"), host)
	if err != nil || !hasTable(tables, "ip lameduck") {
		return false, err
	}
	set, err := l.output(exec.CommandContext(ctx, "nft", "list", "set", "ip", "lameduck", "pods"), host)
	return strings.Contains(set, "elements"), err
}

// losesPackets says whether the table of loseLink is there.
func (l layout) losesPackets(ctx context.Context, host string) (bool, error) {
	tables, err := l.output(exec.CommandContext(ctx, "nft", "list", "tables"), hostVPC)
	return hasTable(tables, "bridge lameduck-"+host), err
}
