package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"lameduck/clusters/embedded/machine"
	"lameduck/clusters/embedded/network"
	"lameduck/clusters/embedded/sweep"
)

// startLimit bounds the start of a node, which takes seconds.
const startLimit = 2 * time.Minute

// number is that of a node of the cluster.
func (c *Cluster) number(node string) (int, error) {
	i, err := c.layout.readInfo()
	if err != nil {
		return 0, err
	}
	for n := 1; n <= i.Nodes; n++ {
		if node == nodeName(n) {
			return n, nil
		}
	}
	return 0, fmt.Errorf("node %q: want %s..%s", node, nodeName(1), nodeName(i.Nodes))
}

// topology is the network that the cluster was made with.
func (c *Cluster) topology() (network.Topology, error) {
	i, err := c.layout.readInfo()
	return c.layout.topology(i.Nodes, i.DeadAddress), err
}

func (c *Cluster) client() (kubernetes.Interface, error) {
	cfg, err := c.REST()
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(cfg)
}

// exclusive keeps others, of other processes too, from changing a node.
func (c *Cluster) exclusive(ctx context.Context, node string) (release func(), err error) {
	if _, err := c.number(node); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(c.layout.nodeLock(node), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lockWithin(ctx, f, startLimit); err != nil {
		f.Close()
		return nil, fmt.Errorf("node %s is just being changed by another process: %w", node, err)
	}
	return func() { f.Close() }, nil // closing gives the lock back
}

// StopNode implements clusters.Machines.
func (c *Cluster) StopNode(ctx context.Context, node string) error {
	if err := c.stopNode(ctx, node); err != nil {
		return fmt.Errorf("stop node %s: %w", node, err)
	}
	return nil
}

func (c *Cluster) stopNode(ctx context.Context, node string) error {
	release, err := c.exclusive(ctx, node)
	if err != nil {
		return err
	}
	defer release()
	t, err := c.topology()
	if err != nil {
		return err
	}
	// The note comes first: a stopped node without it would be the remains of a
	// cluster.
	if err := os.WriteFile(c.layout.stopped(node), nil, 0o600); err != nil {
		return err
	}
	// The link goes before the processes: the kernel closes the connections of a
	// process that is killed, and a machine without power can not say so.
	if err := network.SetLink(ctx, t, node, false); err != nil {
		return err
	}
	return sweep.KillGroup(ctx, c.layout.hostCgroup(node))
}

// StartNode implements clusters.Machines.
func (c *Cluster) StartNode(ctx context.Context, node string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("not ready after %s", startLimit))
	defer cancel()
	if err := c.startNode(ctx, node); err != nil {
		return fmt.Errorf("start node %s: %w", node, err)
	}
	return nil
}

func (c *Cluster) startNode(ctx context.Context, node string) error {
	release, err := c.exclusive(ctx, node)
	if err != nil {
		return err
	}
	defer release()
	client, err := c.client()
	if err != nil {
		return err
	}
	s, err := machine.ReadStatus(c.layout.host(node))
	if err != nil {
		return err
	}
	var since time.Time
	if !s.Supervisor.Alive() || exists(c.layout.stopped(node)) {
		if since, err = beforeReport(ctx, client, node); err != nil {
			return err
		}
		if err := c.boot(ctx, node); err != nil {
			return err
		}
	}
	if err := os.Remove(c.layout.stopped(node)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return poll(ctx, func(ctx context.Context) error {
		if err := nodeReady(ctx, client, node, since); err != nil {
			return err
		}
		return c.rulesWritten(ctx, node)
	})
}

// boot starts the machine of a node on which nothing runs any more. Its disk is
// as it was; its memory, cgroups and network are new.
func (c *Cluster) boot(ctx context.Context, node string) error {
	l := c.layout
	groups, err := mountedCgroups()
	if err != nil {
		return err
	}
	if err := sweep.KillGroup(ctx, l.hostCgroup(node)); err != nil { // a stop that was cut off
		return err
	}
	if _, err := groups.Remove(l.hostCgroup(node), cleanLimit); err != nil {
		return err
	}
	if err := makeGroup(groups, l, node, shares(node)); err != nil {
		return err
	}
	t, err := c.topology()
	if err != nil {
		return err
	}
	if err := network.Replace(ctx, t, node); err != nil {
		return err
	}
	return machine.StartAgain(c.config.Self, l.netnsPath(node), l.host(node))
}

// readyCondition is nil if there is none, or no node.
func readyCondition(ctx context.Context, c kubernetes.Interface, node string) (*corev1.NodeCondition, error) {
	n, err := c.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for i := range n.Status.Conditions {
		if cond := &n.Status.Conditions[i]; cond.Type == corev1.NodeReady {
			return cond, nil
		}
	}
	return nil, nil
}

// beforeReport waits for a second in which the node has not reported its state
// yet, and returns it: reports bear whole seconds, and a node that was stopped
// a moment ago still counts as ready.
func beforeReport(ctx context.Context, c kubernetes.Interface, node string) (second time.Time, err error) {
	err = poll(ctx, func(ctx context.Context) error {
		cond, err := readyCondition(ctx, c, node)
		second = time.Now().Truncate(time.Second)
		if err == nil && cond != nil && !cond.LastHeartbeatTime.Time.Before(second) {
			return errors.New("it has reported in this second")
		}
		return err
	})
	return second, err
}

// nodeReady is nil if the node has reported to be ready, not before since.
func nodeReady(ctx context.Context, c kubernetes.Interface, node string, since time.Time) error {
	cond, err := readyCondition(ctx, c, node)
	switch {
	case err != nil:
		return err
	case cond == nil || cond.LastHeartbeatTime.Time.Before(since):
		return errors.New("the node has not reported yet")
	case cond.Status != corev1.ConditionTrue:
		return fmt.Errorf("the node is not ready: %s", cond.Message)
	}
	return nil
}
