package kube

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"lameduck/harness"
)

// rollsOut answers a change of the pod template with a rollout: each pod of
// Deployment app is replaced, step after step, and the status follows.
func rollsOut(t *testing.T, c *fakeCluster, steps ...appsv1.DeploymentStatus) {
	c.PrependReactor("patch", "deployments", func(a clienttesting.Action) (bool, runtime.Object, error) {
		o, err := c.Tracker().Get(a.GetResource(), a.GetNamespace(), appName)
		if err != nil {
			return true, nil, err
		}
		d := o.(*appsv1.Deployment).DeepCopy()
		d.Generation = 2
		if !strings.Contains(string(a.(clienttesting.PatchAction).GetPatch()), `"kubectl.kubernetes.io/restartedAt":"`) {
			t.Errorf("patch %s", a.(clienttesting.PatchAction).GetPatch())
		}
		for i, s := range steps {
			time.AfterFunc(time.Duration(i+1)*time.Second, func() {
				now := d.DeepCopy()
				now.Status = s
				if err := c.Tracker().Update(a.GetResource(), now, a.GetNamespace()); err != nil {
					t.Error(err)
				}
			})
		}
		return true, d, c.Tracker().Update(a.GetResource(), d, a.GetNamespace())
	})
}

func TestRollout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d, _ := verbs(t, nil, func(s *harness.Setup) { s.Workload.Replicas = 2 })
		rollsOut(t, c,
			appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2}, // of the change before
			appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 1, AvailableReplicas: 2},
			appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 3, UpdatedReplicas: 2, AvailableReplicas: 3},
			appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 1},
			appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2},
		)
		time.AfterFunc(2*time.Second, func() { c.replace(t, "app-0", "app-2") })
		time.AfterFunc(9*time.Second, func() { c.replace(t, "app-1", "app-3") }) // after its grace period
		start := time.Now()
		pods, err := d.Rollout(testContext(t))
		if err != nil || pods != 2 || time.Since(start) < 9*time.Second {
			t.Errorf("%d pods replaced in %s, error %v", pods, time.Since(start), err)
		}
	})
}

func TestRolloutIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d, _ := verbs(t, nil, nil)
		rollsOut(t, c, appsv1.DeploymentStatus{ObservedGeneration: 2, Conditions: []appsv1.DeploymentCondition{
			{Type: appsv1.DeploymentProgressing, Reason: "ProgressDeadlineExceeded", Message: "no image"},
		}})
		_, err := d.Rollout(testContext(t))
		checkError(t, err, "roll out Deployment app", "no image")
	})
}

func TestKillPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d, _ := verbs(t, nil, nil)
		checkError(t, d.KillPods(t.Context(), 7), "only 6 are ready")
		c.before("delete", "pods", func(a clienttesting.Action) error {
			del := a.(clienttesting.DeleteActionImpl)
			if g := del.DeleteOptions.GracePeriodSeconds; g == nil || *g != 0 {
				t.Errorf("pod %s is deleted with grace %v, want 0", del.Name, g)
			}
			o, err := c.Tracker().Get(podsResource, testNamespace, del.Name)
			if err != nil {
				return err
			}
			time.AfterFunc(3*time.Second, func() {
				pod := o.(*corev1.Pod).DeepCopy()
				pod.Name, pod.UID = "new-"+pod.Name, "new-"+pod.UID
				if err := c.Tracker().Create(podsResource, pod, testNamespace); err != nil {
					t.Error(err)
				}
			})
			return nil
		})
		start := time.Now()
		if err := d.KillPods(testContext(t), 2); err != nil || time.Since(start) < 3*time.Second {
			t.Errorf("back after %s, error %v", time.Since(start), err)
		}
		fresh := 0
		for _, p := range d.pods() {
			if strings.HasPrefix(p.Name, "new-") {
				fresh++
			}
		}
		if fresh != 2 {
			t.Errorf("%d pods are new, want 2", fresh)
		}
		c.ReactionChain = c.ReactionChain[1:] // Remove deletes with another grace period
	})
}
