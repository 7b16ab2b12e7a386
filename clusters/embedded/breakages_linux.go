package embedded

import (
	"context"
	"errors"
	"fmt"

	"lameduck/clusters"
	"lameduck/clusters/embedded/machine"
	"lameduck/clusters/embedded/network"
)

const (
	apiServer = "kube-apiserver"
	kubelet   = "kubelet"
)

// Break implements clusters.Breaker.
func (c *Cluster) Break(ctx context.Context, b clusters.Breakage) (func(context.Context) error, error) {
	mend, err := c.breakIt(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("break %s: %w", b.Kind, err)
	}
	return func(ctx context.Context) error {
		if err := mend(ctx); err != nil {
			return fmt.Errorf("mend %s: %w", b.Kind, err)
		}
		return nil
	}, nil
}

func (c *Cluster) breakIt(ctx context.Context, b clusters.Breakage) (mend func(context.Context) error, err error) {
	i, err := c.layout.readInfo()
	if err != nil {
		return nil, err
	}
	if err := checkBreakage(b, i.Nodes); err != nil {
		return nil, err
	}
	switch b.Kind {
	case clusters.BreakDropFIN:
		return c.filter(ctx, b.Node, dropFIN(b.Addresses), passFIN(b.Addresses))
	case clusters.BreakPacketLoss:
		return c.filter(ctx, hostVPC, loseLink(b.Node, b.Share), passLink(b.Node))
	case clusters.BreakLinkDown:
		if err := c.setLink(ctx, b.Node, false); err != nil {
			return nil, err
		}
		return func(ctx context.Context) error { return c.setLink(ctx, b.Node, true) }, nil
	case clusters.BreakSlowAPIServer:
		return c.hold(ctx, hostCP, apiServer, b.Share)
	case clusters.BreakPauseAPIServer:
		return c.hold(ctx, hostCP, apiServer, 1)
	case clusters.BreakPauseKubelet:
		return c.hold(ctx, b.Node, kubelet, 1)
	default: // checked to be this
		return c.hold(ctx, b.Node, kubeProxy, 1)
	}
}

// filter applies one script and mends with another.
func (c *Cluster) filter(ctx context.Context, host, script, undo string) (func(context.Context) error, error) {
	if err := c.layout.nft(ctx, host, script); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return c.layout.nft(ctx, host, undo) }, nil
}

// setLink leaves a stopped node without a link, and is no error then.
func (c *Cluster) setLink(ctx context.Context, node string, up bool) error {
	release, err := c.exclusive(ctx, node)
	if err != nil {
		return err
	}
	defer release()
	if exists(c.layout.stopped(node)) {
		return nil
	}
	t, err := c.topology()
	if err != nil {
		return err
	}
	return network.SetLink(ctx, t, node, up)
}

// hold has a component stopped by its supervisor, which notices when this process
// dies; a component that was stopped from here would stay so.
func (c *Cluster) hold(ctx context.Context, host, component string, share float64) (func(context.Context) error, error) {
	return machine.HoldFor(ctx, c.layout.netnsPath(host), component, share)
}

// MendAll implements clusters.Breaker.
func (c *Cluster) MendAll(ctx context.Context) error {
	i, err := c.layout.readInfo()
	if err != nil {
		return fmt.Errorf("mend all: %w", err)
	}
	errs := []error{c.release(ctx, hostCP)} // the API server is needed to start nodes
	var tasks []func(context.Context) error
	for n := 1; n <= i.Nodes; n++ {
		tasks = append(tasks, func(ctx context.Context) error { return c.mendNode(ctx, nodeName(n)) })
	}
	errs = append(errs, parallel(ctx, tasks...))
	errs = append(errs, c.SetKubeProxy(ctx, clusters.KubeProxySettings{}))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("mend all: %w", err)
	}
	return nil
}

func (c *Cluster) mendNode(ctx context.Context, node string) error {
	errs := []error{c.layout.nft(ctx, hostVPC, passLink(node))}
	if exists(c.layout.stopped(node)) {
		return errors.Join(append(errs, c.StartNode(ctx, node))...)
	}
	return errors.Join(append(errs,
		c.release(ctx, node),
		c.layout.nft(ctx, node, passAllFIN),
		c.setLink(ctx, node, true))...)
}

// release lets all processes of a host run.
func (c *Cluster) release(ctx context.Context, host string) error {
	if err := machine.Ask(ctx, c.layout.netnsPath(host), machine.Request{Do: machine.Release}); err != nil {
		return fmt.Errorf("%s: %w", host, err)
	}
	return nil
}
