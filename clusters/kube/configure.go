package kube

import (
	"context"
	"errors"
	"fmt"

	"lameduck/clusters"
	"lameduck/harness"
)

// Configure implements harness.Configurable.
func (w *World) Configure(ctx context.Context, c harness.ClusterSettings) error {
	if w.cfg.KubeProxies == nil {
		if c == (harness.ClusterSettings{}) {
			return nil // what cannot be changed is as it was
		}
		return errors.New("cluster.kubeProxyMode, cluster.kubeProxyMinSyncPeriod: kube-proxy cannot be set on this cluster: leave them out")
	}
	err := w.cfg.KubeProxies.SetKubeProxy(ctx, clusters.KubeProxySettings{Mode: c.KubeProxyMode, MinSyncPeriod: c.KubeProxyMinSyncPeriod.Duration})
	if err != nil {
		return fmt.Errorf("set kube-proxy: %w", err)
	}
	return nil
}
