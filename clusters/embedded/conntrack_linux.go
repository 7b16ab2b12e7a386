package embedded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"lameduck/clusters"
)

// tcpStates are the names of enum tcp_conntrack (linux/netfilter/nf_conntrack_tcp.h),
// as conntrack(8) writes them.
var tcpStates = [...]string{
	"NONE", "SYN_SENT", "SYN_RECV", "ESTABLISHED", "FIN_WAIT", "CLOSE_WAIT", "LAST_ACK", "TIME_WAIT", "CLOSE", "SYN_SENT2",
}

// conntrackReads is how often a table is read until nothing changed meanwhile.
const conntrackReads = 5

// Conntrack implements clusters.Conntrack. What begins or ends while the table
// is read may be in it or not.
func (c *Cluster) Conntrack(_ context.Context, node string) ([]clusters.Flow, error) {
	if _, err := c.number(node); err != nil {
		return nil, fmt.Errorf("read connection tracking: %w", err)
	}
	flows, err := conntrack(c.layout.netnsPath(node))
	if err != nil {
		return nil, fmt.Errorf("read connection tracking of %s: %w", node, err)
	}
	return flows, nil
}

func conntrack(path string) ([]clusters.Flow, error) {
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	nl, err := netlink.NewHandleAt(ns, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	defer nl.Close()
	var all []*netlink.ConntrackFlow
	for range conntrackReads {
		all, err = nl.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, err
	}
	var flows []clusters.Flow
	for _, f := range all {
		if f.Forward.Protocol == unix.IPPROTO_TCP {
			flows = append(flows, flow(f))
		}
	}
	return flows, nil
}

func flow(f *netlink.ConntrackFlow) clusters.Flow {
	state := "NONE"
	if tcp, ok := f.ProtoInfo.(*netlink.ProtoInfoTCP); ok && int(tcp.State) < len(tcpStates) {
		state = tcpStates[tcp.State]
	}
	return clusters.Flow{
		State:       state,
		Source:      addrPort(f.Forward.SrcIP, f.Forward.SrcPort),
		Destination: addrPort(f.Forward.DstIP, f.Forward.DstPort),
		Reply:       addrPort(f.Reverse.SrcIP, f.Reverse.SrcPort),
	}
}

func addrPort(ip net.IP, port uint16) netip.AddrPort {
	a, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(a.Unmap(), port)
}
