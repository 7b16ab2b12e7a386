package evidence

import (
	"context"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"lameduck/harness"
)

// podTracker turns pods into events.
type podTracker struct {
	w        *Watcher
	watching context.Context
	pods     map[types.UID]*podState
}

// podState is what was recorded of one pod.
type podState struct {
	ready, deletionAsked bool
	exits                map[string]bool // by container ID, or name and restart without one
	log                  *logFollower    // nil until the container has started
}

func (t *podTracker) seen(pod *corev1.Pod) {
	if !t.w.ours(pod) {
		return
	}
	state := t.pods[pod.UID]
	if state == nil {
		state = &podState{exits: make(map[string]bool)}
		t.pods[pod.UID] = state
		t.w.open.begin()
		t.w.emit(harness.EventPodCreated, pod.Name, nil)
	}
	if pod.DeletionTimestamp != nil && !state.deletionAsked {
		state.deletionAsked = true
		t.w.emit(harness.EventPodDeletionAsked, pod.Name, map[string]string{"grace": graceSeconds(pod)})
	}
	if ready := isReady(pod); ready != state.ready {
		state.ready = ready
		if ready {
			t.w.emit(harness.EventPodReady, pod.Name, map[string]string{"address": pod.Status.PodIP, "node": pod.Spec.NodeName})
		} else {
			t.w.emit(harness.EventPodNotReady, pod.Name, nil)
		}
	}
	for _, c := range pod.Status.ContainerStatuses {
		if c.Name == t.w.workload.Container {
			t.container(pod, state, c)
		}
	}
}

// container records exits, also that of an earlier start of the container, and
// sees to the log.
func (t *podTracker) container(pod *corev1.Pod, state *podState, c corev1.ContainerStatus) {
	t.exited(pod, state, c, c.LastTerminationState.Terminated)
	t.exited(pod, state, c, c.State.Terminated)
	if started := c.State.Running != nil || c.State.Terminated != nil; started && state.log == nil {
		state.log = newLogFollower(t.w, pod.Name)
		t.w.open.begin()
		t.w.logs.Go(func() {
			defer t.w.open.end()
			state.log.follow(t.watching)
		})
	}
	if c.State.Terminated != nil && pod.DeletionTimestamp != nil && state.log != nil {
		state.log.noMore()
	}
}

func (t *podTracker) exited(pod *corev1.Pod, state *podState, c corev1.ContainerStatus, exit *corev1.ContainerStateTerminated) {
	if exit == nil {
		return
	}
	key := exit.ContainerID
	if key == "" {
		key = c.Name + "/" + strconv.Itoa(int(c.RestartCount))
	}
	if state.exits[key] {
		return
	}
	state.exits[key] = true
	t.w.emit(harness.EventContainerExited, pod.Name, map[string]string{
		"exitCode":   strconv.Itoa(int(exit.ExitCode)),
		"reason":     exit.Reason,
		"finishedAt": exit.FinishedAt.UTC().Format(time.RFC3339),
	})
}

func (t *podTracker) gone(pod *corev1.Pod) {
	if !t.w.ours(pod) {
		return
	}
	// The last status often comes with the deletion only.
	t.seen(pod)
	if log := t.pods[pod.UID].log; log != nil {
		log.noMore()
	}
	delete(t.pods, pod.UID)
	t.w.emit(harness.EventPodGone, pod.Name, nil)
	t.w.open.end()
}

func graceSeconds(pod *corev1.Pod) string {
	if pod.DeletionGracePeriodSeconds == nil {
		return ""
	}
	return strconv.FormatInt(*pod.DeletionGracePeriodSeconds, 10)
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
