package kube

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	// maxWarnings are told of a namespace; the last ones tell most.
	maxWarnings = 5
	// diagnoseLimit bounds asking for them when the caller's time is up already.
	diagnoseLimit = 5 * time.Second
)

// hopeless are waiting reasons that do not go away by waiting: what is wrong is
// in the manifest, the image or the application.
var hopeless = []string{
	"ErrImageNeverPull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError", "CrashLoopBackOff",
}

// giveUp is why it makes no sense to wait for the pods, or nil.
func giveUp(pods []*corev1.Pod) error {
	for _, p := range pods {
		for _, c := range p.Status.ContainerStatuses {
			if w := c.State.Waiting; w != nil && slices.Contains(hopeless, w.Reason) {
				return fmt.Errorf("pod %s will not start: %s", p.Name, w.Reason)
			}
		}
	}
	return nil
}

// troubles says, a clause per pod, why pods are not ready.
func troubles(pods []*corev1.Pod) []string {
	var out []string
	for _, p := range pods {
		if p.DeletionTimestamp != nil || isReady(p) {
			continue
		}
		out = append(out, fmt.Sprintf("pod %s: %s", p.Name, trouble(p)))
	}
	return out
}

func trouble(p *corev1.Pod) string {
	for _, c := range p.Status.ContainerStatuses {
		var parts []string
		if w := c.State.Waiting; w != nil {
			parts = append(parts, said("waiting", w.Reason, w.Message))
		}
		for _, t := range []*corev1.ContainerStateTerminated{c.State.Terminated, c.LastTerminationState.Terminated} {
			if t != nil {
				parts = append(parts, said(fmt.Sprintf("exited with code %d", t.ExitCode), t.Reason, t.Message))
			}
		}
		if len(parts) > 0 {
			return strings.Join(parts, ", ")
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status != corev1.ConditionTrue {
			return said("not scheduled", c.Reason, c.Message)
		}
	}
	if p.Status.Phase == corev1.PodRunning {
		return "runs, but its readiness probe has not succeeded"
	}
	return cmp.Or(string(p.Status.Phase), "not started yet")
}

// said joins what there is of a state, its reason and its message.
func said(what, reason, message string) string {
	if reason != "" {
		what += ": " + reason
	}
	if message = strings.Join(strings.Fields(message), " "); message != "" {
		what += " (" + message + ")"
	}
	return what
}

// warnings are the last Warning Events of a namespace, oldest first. What can
// not be read is not missed: it explains another error.
func warnings(ctx context.Context, client kubernetes.Interface, namespace string) []string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), diagnoseLimit)
	defer cancel()
	list, err := client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil
	}
	events := slices.DeleteFunc(list.Items, func(e corev1.Event) bool { return e.Type != corev1.EventTypeWarning })
	slices.SortStableFunc(events, func(a, b corev1.Event) int { return lastSeen(a).Compare(lastSeen(b)) })
	var out []string
	for _, e := range events[max(0, len(events)-maxWarnings):] {
		out = append(out, said(fmt.Sprintf("%s/%s", e.InvolvedObject.Kind, e.InvolvedObject.Name), e.Reason, e.Message))
	}
	return out
}

func lastSeen(e corev1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	}
	return e.CreationTimestamp.Time
}
