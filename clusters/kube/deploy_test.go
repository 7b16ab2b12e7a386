package kube

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"lameduck/clusters"
	"lameduck/harness"
)

func TestDeployAndRemove(t *testing.T) {
	c, rec := newFakeCluster(), &memory{}
	var opened string
	looks := 0
	w := c.worldWithLog(fakeLog(func(namespace, ingress string, log clusters.LogName) (string, error) {
		if log == clusters.LogTargets {
			looks++
			return targetLog(namespace, min(looks, 2)), nil // the second target comes late
		}
		opened = namespace + "/" + ingress
		return "{\"n\":1}\n{\"n\":2}\n", nil
	}))
	d, err := w.Deploy(testContext(t), testTrial(), harness.NewClock(), rec)
	if err != nil {
		t.Fatal(err)
	}
	want := harness.Target{
		URL: "http://198.18.0.5:20014/", ReadyURL: "http://198.18.0.5:20014/healthz",
		ControlURL: "http://198.18.0.5:20014/lameduck-control", StreamURL: "http://198.18.0.5:20014/lameduck/stream",
	}
	if !reflect.DeepEqual(d.Target(), want) {
		t.Errorf("target %+v, want %+v", d.Target(), want)
	}
	if left := c.left(t, testNamespace); !slices.Equal(left, []string{"7 Pod", "2 Service", "2 Deployment", "1 Ingress", "1 HorizontalPodAutoscaler"}) {
		t.Errorf("deployed %v", left)
	}
	if err := d.Remove(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if left := c.left(t, testNamespace); left != nil {
		t.Errorf("left behind: %v", left)
	}
	if err := w.Close(testContext(t)); err != nil {
		t.Error(err)
	}
	if n := c.namespaces(t); n != nil {
		t.Errorf("namespaces left: %v", n)
	}
	if opened != testNamespace+"/app" || !slices.Contains(rec.lines, `lb {"n":1}`) || !slices.Contains(rec.lines, `lb {"n":2}`) ||
		!slices.ContainsFunc(rec.lines, func(l string) bool { return strings.HasPrefix(l, "targets {") }) {
		t.Errorf("load balancer log of %s: %q", opened, rec.lines)
	}
	if n := rec.kinds()[harness.EventPodGone]; n != 6 {
		t.Errorf("%d pods were seen to go, want 6", n)
	}
}

// targetLog has one node as a target of the workload, and another one that is
// healthy from the second version on; and the control pod.
func targetLog(namespace string, version int) string {
	log := ""
	add := func(service, target, node, state string) {
		log += fmt.Sprintf(`{"time":"2026-03-01T09:20:30Z","group":"%s/%s:80","target":"%s","node":"%s","state":"%s","reason":"","detail":""}`+"\n",
			namespace, service, target, node, state)
	}
	add("app", "198.18.0.11:30080", "", "initial")
	add("app", "198.18.0.12:30080", "", "initial")
	add("app", "198.18.0.12:30080", "198.18.0.5", "healthy")
	add("app", "198.18.0.11:30080", "", "healthy")
	add("control", "198.18.32.2:8080", "", "healthy")
	if version > 1 {
		add("app", "198.18.0.12:30080", "", "healthy")
	}
	return log
}

func TestDeployWaitsForEveryTarget(t *testing.T) {
	c := newFakeCluster()
	trial := testTrial()
	trial.Setup.LoadBalancer.TargetType = harness.TargetIP
	w := c.worldWithLog(fakeLog(func(namespace, _ string, log clusters.LogName) (string, error) { return targetLog(namespace, 2), nil }))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := w.Deploy(ctx, trial, harness.NewClock(), &memory{})
	if want := "2 of 6 targets of Service app are healthy"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q in it: in IP mode every pod is a target", err, want)
	}
}

func TestRemoveTellsOfAMissingLog(t *testing.T) {
	c, rec := newFakeCluster(), &memory{}
	w := c.worldWithLog(fakeLog(func(namespace, _ string, log clusters.LogName) (string, error) {
		if log == clusters.LogTargets {
			return targetLog(namespace, 2), nil
		}
		return "", errNotNow
	}))
	d, err := w.Deploy(testContext(t), testTrial(), harness.NewClock(), rec)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Remove(testContext(t)); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(rec.events, func(e harness.Event) bool {
		return e.Kind == harness.EventLogIncomplete && e.Object == harness.LogLoadBalancer
	})
	if i < 0 || !strings.Contains(rec.events[i].Detail["error"], "not now") {
		t.Errorf("events do not tell of the missing log: %v", rec.events)
	}
}

// A pod that is created while the namespace closes must not stay.
func TestRemoveFindsAStraggler(t *testing.T) {
	c := newFakeCluster()
	w := c.world()
	d, err := w.Deploy(testContext(t), testTrial(), harness.NewClock(), &memory{})
	if err != nil {
		t.Fatal(err)
	}
	c.PrependReactor("delete-collection", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "app-late", Namespace: testNamespace, UID: "late"}}
		return false, nil, errors.Join(c.Tracker().Create(podsResource, pod, testNamespace))
	})
	// The fake's own deletion of the collection must not find it.
	c.PrependReactor("delete-collection", "services", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, nil })
	if err := d.Remove(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if left := c.left(t, testNamespace); left != nil {
		t.Errorf("left behind: %v", left)
	}
}

// Whatever goes wrong, the error says why and nothing is left behind.
func TestDeployFails(t *testing.T) {
	for name, c := range map[string]struct {
		disturb func(*fakeCluster)
		want    []string
	}{
		"image missing": {func(c *fakeCluster) {
			c.newPod = func(p *corev1.Pod) {
				p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{
					Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImageNeverPull", Message: "image is not present"},
				}}}
			}
		}, []string{"will not start: ErrImageNeverPull", "0 of 6 pods ready", "(image is not present)", "BackOff (last one)"}},
		"create refused": {func(c *fakeCluster) {
			c.PrependReactor("create", "horizontalpodautoscalers", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, errNotNow
			})
		}, []string{"create HorizontalPodAutoscaler app in namespace " + testNamespace, "not now"}},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := newFakeCluster()
			c.disturb(cluster)
			cluster.PrependReactor("list", "events", func(a clienttesting.Action) (bool, runtime.Object, error) {
				return true, &corev1.EventList{Items: []corev1.Event{
					{Type: "Warning", Reason: "BackOff", Message: "last one", LastTimestamp: metav1.Unix(2, 0), InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "app-0"}},
					{Type: "Warning", Reason: "Failed", Message: "first one", LastTimestamp: metav1.Unix(1, 0)},
					{Type: "Normal", Reason: "Pulled", Message: "fine"},
				}}, nil
			})
			_, err := cluster.world().Deploy(testContext(t), testTrial(), harness.NewClock(), &memory{})
			checkError(t, err, c.want...)
			if left := cluster.left(t, testNamespace); left != nil || cluster.namespaces(t) != nil {
				t.Errorf("left behind: %v, namespaces %v", left, cluster.namespaces(t))
			}
		})
	}
}

// Ctrl-C while the deployment waits.
func TestDeployIsInterrupted(t *testing.T) {
	c := newFakeCluster()
	c.address = ""
	ctx, cancel := context.WithCancelCause(t.Context())
	c.newPod = func(p *corev1.Pod) {
		if makeReady(p); p.Name == "app-5" {
			p.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/2 nodes",
			}}
		}
	}
	c.PrependReactor("create", "horizontalpodautoscalers", func(clienttesting.Action) (bool, runtime.Object, error) {
		go func() {
			time.Sleep(50 * time.Millisecond)
			cancel(errors.New("interrupted"))
		}()
		return false, nil, nil
	})
	_, err := c.world().Deploy(ctx, testTrial(), harness.NewClock(), &memory{})
	checkError(t, err, "interrupted", "5 of 6 pods ready", "pod app-5: not scheduled: Unschedulable (0/2 nodes)")
	if left := c.left(t, testNamespace); left != nil || c.namespaces(t) != nil {
		t.Errorf("left behind: %v, namespaces %v", left, c.namespaces(t))
	}
}

// Another run's namespace is not ours to use or to remove.
func TestDeployKeepsOffAForeignNamespace(t *testing.T) {
	c := newFakeCluster()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: testNamespace}}
	if _, err := c.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := c.world().Deploy(testContext(t), testTrial(), harness.NewClock(), &memory{})
	checkError(t, err, "already exists", "another run's")
	if !slices.Equal(c.namespaces(t), []string{testNamespace}) {
		t.Errorf("namespaces %v", c.namespaces(t))
	}
}

func checkError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error does not say %q: %v", part, err)
		}
	}
}

func TestTargetHasEveryNode(t *testing.T) {
	got := targetAt(harness.Setup{}, []string{"198.18.0.5", "198.18.0.7"}, 80)
	if want := []string{"198.18.0.5:80", "198.18.0.7:80"}; !slices.Equal(got.Nodes, want) || got.URL != "http://198.18.0.5:80/" {
		t.Errorf("target %+v, want nodes %v", got, want)
	}
	if got := targetAt(harness.Setup{}, []string{"lb.example"}, 80); got.Nodes != nil {
		t.Errorf("nodes %v for a name, want none: it is looked up", got.Nodes)
	}
}

func TestNoLoadBalancerIsNamed(t *testing.T) {
	c := newFakeCluster()
	c.address = ""
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := c.world().Deploy(ctx, testTrial(), harness.NewClock(), &memory{})
	checkError(t, err, "6 of 6 pods ready", "the Ingress has no address (does a controller for ingress class alb run?)")
}
