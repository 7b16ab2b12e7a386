package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"lameduck/clusters"
	"lameduck/harness"
)

// breakages are the kinds of fault that are done to the cluster.
var breakages = map[harness.FaultKind]clusters.BreakageKind{
	harness.FaultDropFIN:         clusters.BreakDropFIN,
	harness.FaultPacketLoss:      clusters.BreakPacketLoss,
	harness.FaultLinkDown:        clusters.BreakLinkDown,
	harness.FaultSlowAPIServer:   clusters.BreakSlowAPIServer,
	harness.FaultPausedAPIServer: clusters.BreakPauseAPIServer,
	harness.FaultPausedKubelet:   clusters.BreakPauseKubelet,
	harness.FaultPausedKubeProxy: clusters.BreakPauseKubeProxy,
}

// Break implements harness.Faulty.
func (d *deployment) Break(ctx context.Context, f harness.Fault) (mend func(context.Context) error, err error) {
	breaker := d.world.cfg.Breaker
	if breaker == nil {
		return nil, errors.New("nothing can be broken on this cluster")
	}
	all, err := d.breakages(f)
	if err != nil {
		return nil, err
	}
	var mends []func(context.Context) error
	mend = d.repairs.add(func(ctx context.Context) error {
		var errs []error
		for _, m := range slices.Backward(mends) {
			errs = append(errs, m(ctx))
		}
		return errors.Join(errs...)
	})
	for _, b := range all {
		m, err := breaker.Break(ctx, b)
		if err != nil {
			undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
			defer cancel()
			return nil, errors.Join(fmt.Errorf("break %s %s: %w", b.Kind, b.Node, err), mend(undo))
		}
		mends = append(mends, m)
	}
	return mend, nil
}

// breakages are what makes a fault.
func (d *deployment) breakages(f harness.Fault) ([]clusters.Breakage, error) {
	kind, known := breakages[f.Kind]
	switch {
	case !known:
		return nil, fmt.Errorf("fault %s is none that is done to a cluster: want one of %v", f.Kind, slices.Sorted(maps.Keys(breakages)))
	case f.Kind == harness.FaultDropFIN:
		return d.podBreakages(kind)
	case !f.OfNode():
		return []clusters.Breakage{{Kind: kind, Share: f.Share}}, nil
	}
	node, err := d.node()
	if err != nil {
		return nil, err
	}
	return []clusters.Breakage{{Kind: kind, Node: node, Share: f.Share}}, nil
}

// podBreakages has one for each node with the workload's pods of the moment, of
// every colour: which of them will go is the scenario's business.
func (d *deployment) podBreakages(kind clusters.BreakageKind) ([]clusters.Breakage, error) {
	addresses := make(map[string][]netip.Addr)
	for _, p := range d.view.podsOf(appName) {
		if p.Status.PodIP == "" {
			continue
		}
		addr, err := netip.ParseAddr(p.Status.PodIP)
		if err != nil {
			return nil, fmt.Errorf("address of pod %s: %w", p.Name, err)
		}
		addresses[p.Spec.NodeName] = append(addresses[p.Spec.NodeName], addr)
	}
	if len(addresses) == 0 {
		return nil, fmt.Errorf("no pod of the workload in namespace %s has an address", d.namespace)
	}
	var all []clusters.Breakage
	for _, node := range slices.Sorted(maps.Keys(addresses)) {
		all = append(all, clusters.Breakage{Kind: kind, Node: node, Addresses: addresses[node]})
	}
	return all, nil
}
