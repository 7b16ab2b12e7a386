package kube

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"lameduck/clusters"
	"lameduck/harness"
)

const (
	// lastLines is how long Remove waits, when the pods are gone, for the end of
	// their logs. The kubelet looks once a second whether a container whose log is
	// read has exited (cri-client, logForceCheckPeriod).
	lastLines = 2 * time.Second
	// namespacePoll is how often a namespace that goes away is looked at.
	namespacePoll = 200 * time.Millisecond
	// longestLogLine of a load balancer.
	longestLogLine = 1 << 20
)

// Remove implements harness.Deployment. It returns when all pods and the
// Ingress are gone and the namespace's deletion is under way; the cluster ends
// that on its own, and World.Close waits for it. Kubernetes takes at least five
// seconds for it (namespaceDeletionGracePeriod of the namespace controller),
// which the next trial need not wait for.
func (d *deployment) Remove(ctx context.Context) error {
	err := d.remove(ctx)
	// Only now: the load balancer holds lines back for a moment, and closes its
	// log when the Ingress goes, which is well before the last pod has gone.
	for _, l := range loadBalancerLogs {
		if logErr := d.copyLoadBalancerLog(ctx, l.name, l.record); logErr != nil {
			d.rec.Event(harness.Event{
				At: d.clock.Now(), Kind: harness.EventLogIncomplete, Object: l.record,
				Detail: map[string]string{"error": logErr.Error()},
			})
		}
	}
	return err
}

// remove deletes and then stops the watchers, which see it happen. The cluster
// is made whole first: a pod on a node that does not run never goes.
func (d *deployment) remove(ctx context.Context) error {
	repaired := d.repairs.all(ctx)
	err := teardown(ctx, d.world.client, d.namespace)
	if err == nil {
		d.world.leave(d.namespace)
	}
	err = errors.Join(repaired, err)
	if d.evidence != nil {
		last, cancel := context.WithTimeout(ctx, lastLines)
		defer cancel()
		d.evidence.Stop(last)
	}
	if d.view != nil {
		d.view.stop()
	}
	return err
}

// loadBalancerLogs are the logs that a record keeps, and their names in it.
var loadBalancerLogs = []struct {
	name   clusters.LogName
	record string
}{
	{clusters.LogRequests, harness.LogLoadBalancer},
	{clusters.LogTargets, harness.LogTargets},
}

// copyLoadBalancerLog puts one of the load balancer's logs into the record.
func (d *deployment) copyLoadBalancerLog(ctx context.Context, name clusters.LogName, record string) error {
	return d.eachLogLine(ctx, name, func(line []byte) error {
		d.rec.Log(record, append([]byte(nil), line...))
		return nil
	})
}

// eachLogLine reads what one of the load balancer's logs has so far. line is
// valid until each returns.
func (d *deployment) eachLogLine(ctx context.Context, name clusters.LogName, each func(line []byte) error) error {
	if d.world.cfg.LoadBalancerLog == nil {
		return nil
	}
	log, err := d.world.cfg.LoadBalancerLog.LoadBalancerLog(ctx, d.namespace, appName, name)
	if err != nil {
		return fmt.Errorf("open the load balancer's log: %w", err)
	}
	defer log.Close()
	lines := bufio.NewScanner(log)
	lines.Buffer(make([]byte, 0, 64<<10), longestLogLine)
	for lines.Scan() {
		if err := each(lines.Bytes()); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the load balancer's log: %w", err)
	}
	return nil
}

// teardown deletes a namespace of ours and what is in it, and returns when no
// pod and no Ingress is left. Controllers and namespace would delete the pods
// with their own grace period, and the kubelet does not shorten a preStop hook
// that has begun; so the pods are orphaned first, deleted with one second, and
// the namespace goes last.
func teardown(ctx context.Context, client kubernetes.Interface, namespace string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("remove namespace %s: %w", namespace, err)
		}
	}()
	v, err := newView(ctx, client, namespace)
	if err != nil {
		return err
	}
	defer v.stop()
	if err := deleteAll(ctx, client, namespace); err != nil {
		return err
	}
	deleted := make(map[types.UID]bool)
	err = v.wait(ctx, func() (bool, error) {
		pods := v.allPods()
		for _, pod := range pods {
			// One that a controller created while its owner was deleted.
			if pod.DeletionTimestamp == nil && !deleted[pod.UID] {
				deleted[pod.UID] = true
				if err := client.CoreV1().Pods(namespace).Delete(ctx, pod.Name, soon(metav1.DeletePropagationBackground)); err != nil && !gone(err) {
					return false, err
				}
			}
		}
		return len(pods) == 0 && len(v.ingresses.List()) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("%w: %d pods and %d Ingresses are left", err, len(v.allPods()), len(v.ingresses.List()))
	}
	if err := client.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{}); err != nil && !gone(err) && !apierrors.IsConflict(err) {
		return err
	}
	return nil
}

// deleteAll asks for the deletion of everything that lives in the namespace.
// The load is over, so the pods get one second whatever their grace period:
// with 0 they would vanish from the API before they have stopped.
func deleteAll(ctx context.Context, client kubernetes.Interface, namespace string) error {
	now, all := metav1.DeleteOptions{}, metav1.ListOptions{}
	orphan := metav1.DeletePropagationOrphan
	orphaning := metav1.DeleteOptions{PropagationPolicy: &orphan}
	var errs []error
	for _, err := range []error{
		client.NetworkingV1().Ingresses(namespace).DeleteCollection(ctx, now, all),
		client.AutoscalingV2().HorizontalPodAutoscalers(namespace).DeleteCollection(ctx, now, all),
		client.AppsV1().Deployments(namespace).DeleteCollection(ctx, orphaning, all),
		client.AppsV1().ReplicaSets(namespace).DeleteCollection(ctx, orphaning, all),
		// An application's own manifests may have any of these.
		client.AppsV1().StatefulSets(namespace).DeleteCollection(ctx, orphaning, all),
		client.AppsV1().DaemonSets(namespace).DeleteCollection(ctx, orphaning, all),
		client.BatchV1().CronJobs(namespace).DeleteCollection(ctx, orphaning, all),
		client.BatchV1().Jobs(namespace).DeleteCollection(ctx, orphaning, all),
		client.PolicyV1().PodDisruptionBudgets(namespace).DeleteCollection(ctx, now, all),
		client.CoreV1().Pods(namespace).DeleteCollection(ctx, soon(metav1.DeletePropagationBackground), all),
		deleteServices(ctx, client, namespace),
	} {
		if err != nil && !gone(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func deleteServices(ctx context.Context, client kubernetes.Interface, namespace string) error {
	services, err := client.CoreV1().Services(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range services.Items {
		if err := client.CoreV1().Services(namespace).Delete(ctx, s.Name, metav1.DeleteOptions{}); err != nil && !gone(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func soon(p metav1.DeletionPropagation) metav1.DeleteOptions {
	second := int64(1)
	return metav1.DeleteOptions{GracePeriodSeconds: &second, PropagationPolicy: &p}
}

// leave notes a namespace that Close has to wait for.
func (w *World) leave(namespace string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left = append(w.left, namespace)
}

// Close waits until the namespaces of all deployments that were removed are
// gone. Without it they go as well, a few seconds later.
func (w *World) Close(ctx context.Context) error {
	w.mu.Lock()
	left := w.left
	w.left = nil
	w.mu.Unlock()
	ctx, cancel := withinGoneLimit(ctx)
	defer cancel()
	var errs []error
	for _, namespace := range left {
		errs = append(errs, waitGone(ctx, w.client, namespace))
	}
	return errors.Join(errs...)
}

// goneLimit bounds the wait for namespaces, which takes seconds once their pods
// are gone. One with a finalizer that nobody serves stays for ever.
const goneLimit = 2 * time.Minute

// withinGoneLimit is one limit for all namespaces that go at the same time.
func withinGoneLimit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, goneLimit, fmt.Errorf("still there after %s", goneLimit))
}

// waitGone waits until a namespace is gone; its error says what the namespace
// controller complains about, and whose finalizers are left.
func waitGone(ctx context.Context, client kubernetes.Interface, namespace string) error {
	var last *corev1.Namespace
	err := wait.PollUntilContextCancel(ctx, namespacePoll, true, func(ctx context.Context) (bool, error) {
		ns, err := client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		if err == nil {
			last = ns
		}
		return gone(err), nil
	})
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	err = fmt.Errorf("wait until namespace %s is gone: %w", namespace, err)
	if last != nil {
		if len(last.Finalizers) > 0 {
			err = fmt.Errorf("%w; it has finalizers %s", err, strings.Join(last.Finalizers, ", "))
		}
		for _, c := range last.Status.Conditions {
			if c.Status == corev1.ConditionTrue {
				err = fmt.Errorf("%w; %s", err, said(string(c.Type), c.Reason, c.Message))
			}
		}
	}
	return err
}

func gone(err error) bool { return apierrors.IsNotFound(err) }
