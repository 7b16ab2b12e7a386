package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lameduck/harness"
	"lameduck/harness/evidence"
)

// Paths of the built-in application (see cmd/target).
const (
	configPath = "/lameduck/config"
	burnPath   = "/lameduck/burn"
)

// deployment is one trial's namespace.
type deployment struct {
	world     *World
	trial     harness.Trial
	namespace string
	target    harness.Target
	clock     harness.Clock
	rec       harness.Recorder

	view     *view             // nil if Deploy did not get so far
	evidence *evidence.Watcher // the same
	repairs  repairs

	mu      sync.Mutex
	colour  string // that has the traffic; "": that of the beginning
	chosen  string // the node that is disturbed, "": none yet
	drained string // the same, when it is drained
}

var (
	_ harness.World      = (*World)(nil)
	_ harness.Deployment = (*deployment)(nil)
	_ harness.HPABounds  = (*deployment)(nil)
	_ harness.CPUBurn    = (*deployment)(nil)
	_ harness.Colours    = (*deployment)(nil)
	_ harness.Rollout    = (*deployment)(nil)
	_ harness.PodKiller  = (*deployment)(nil)
	_ harness.Nodes      = (*deployment)(nil)
	_ harness.Faulty     = (*deployment)(nil)

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

// Observe implements harness.Deployment: the pods' own specs from the API
// server, which an admission webhook may have changed, and the application's
// answer to what it was told. Pods that terminate are left out.
func (d *deployment) Observe(ctx context.Context) (harness.Live, error) {
	list, err := d.world.client.CoreV1().Pods(d.namespace).List(ctx, metav1.ListOptions{LabelSelector: nameLabel + "=" + appName})
	if err != nil {
		return harness.Live{}, fmt.Errorf("list pods: %w", err)
	}
	var live harness.Live
	for _, pod := range list.Items {
		if pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning || pod.Labels[colourLabel] != d.current() {
			continue
		}
		p, err := d.observe(ctx, &pod)
		if err != nil {
			return harness.Live{}, err
		}
		live.Pods = append(live.Pods, p)
	}
	return live, nil
}

func (d *deployment) observe(ctx context.Context, pod *corev1.Pod) (harness.LivePod, error) {
	live := harness.LivePod{Name: pod.Name, Ready: isReady(pod), Settings: make(map[string]string)}
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		live.Settings["workload.gracePeriod"] = (time.Duration(*s) * time.Second).String()
	}
	sleep, err := preStopSleep(pod)
	if err != nil {
		return live, fmt.Errorf("pod %s: %w", pod.Name, err)
	}
	live.Settings["workload.preStopSleep"] = sleep.String()
	body, err := d.world.http.get(ctx, d.namespace, pod.Name, configPath)
	if err != nil {
		return live, err
	}
	var config struct {
		OnSIGTERM   harness.OnSIGTERM `json:"onSigterm"`
		SIGTERMWait harness.Duration  `json:"sigtermWait"`
	}
	if err := json.Unmarshal(body, &config); err != nil {
		return live, fmt.Errorf("read %s of pod %s: %w", configPath, pod.Name, err)
	}
	live.Settings["workload.onSigterm"] = string(config.OnSIGTERM)
	live.Settings["workload.sigtermWait"] = config.SIGTERMWait.String()
	return live, nil
}

// preStopSleep is how long the pod's preStop hook sleeps. A hook that does
// something else is an error: it cannot be compared with what was asked for.
func preStopSleep(pod *corev1.Pod) (harness.Duration, error) {
	i := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == appName })
	if i < 0 {
		return harness.Duration{}, fmt.Errorf("has no container %s", appName)
	}
	lifecycle := pod.Spec.Containers[i].Lifecycle
	if lifecycle == nil || lifecycle.PreStop == nil {
		return harness.Duration{}, nil
	}
	switch hook := lifecycle.PreStop; {
	case hook.Sleep != nil:
		return harness.Dur(time.Duration(hook.Sleep.Seconds) * time.Second), nil
	case hook.Exec != nil && len(hook.Exec.Command) == 3 && slices.Equal(hook.Exec.Command[:2], []string{targetBinary, "sleep"}):
		d, err := time.ParseDuration(hook.Exec.Command[2])
		if err != nil {
			return harness.Duration{}, fmt.Errorf("preStop: %w", err)
		}
		return harness.Dur(d), nil
	case hook.Exec != nil:
		return harness.Duration{}, fmt.Errorf("preStop runs %q, want %s sleep", hook.Exec.Command, targetBinary)
	}
	return harness.Duration{}, errors.New("preStop is neither a command nor a sleep")
}

// SetHPABounds implements harness.HPABounds.
func (d *deployment) SetHPABounds(ctx context.Context, minReplicas, maxReplicas int) error {
	patch := fmt.Sprintf(`{"spec":{"minReplicas":%d,"maxReplicas":%d}}`, minReplicas, maxReplicas)
	_, err := d.world.client.AutoscalingV2().HorizontalPodAutoscalers(d.namespace).
		Patch(ctx, appName, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("set bounds of the HPA in namespace %s to %d..%d: %w", d.namespace, minReplicas, maxReplicas, err)
	}
	return nil
}

// BurnCPU implements harness.CPUBurn. On error no pod burns that can be
// reached. The application ends a burn by itself after ten minutes.
func (d *deployment) BurnCPU(ctx context.Context, millicores int) (stop func(context.Context) error, err error) {
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
