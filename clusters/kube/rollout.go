package kube

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// restartedAt is what kubectl rollout restart changes in a pod template
	// (kubectl, pkg/polymorphichelpers/objectrestarter.go).
	restartedAt = "kubectl.kubernetes.io/restartedAt"
	// deadlineExceeded is the reason with which a Deployment's condition
	// Progressing says that a rollout is stuck (Deployment controller,
	// TimedOutReason).
	deadlineExceeded = "ProgressDeadlineExceeded"
)

// Rollout implements harness.Rollout. It does what kubectl rollout restart and
// kubectl rollout status do, and then waits until no old pod is left.
func (d *deployment) Rollout(ctx context.Context) (pods int, err error) {
	name := d.currentName()
	old := make(map[types.UID]bool)
	for _, p := range d.pods() {
		if p.DeletionTimestamp == nil {
			old[p.UID] = true
		}
	}
	deployments := d.world.client.AppsV1().Deployments(d.namespace)
	patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{%q:%q}}}}}`, restartedAt, time.Now().Format(time.RFC3339))
	changed, err := deployments.Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return 0, fmt.Errorf("change pod template of Deployment %s in namespace %s: %w", name, d.namespace, err)
	}
	last := ""
	err = wait.PollUntilContextCancel(ctx, confirmPoll, true, func(ctx context.Context) (bool, error) {
		now, err := deployments.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		last, err = unfinished(now, changed.Generation)
		return last == "", err
	})
	if err == nil {
		err = d.view.wait(ctx, func() (bool, error) {
			left := 0
			for _, p := range d.pods() {
				if old[p.UID] {
					left++
				}
			}
			last = fmt.Sprintf("%d old pods are left", left)
			return left == 0, nil
		})
	}
	if err != nil {
		return 0, fmt.Errorf("roll out Deployment %s in namespace %s: %w: %s", name, d.namespace, err, last)
	}
	return len(old), nil
}

// unfinished says what a rollout waits for, in the order of kubectl rollout
// status, "" if for nothing (kubectl, pkg/polymorphichelpers/rollout_status.go).
func unfinished(d *appsv1.Deployment, generation int64) (string, error) {
	s := d.Status
	if s.ObservedGeneration < generation {
		return "the Deployment controller has not seen the change yet", nil
	}
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentProgressing && c.Reason == deadlineExceeded {
			return "", fmt.Errorf("it made no progress: %s", c.Message)
		}
	}
	want := int32(1)
	if d.Spec.Replicas != nil {
		want = *d.Spec.Replicas
	}
	switch {
	case s.UpdatedReplicas < want:
		return fmt.Sprintf("%d of %d new pods exist", s.UpdatedReplicas, want), nil
	case s.Replicas > s.UpdatedReplicas:
		return fmt.Sprintf("%d old pods are left", s.Replicas-s.UpdatedReplicas), nil
	case s.AvailableReplicas < s.UpdatedReplicas:
		return fmt.Sprintf("%d of %d new pods are available", s.AvailableReplicas, s.UpdatedReplicas), nil
	}
	return "", nil
}
