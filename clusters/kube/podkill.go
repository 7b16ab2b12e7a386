package kube

import (
	"context"
	"errors"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// KillPods implements harness.PodKiller. A grace period of 0 is what
// Chaos Mesh's pod-kill has by default (its documentation, PodChaos,
// gracePeriod): the pod vanishes from the API at once, and its node kills what
// is left of it.
func (d *deployment) KillPods(ctx context.Context, n int) error {
	replicas := 0
	var victims []types.NamespacedName
	killed := make(map[types.UID]bool)
	for _, p := range d.pods() {
		if p.DeletionTimestamp != nil || !isReady(p) {
			continue
		}
		if replicas++; replicas <= n {
			victims = append(victims, types.NamespacedName{Namespace: p.Namespace, Name: p.Name})
			killed[p.UID] = true
		}
	}
	if replicas < n {
		return fmt.Errorf("kill %d pods in namespace %s: only %d are ready", n, d.namespace, replicas)
	}
	now := int64(0)
	errs := make([]error, len(victims))
	var wg sync.WaitGroup
	for i, v := range victims { // at once, or the first are back before the last has gone
		wg.Go(func() {
			errs[i] = d.world.client.CoreV1().Pods(v.Namespace).Delete(ctx, v.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("kill pods: %w", err)
	}
	err := d.view.wait(ctx, func() (bool, error) {
		pods := d.pods()
		for _, p := range pods {
			if killed[p.UID] { // the watch lags behind
				return false, nil
			}
		}
		return count(pods).settled(replicas), nil
	})
	if err != nil {
		return fmt.Errorf("wait for %d pods in namespace %s after %d were killed: %w: %s", replicas, d.namespace, n, err, count(d.pods()))
	}
	return nil
}
