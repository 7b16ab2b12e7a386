package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lameduck/harness"
	"lameduck/harness/evidence"
)

// Paths of the built-in application (see cmd/target).
const (
	configPath = "/lameduck/config"
	streamPath = "/lameduck/stream"
	burnPath   = "/lameduck/burn"
)

// deployment is one trial's namespace.
type deployment struct {
	world     *World
	trial     harness.Trial
	namespace string
	names     Names
	// localTraffic: the Service's externalTrafficPolicy is Local.
	localTraffic bool
	target       harness.Target
	clock        harness.Clock
	rec          harness.Recorder

	view     *view             // nil if Deploy did not get so far
	evidence *evidence.Watcher // the same
	repairs  repairs

	mu      sync.Mutex
	colour  string // that has the traffic; "": that of the beginning
	chosen  string // the node that is disturbed, "": none yet
	drained string // the same, when it is drained
}

var (
	_ harness.World        = (*World)(nil)
	_ harness.Deployment   = (*deployment)(nil)
	_ harness.HPABounds    = (*deployment)(nil)
	_ harness.MetricDriver = (*deployment)(nil)
	_ harness.CPUBurn      = (*deployment)(nil)
	_ harness.Colours      = (*deployment)(nil)
	_ harness.Rollout      = (*deployment)(nil)
	_ harness.PodKiller    = (*deployment)(nil)
	_ harness.Nodes        = (*deployment)(nil)
	_ harness.Faulty       = (*deployment)(nil)

	_ harness.Configurable = (*World)(nil)
)

// Target implements harness.Deployment.
func (d *deployment) Target() harness.Target { return d.target }

// WaitPods implements harness.Deployment.
func (d *deployment) WaitPods(ctx context.Context, n int) error {
	err := d.view.wait(ctx, func() (bool, error) { return count(d.pods()).settled(n), nil })
	if err != nil {
		return fmt.Errorf("wait for %d pods in namespace %s: %w: %s", n, d.namespace, err, count(d.pods()))
	}
	return nil
}

// SetHPABounds implements harness.HPABounds.
func (d *deployment) SetHPABounds(ctx context.Context, minReplicas, maxReplicas int) error {
	patch := fmt.Sprintf(`{"spec":{"minReplicas":%d,"maxReplicas":%d}}`, minReplicas, maxReplicas)
	_, err := d.world.client.AutoscalingV2().HorizontalPodAutoscalers(d.namespace).
		Patch(ctx, d.names.HPA, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("set bounds of the HPA in namespace %s to %d..%d: %w", d.namespace, minReplicas, maxReplicas, err)
	}
	return nil
}

// BurnCPU implements harness.CPUBurn. On error no pod burns that can be
// reached. The application ends a burn by itself after ten minutes.
func (d *deployment) BurnCPU(ctx context.Context, millicores int) (stop func(context.Context) error, err error) {
	if d.trial.Setup.Workload.App != nil {
		return nil, errors.New("burn CPU: only the built-in application can: want workload.app unset, or scenario.drive metric")
	}
	burning := make(map[types.UID]bool)
	stop = func(ctx context.Context) error {
		var errs []error
		for _, pod := range d.view.podsOf(appName) {
			if burning[pod.UID] && pod.DeletionTimestamp == nil {
				errs = append(errs, d.unburn(ctx, pod))
			}
		}
		return errors.Join(errs...)
	}
	for _, pod := range d.view.podsOf(appName) {
		if pod.DeletionTimestamp != nil {
			continue
		}
		burning[pod.UID] = true
		if err := d.burn(ctx, pod.Name, millicores); err != nil {
			undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
			defer cancel()
			return nil, errors.Join(err, stop(undo))
		}
	}
	if len(burning) == 0 {
		return nil, fmt.Errorf("burn CPU in namespace %s: there is no pod", d.namespace)
	}
	return stop, nil
}

func (d *deployment) burn(ctx context.Context, pod string, millicores int) error {
	_, err := d.world.http(ctx, http.MethodPost, d.namespace, pod, burnPath, map[string]string{"millicores": strconv.Itoa(millicores)})
	return err
}

// unburn ends a pod's burn. A pod that has begun to go away burns no more than
// it lives.
func (d *deployment) unburn(ctx context.Context, pod *corev1.Pod) error {
	err := d.burn(ctx, pod.Name, 0)
	if err == nil {
		return nil
	}
	now, getErr := d.world.client.CoreV1().Pods(d.namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if gone(getErr) || getErr == nil && (now.DeletionTimestamp != nil || now.UID != pod.UID) {
		return nil
	}
	return err
}
