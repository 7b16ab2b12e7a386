package clusters

import (
	"context"
	"net/netip"
	"time"
)

// The interfaces in this file are for what is done to a cluster on purpose. All
// of it can be undone, also by another process than the one that did it.

// Machines is a cluster whose nodes' machines can be ended and started again.
type Machines interface {
	// StopNode ends a node's machine as a power cut does: nothing of it runs any
	// more, and its addresses and those of its pods are silent. Its Node object
	// stays. A node that is stopped already is no error.
	StopNode(ctx context.Context, node string) error
	// StartNode starts a stopped node and returns when it is Ready and its
	// kube-proxy has written its rules. One whose Node object was deleted
	// registers anew. A node that runs is no error.
	StartNode(ctx context.Context, node string) error
}

// Breaker is a cluster in which things can be broken.
type Breaker interface {
	// Break does what b says; mend undoes just that. An error leaves nothing
	// broken.
	Break(ctx context.Context, b Breakage) (mend func(context.Context) error, err error)
	// MendAll undoes every breakage, starts every stopped node and sets the
	// kube-proxies back, whoever did it: a run that was killed could not.
	MendAll(ctx context.Context) error
}

// Intact is a cluster that can say whether it is as it was made.
type Intact interface {
	// Altered lists what is different, one sentence each: stopped nodes, links
	// that are down, packets that are dropped on purpose, settings of kube-proxy.
	// What holds a process paused ends with who asked for it, and is no part of
	// it. With an error the list is what was found all the same. MendAll of a
	// Breaker undoes all of it.
	Altered(ctx context.Context) ([]string, error)
}

// BreakageKind is what can be broken.
type BreakageKind string

// The kinds of breakage.
const (
	// BreakDropFIN: TCP segments with FIN or RST from Addresses are dropped on
	// Node, where those pods run.
	BreakDropFIN BreakageKind = "drop-fin"
	// BreakPacketLoss: Share of the packets on Node's link, in each direction, is lost.
	BreakPacketLoss BreakageKind = "packet-loss"
	// BreakLinkDown: Node's link is down.
	BreakLinkDown BreakageKind = "link-down"
	// BreakSlowAPIServer: the API server is stopped for Share of the time.
	BreakSlowAPIServer BreakageKind = "slow-api-server"
	// BreakPauseAPIServer, BreakPauseKubelet and BreakPauseKubeProxy: the process
	// is stopped (SIGSTOP); of the last two, Node's.
	BreakPauseAPIServer BreakageKind = "paused-api-server"
	BreakPauseKubelet   BreakageKind = "paused-kubelet"
	BreakPauseKubeProxy BreakageKind = "paused-kube-proxy"
)

// Breakage is one thing that is broken.
type Breakage struct {
	Kind      BreakageKind
	Node      string
	Addresses []netip.Addr
	Share     float64 // above 0, below 1
}

// Conntrack is a cluster whose nodes' connection tracking can be read.
type Conntrack interface {
	// Conntrack lists a node's TCP entries.
	Conntrack(ctx context.Context, node string) ([]Flow, error)
}

// Flow is a TCP connection as a node's connection tracking knows it.
type Flow struct {
	State string // as conntrack -L writes it: ESTABLISHED, CLOSE_WAIT ...
	// Source and Destination are those of the first packet as it came.
	Source, Destination netip.AddrPort
	// Reply is where answers come from: the pod, after translation.
	Reply netip.AddrPort
}

// KubeProxies is a cluster whose kube-proxies can be set.
type KubeProxies interface {
	// SetKubeProxy returns when the kube-proxy of every node runs with the
	// settings, has written its rules, and those of another mode are gone.
	SetKubeProxy(ctx context.Context, s KubeProxySettings) error
	// KubeProxy reads the settings back from the running processes; an error if
	// nodes differ.
	KubeProxy(ctx context.Context) (KubeProxySettings, error)
}

// KubeProxySettings are what can be set. Zero fields: as the cluster was made.
type KubeProxySettings struct {
	Mode          string // iptables or nftables
	MinSyncPeriod time.Duration
}
