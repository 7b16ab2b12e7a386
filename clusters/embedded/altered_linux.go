package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"lameduck/clusters"
	"lameduck/clusters/embedded/network"
)

// condition is what can be changed of a node on purpose and outlives who did it.
type condition struct {
	stopped      bool // then nothing else of it counts
	linkUp       bool
	losesPackets bool
	dropsFIN     bool
	// proxy is what kube-proxy runs with; proxyFile says whether its file is as it
	// was made. A change that was cut off leaves them different.
	proxy     clusters.KubeProxySettings
	proxyFile bool
}

// altered says what is different from how a node is made.
func (c condition) altered(node string) (all []string) {
	if c.stopped {
		return []string{fmt.Sprintf("node %s is stopped", node)}
	}
	if !c.linkUp {
		all = append(all, fmt.Sprintf("the link of node %s is down", node))
	}
	if c.losesPackets {
		all = append(all, fmt.Sprintf("the link of node %s loses packets", node))
	}
	if c.dropsFIN {
		all = append(all, fmt.Sprintf("node %s drops FIN and RST of pods", node))
	}
	switch is := c.proxy; {
	case is != kubeProxyDefaults:
		all = append(all, fmt.Sprintf("kube-proxy of node %s runs with mode %s and minSyncPeriod %s (was made with %s and %s)",
			node, is.Mode, is.MinSyncPeriod, kubeProxyDefaults.Mode, kubeProxyDefaults.MinSyncPeriod))
	case !c.proxyFile:
		all = append(all, fmt.Sprintf("kube-proxy of node %s has other settings in its file, and will start with them", node))
	}
	return all
}

// Altered implements clusters.Intact.
func (c *Cluster) Altered(ctx context.Context) (all []string, err error) {
	i, err := c.layout.readInfo()
	if err != nil {
		return nil, fmt.Errorf("see what was changed: %w", err)
	}
	var errs []error
	for n := 1; n <= i.Nodes; n++ {
		is, err := c.condition(ctx, n)
		if err != nil {
			errs = append(errs, fmt.Errorf("see what was changed of node %s: %w", nodeName(n), err))
			continue
		}
		all = append(all, is.altered(nodeName(n))...)
	}
	return all, errors.Join(errs...)
}

func (c *Cluster) condition(ctx context.Context, n int) (is condition, err error) {
	node := nodeName(n)
	if is.stopped = exists(c.layout.stopped(node)); is.stopped {
		return is, nil
	}
	t, err := c.topology()
	if err != nil {
		return is, err
	}
	if is.linkUp, err = network.LinkIsUp(t, node); err != nil {
		return is, err
	}
	if is.losesPackets, err = c.layout.losesPackets(ctx, node); err != nil {
		return is, err
	}
	if is.dropsFIN, err = c.layout.dropsFIN(ctx, node); err != nil {
		return is, err
	}
	dir := c.layout.host(node)
	file, err := os.ReadFile(filepath.Join(dir, kubeProxyFile))
	if err != nil {
		return is, err
	}
	is.proxyFile = string(file) == kubeProxyConfig(dir, n, clusters.KubeProxySettings{})
	is.proxy, err = c.proxySettings(ctx, node)
	return is, err
}
