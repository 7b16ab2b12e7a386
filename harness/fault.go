package harness

import (
	"fmt"
	"slices"
	"time"
)

// FaultKind names what is broken on purpose.
type FaultKind string

// The faults.
const (
	// FaultDropFIN: segments with FIN or RST of the workload's pods do not get
	// beyond their node.
	FaultDropFIN FaultKind = "drop-fin"
	// FaultPacketLoss: a share of the packets on one node's link is lost.
	FaultPacketLoss FaultKind = "packet-loss"
	// FaultLinkDown: one node's link is down.
	FaultLinkDown FaultKind = "link-down"
	// FaultLateDeregistration: load balancer nodes hear of deregistrations late.
	FaultLateDeregistration FaultKind = "late-deregistration"
	// FaultLostDeregistration: they never hear of them.
	FaultLostDeregistration FaultKind = "lost-deregistration"
	// FaultThrottledAPI: calls that register or deregister targets are refused
	// with ThrottlingException but for one in each Every.
	FaultThrottledAPI FaultKind = "throttled-api"
	// FaultSlowAPIServer: the API server does not run for a share of the time.
	FaultSlowAPIServer FaultKind = "slow-api-server"
	// FaultPausedAPIServer, FaultPausedKubelet and FaultPausedKubeProxy: the
	// process is stopped (SIGSTOP), kubelet and kube-proxy on one node.
	FaultPausedAPIServer FaultKind = "paused-api-server"
	FaultPausedKubelet   FaultKind = "paused-kubelet"
	FaultPausedKubeProxy FaultKind = "paused-kube-proxy"
)

// Fault is one thing that is broken while the scenario runs. Which node it
// concerns is chosen at its beginning: one with pods of the workload, but
// without the control target.
type Fault struct {
	Kind FaultKind `json:"kind"`
	// For is how long it lasts; 0: until the load ends.
	For Duration `json:"for,omitzero"`
	// Share is of packets (packet-loss) or time (slow-api-server), above 0, below 1.
	Share float64 `json:"share,omitempty"`
	// Lag is that of late-deregistration.
	Lag DurationRange `json:"lag,omitzero"`
	// Every is that of throttled-api.
	Every Duration `json:"every,omitzero"`
}

// faultKind is what is known of a kind of fault.
type faultKind struct {
	// shared: it touches the workload of its own trial only, so that other trials
	// may run beside it.
	shared bool
	// node: it is of one node among others.
	node bool
	// deployed: it is part of what is deployed, and so lasts for the whole trial.
	deployed bool
	// check says what is wrong with the parameters that the kind uses.
	check func(Fault) error
	// uses are the parameters besides For.
	uses []string
}

var faultKinds = map[FaultKind]faultKind{
	FaultDropFIN:            {shared: true},
	FaultPacketLoss:         {node: true, uses: []string{"share"}, check: checkShare},
	FaultLinkDown:           {node: true},
	FaultLateDeregistration: {shared: true, deployed: true, uses: []string{"lag"}, check: checkLag},
	FaultLostDeregistration: {shared: true, deployed: true},
	FaultThrottledAPI:       {shared: true, deployed: true, uses: []string{"every"}, check: checkEvery},
	FaultSlowAPIServer:      {uses: []string{"share"}, check: checkShare},
	FaultPausedAPIServer:    {},
	FaultPausedKubelet:      {node: true},
	FaultPausedKubeProxy:    {node: true},
}

// FaultKinds are all kinds, sorted.
func FaultKinds() []FaultKind {
	var kinds []FaultKind
	for kind := range faultKinds {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	return kinds
}

// Deployed says whether the fault is part of what is deployed, instead of
// something that is done to the cluster when the scenario begins.
func (f Fault) Deployed() bool { return faultKinds[f.Kind].deployed }

// Shared says whether other trials may run on the cluster meanwhile.
func (f Fault) Shared() bool { return faultKinds[f.Kind].shared }

// OfNode says whether the fault is one of a single node.
func (f Fault) OfNode() bool { return faultKinds[f.Kind].node }

// unsharedFaults are those that other trials on the cluster would notice.
func (s Setup) unsharedFaults() []Fault {
	return slices.DeleteFunc(slices.Clone(s.Faults), Fault.Shared)
}

func checkShare(f Fault) error {
	if f.Share <= 0 || f.Share >= 1 {
		return fmt.Errorf("share is %g: want more than 0 and less than 1", f.Share)
	}
	return nil
}

func checkLag(f Fault) error {
	if f.Lag.Max <= 0 || f.Lag.Max > time.Hour {
		return fmt.Errorf("lag is %s: want more than 0s and at most 1h, like 16s or 30s..60s", f.Lag)
	}
	return nil
}

func checkEvery(f Fault) error {
	if f.Every.Duration < time.Second || f.Every.Duration > time.Hour {
		return fmt.Errorf("every is %s: want 1s..1h", f.Every)
	}
	return nil
}

// validate says what is wrong with a fault.
func (f Fault) validate() error {
	kind, known := faultKinds[f.Kind]
	if !known {
		return fmt.Errorf("kind is %q: want one of %v", f.Kind, FaultKinds())
	}
	if f.For.Duration < 0 || (kind.deployed && f.For.Duration != 0) {
		return fmt.Errorf("for is %s: want 0s or more, and none with %s, which lasts for the whole trial", f.For, f.Kind)
	}
	for _, p := range []struct {
		name string
		set  bool
	}{{"share", f.Share != 0}, {"lag", f.Lag != DurationRange{}}, {"every", f.Every.Duration != 0}} {
		if p.set && !slices.Contains(kind.uses, p.name) {
			return fmt.Errorf("%s has no effect on %s: leave it out", p.name, f.Kind)
		}
	}
	if kind.check != nil {
		return kind.check(f)
	}
	return nil
}
