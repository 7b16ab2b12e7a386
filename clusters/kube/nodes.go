package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lameduck/harness"
)

// node is the one that is disturbed, the same for the whole trial: of those with
// ready pods of the workload, but without the control target, the one with most.
func (d *deployment) node() (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.chosen != "" {
		return d.chosen, nil
	}
	pods := make(map[string]int)
	for _, p := range d.view.podsOf(appName) {
		if p.DeletionTimestamp == nil && isReady(p) {
			pods[p.Spec.NodeName]++
		}
	}
	for _, p := range d.view.podsOf(controlName) {
		delete(pods, p.Spec.NodeName)
	}
	for _, name := range slices.Sorted(maps.Keys(pods)) {
		if pods[name] > pods[d.chosen] {
			d.chosen = name
		}
	}
	if d.chosen == "" {
		return "", fmt.Errorf("no node has ready pods of the workload but not the control target's (namespace %s): want more replicas, or a cluster with more nodes", d.namespace)
	}
	return d.chosen, nil
}

// stop ends a node's machine; Remove starts it again.
func (d *deployment) stop(ctx context.Context, node string) error {
	machines := d.world.cfg.Machines
	if machines == nil {
		return errors.New("the machines of this cluster's nodes cannot be ended")
	}
	d.repairs.add(func(ctx context.Context) error {
		if err := machines.StartNode(ctx, node); err != nil {
			return fmt.Errorf("bring node %s back: %w", node, err)
		}
		return nil
	})
	if err := machines.StopNode(ctx, node); err != nil {
		return fmt.Errorf("end machine of node %s: %w", node, err)
	}
	return nil
}

// RemoveNode implements harness.Nodes. The machine goes first, as where the
// Cluster Autoscaler has the cloud end it.
func (d *deployment) RemoveNode(ctx context.Context) error {
	d.mu.Lock()
	node := d.drained
	d.mu.Unlock()
	if node == "" {
		return errors.New("remove node: none was drained")
	}
	if err := d.stop(ctx, node); err != nil {
		return err
	}
	d.event(harness.EventNodeRemoved, node)
	if err := d.world.client.CoreV1().Nodes().Delete(ctx, node, metav1.DeleteOptions{}); err != nil && !gone(err) {
		return fmt.Errorf("delete Node %s: %w", node, err)
	}
	return nil
}

// LoseNode implements harness.Nodes.
func (d *deployment) LoseNode(ctx context.Context) (pods int, err error) {
	node, err := d.node()
	if err != nil {
		return 0, err
	}
	pods = count(d.on(node)).ready
	if err := d.stop(ctx, node); err != nil {
		return 0, err
	}
	d.event(harness.EventNodeLost, node)
	return pods, nil
}

// on are the workload's pods on a node.
func (d *deployment) on(node string) []*corev1.Pod {
	return slices.DeleteFunc(d.view.podsOf(appName), func(p *corev1.Pod) bool { return p.Spec.NodeName != node })
}
