package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"lameduck/harness"
	"lameduck/harness/evidence"
)

// How the Cluster Autoscaler removes a node that has pods (cluster-autoscaler,
// utils/taints and core/scaledown/actuation; its flags have their defaults). It
// does not cordon the node: the taint keeps new pods away
// (--cordon-node-before-terminating=false).
const (
	// autoscalerTaint has the time as its value, in seconds since 1970, and the
	// effect NoSchedule (ToBeDeletedTaint).
	autoscalerTaint = "ToBeDeletedByClusterAutoscaler"
	// taintDelay lies between taint and evictions (--node-delete-delay-after-taint).
	taintDelay = 5 * time.Second
	// evictionRetry is the wait after a refused eviction (DefaultEvictionRetryTime).
	evictionRetry = 10 * time.Second
	// maxGrace cuts the grace period of evicted pods (--max-graceful-termination-sec).
	maxGrace = 600
)

// mirrorPod marks the API's picture of a pod that the kubelet has from a file
// (Kubernetes, Well-Known Annotations).
const mirrorPod = "kubernetes.io/config.mirror"

// DrainNode implements harness.Nodes. As the Cluster Autoscaler, it does not
// wait for the pods that come in place of the evicted ones.
func (d *deployment) DrainNode(ctx context.Context) (pods int, err error) {
	node, err := d.node()
	if err != nil {
		return 0, err
	}
	if err := d.taint(ctx, node); err != nil {
		return 0, err
	}
	if err := harness.Sleep(ctx, taintDelay); err != nil {
		return 0, err
	}
	all, err := d.world.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, fmt.Errorf("list pods of node %s: %w", node, err)
	}
	victims := slices.DeleteFunc(all.Items, func(p corev1.Pod) bool { return p.Spec.NodeName != node || stays(p) })
	errs := make([]error, len(victims))
	var wg sync.WaitGroup
	for i, p := range victims {
		if p.Namespace == d.namespace && p.Labels[evidence.RoleLabel] == appName {
			pods++
		}
		wg.Go(func() {
			if errs[i] = d.evict(ctx, p); errs[i] == nil {
				errs[i] = waitPodGone(ctx, d.world.client, p)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return 0, fmt.Errorf("drain node %s: %w", node, err)
	}
	d.event(harness.EventNodeDrained, node)
	d.mu.Lock()
	d.drained = node
	d.mu.Unlock()
	return pods, nil
}

// stays says whether the Cluster Autoscaler leaves a pod on a node that it
// removes: those of DaemonSets, unless it is told otherwise, and mirror pods.
func stays(p corev1.Pod) bool {
	_, mirror := p.Annotations[mirrorPod]
	owner := metav1.GetControllerOf(&p)
	return mirror || owner != nil && owner.Kind == "DaemonSet"
}

// taint marks the node for deletion, and as ours for Clean; Remove undoes it.
func (d *deployment) taint(ctx context.Context, node string) error {
	d.repairs.add(func(ctx context.Context) error { return untaint(ctx, d.world.client, node) })
	return editNode(ctx, d.world.client, node, func(n *corev1.Node) {
		if n.Labels == nil {
			n.Labels = make(map[string]string)
		}
		n.Labels[runLabel] = d.trial.RunID
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{
			Key: autoscalerTaint, Value: strconv.FormatInt(time.Now().Unix(), 10), Effect: corev1.TaintEffectNoSchedule,
		})
	})
}

// untaint takes back what taint did. A node that was removed has lost it already.
func untaint(ctx context.Context, client kubernetes.Interface, node string) error {
	err := editNode(ctx, client, node, func(n *corev1.Node) {
		delete(n.Labels, runLabel)
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == autoscalerTaint })
	})
	if gone(err) {
		return nil
	}
	return err
}

// editNode changes a Node, as often as somebody else does so at the same time.
func editNode(ctx context.Context, client kubernetes.Interface, node string, edit func(*corev1.Node)) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		n, err := client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		edit(n)
		_, err = client.CoreV1().Nodes().Update(ctx, n, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("change taints of node %s: %w", node, err)
	}
	return nil
}

// untaintAll makes the nodes that a killed run was draining usable again.
func untaintAll(ctx context.Context, client kubernetes.Interface, selector string) error {
	nodes, err := tainted(ctx, client, selector)
	errs := []error{err}
	for _, n := range nodes {
		errs = append(errs, untaint(ctx, client, n))
	}
	return errors.Join(errs...)
}

// tainted are the nodes that runs are draining, or were when they were killed.
func tainted(ctx context.Context, client kubernetes.Interface, selector string) (names []string, err error) {
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("list nodes that earlier runs drained: %w", err)
	}
	for _, n := range nodes.Items {
		names = append(names, n.Name)
	}
	return names, nil
}

// evict asks until no PodDisruptionBudget forbids it.
func (d *deployment) evict(ctx context.Context, p corev1.Pod) error {
	grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if s := p.Spec.TerminationGracePeriodSeconds; s != nil {
		grace = min(*s, maxGrace)
	}
	eviction := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
		DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: &grace, Preconditions: metav1.NewUIDPreconditions(string(p.UID))},
	}
	for {
		err := d.world.client.PolicyV1().Evictions(p.Namespace).Evict(ctx, eviction)
		if err == nil || gone(err) {
			return nil
		}
		if !apierrors.IsTooManyRequests(err) {
			return fmt.Errorf("evict pod %s/%s: %w", p.Namespace, p.Name, err)
		}
		if late := harness.Sleep(ctx, evictionRetry); late != nil {
			return fmt.Errorf("evict pod %s/%s: %w: %w", p.Namespace, p.Name, late, err)
		}
	}
}

// waitPodGone waits until there is no such pod, of whatever namespace.
func waitPodGone(ctx context.Context, client kubernetes.Interface, p corev1.Pod) error {
	err := wait.PollUntilContextCancel(ctx, confirmPoll, true, func(ctx context.Context) (bool, error) {
		now, err := client.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
		if gone(err) || err == nil && now.UID != p.UID {
			return true, nil
		}
		return false, err
	})
	if err != nil {
		return fmt.Errorf("wait until pod %s/%s is gone: %w", p.Namespace, p.Name, err)
	}
	return nil
}
