package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"lameduck/clusters"
	"lameduck/clusters/kube"
	"lameduck/harness"
)

// wish is what one experiment asks of the cluster; zero fields are no wish.
type wish struct {
	who     string
	options clusters.Options
}

// mergeOptions sets the options of the one cluster for all experiments. What a
// flag has set counts, whatever they ask.
func mergeOptions(o *clusters.Options, wishes []wish, changed func(flag string) bool) error {
	nodes, address := wish{}, wish{}
	for _, w := range wishes {
		if n := w.options.Nodes; n != 0 && !changed("nodes") {
			if nodes.who != "" && n != o.Nodes {
				return fmt.Errorf("%s asks for %d nodes and %s for %d: choose by --nodes, or run them one at a time", nodes.who, o.Nodes, w.who, n)
			}
			o.Nodes, nodes = n, w
		}
		if a := w.options.DeadAddress; a != "" && !changed("dead-address") {
			if address.who != "" && a != o.DeadAddress {
				return fmt.Errorf("%s asks for the dead address %s and %s for %s: choose by --dead-address, or run them one at a time",
					address.who, o.DeadAddress, w.who, a)
			}
			o.DeadAddress, address = a, w
		}
	}
	return nil
}

// lab is a cluster that is ready for runs.
type lab struct {
	cluster     clusters.Cluster
	world       *kube.World
	attacker    harness.Attacker
	environment harness.Environment
	release     func()       // of the reservation; nil if there is none
	remove      func() error // undoes what was made
}

// openLab makes, or with --use-cluster finds, a cluster and brings to it what
// the jobs need.
func (f runFlags) openLab(ctx context.Context, p clusters.Provider, jobs []*job, log *progress) (*lab, error) {
	cluster, remove, err := f.makeCluster(ctx, p, log)
	if err != nil {
		return nil, err
	}
	l := &lab{cluster: cluster, remove: remove}
	if err := f.prepare(ctx, p, l, jobs, log); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

// close ends the use of the cluster.
func (l *lab) close() error {
	if l.release != nil {
		l.release()
	}
	return l.remove()
}

// prepare makes the cluster ours alone and puts on it what the jobs need.
func (f runFlags) prepare(ctx context.Context, p clusters.Provider, l *lab, jobs []*job, log *progress) (err error) {
	if r, ok := l.cluster.(clusters.Reservable); ok {
		if l.release, err = r.Reserve(); err != nil {
			return usageError(err)
		}
	}
	details := map[string]string{deadAddressDetail: f.cluster.options.DeadAddress}
	if f.use {
		if err := f.prepareUsed(ctx, p, l.cluster, log); err != nil {
			return err
		}
		details = nil // it was made by another command
	}
	image, err := loadTarget(ctx, l.cluster)
	if err != nil {
		return err
	}
	if err := loadImages(ctx, l.cluster, imageSources(jobs)); err != nil {
		return err
	}
	if l.world, err = newWorld(p, l.cluster, image, details); err != nil {
		return err
	}
	if l.attacker, err = newAttacker(l.cluster); err != nil {
		return err
	}
	l.environment, err = l.world.Environment(ctx)
	return err
}

// deadAddressDetail is where the record has Options.DeadAddress.
const deadAddressDetail = "deadAddress"

// recover makes the cluster usable again after a run that could not go on.
func (l *lab) recover(ctx context.Context, runID string, log io.Writer) error {
	if breaker, ok := l.cluster.(clusters.Breaker); ok {
		if err := breaker.MendAll(ctx); err != nil {
			return fmt.Errorf("mend cluster: %w", err)
		}
	}
	rest, err := l.cluster.REST()
	if err != nil {
		return err
	}
	return kube.Clean(ctx, rest, runID, log)
}

// makeCluster creates, or with --use-cluster finds, the cluster. remove undoes
// what was created.
func (f runFlags) makeCluster(ctx context.Context, p clusters.Provider, log *progress) (clusters.Cluster, func() error, error) {
	name := f.cluster.options.Name
	if f.use {
		c, err := p.Open(ctx, name)
		if err != nil {
			return nil, nil, usageError(fmt.Errorf("--use-cluster: %w", err))
		}
		return c, func() error { return nil }, nil
	}
	// Up's lines have the time since its start, which is about ours.
	c, err := p.Up(ctx, f.cluster.options, log.out)
	if err != nil {
		return nil, nil, err
	}
	if f.keep {
		return c, func() error {
			log.printf("cluster %s stays; kubeconfig %s; remove it with: lameduck cluster down --name %s", name, c.Kubeconfig(), name)
			return nil
		}, nil
	}
	return c, func() error { return p.Clean(context.WithoutCancel(ctx), name, log) }, nil
}

// prepareUsed makes sure that a cluster that was there before is whole and has
// no other run on it: its load and its listeners would be in the way of ours.
func (f runFlags) prepareUsed(ctx context.Context, p clusters.Provider, c clusters.Cluster, log *progress) error {
	if breaker, ok := c.(clusters.Breaker); ok && f.clean {
		// Before its processes are looked at: those of a stopped node do not run.
		if err := breaker.MendAll(ctx); err != nil {
			return fmt.Errorf("mend cluster: %w", err)
		}
	}
	if err := checkIntact(ctx, p, c); err != nil {
		return err
	}
	rest, err := c.REST()
	if err != nil {
		return err
	}
	if f.clean {
		return kube.Clean(ctx, rest, "", log)
	}
	left, err := kube.Leftovers(ctx, rest)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return usageError(fmt.Errorf("cluster %s has what another run made: %s: if it is still going on, wait for its end; if it was interrupted, undo it with --clean-cluster",
			c.Name(), strings.Join(left, ", ")))
	}
	return nil
}

// checkIntact refuses a cluster that is not as it was made: what a killed run has
// left broken, or set differently, would be in every cell of ours.
func checkIntact(ctx context.Context, p clusters.Provider, c clusters.Cluster) error {
	var altered []string
	var unseen error
	if i, ok := c.(clusters.Intact); ok {
		altered, unseen = i.Altered(ctx)
	}
	if len(altered) > 0 {
		return usageError(fmt.Errorf("cluster %s is not as it was made: %s: undo it with --clean-cluster", c.Name(), strings.Join(altered, "; ")))
	}
	status, err := p.Status(ctx, c.Name())
	if err != nil {
		return err
	}
	for _, part := range status.Parts {
		if !part.Running {
			return usageError(fmt.Errorf("cluster %s is not whole: %s on %s has stopped (log: %s); make it anew: lameduck cluster down --name %[1]s, then up",
				c.Name(), part.Name, part.Host, part.Log))
		}
	}
	return unseen // for which a part that has stopped would be the reason
}
