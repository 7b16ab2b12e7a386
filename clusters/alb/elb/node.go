package elb

import (
	"context"
	"net"
	"net/netip"
	"time"
)

// node is one load balancer node: an address in one availability zone. All
// load balancers have their listeners on the same nodes, at different ports.
type node struct {
	index int
	addr  netip.Addr
	name  string
	dial  func(ctx context.Context, addr string, timeout time.Duration) (net.Conn, error)
}

// newNode makes a node whose connections to targets come from its own address,
// so that conntrack entries and the targets' logs tell the nodes apart.
func newNode(index int, addr netip.Addr) *node {
	d := net.Dialer{KeepAlive: -1, ControlContext: bindWithoutPort}
	if !addr.IsUnspecified() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(addr, 0))
	}
	return &node{index: index, addr: addr, name: addr.String(), dial: func(ctx context.Context, to string, timeout time.Duration) (net.Conn, error) {
		d := d
		d.Timeout = timeout
		return d.DialContext(ctx, "tcp", to)
	}}
}
