package evidence

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"

	"lameduck/harness"
)

// resourceOf maps an object to its resource, in the way the API names them.
func resourceOf(o runtime.Object) []schema.GroupVersionResource {
	kinds, _, err := scheme.Scheme.ObjectKinds(o)
	if err != nil {
		return nil
	}
	gvk := kinds[0]
	return []schema.GroupVersionResource{gvk.GroupVersion().WithResource(strings.ToLower(gvk.Kind) + "s")}
}

// Each case makes changes and then a sentinel of the same kind, so that what
// must not be recorded is known to have been looked at.
func TestEvents(t *testing.T) {
	pod := newPod("app-1")
	ready := withReady(pod, corev1.ConditionTrue)
	leaving := withDeletion(ready, 30)
	restarted := pod.DeepCopy()
	restarted.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "app", ContainerID: "b", RestartCount: 1,
		LastTerminationState: withExit(pod, "a", 2).Status.ContainerStatuses[0].State,
	}}
	control := newPod("control-1")
	control.Labels = map[string]string{RoleLabel: "control"}
	foreign := newSlice("control-x", newEndpoint("control-1", true, false))
	foreign.Labels = nil

	type step = func(*testing.T, *fake.Clientset)
	do := func(objects ...runtime.Object) step {
		return func(t *testing.T, c *fake.Clientset) { put(t, c, objects...) }
	}
	undo := func(o runtime.Object) step {
		return func(t *testing.T, c *fake.Clientset) { remove(t, c, o) }
	}
	for name, c := range map[string]struct {
		steps    []step
		sentinel runtime.Object
		want     []string // the sentinel's event is last, and only its beginning
	}{
		"a pod's life": {
			[]step{
				do(pod, withReady(pod, corev1.ConditionFalse), ready, ready, withReady(pod, corev1.ConditionFalse), ready),
				do(leaving, withReady(leaving, corev1.ConditionFalse)),
				do(withReady(withExit(leaving, "a", 137), corev1.ConditionFalse)),
				undo(pod),
			},
			newPod("last"),
			[]string{
				"pod-created app-1",
				"pod-ready app-1 address=198.19.1.7 node=node1",
				"pod-not-ready app-1",
				"pod-ready app-1 address=198.19.1.7 node=node1",
				"pod-deletion-asked app-1 grace=30",
				"pod-not-ready app-1",
				"container-exited app-1 exitCode=137 finishedAt=1970-01-01T00:16:40Z reason=Error",
				"pod-gone app-1",
				"pod-created last",
			},
		},
		"a storm of the same": {
			[]step{func(t *testing.T, c *fake.Clientset) {
				for range 200 {
					put(t, c, withExit(leaving, "a", 0))
				}
			}},
			newPod("last"),
			[]string{
				"pod-created app-1",
				"pod-deletion-asked app-1 grace=30",
				"pod-ready app-1 address=198.19.1.7 node=node1",
				"container-exited app-1 exitCode=0 finishedAt=1970-01-01T00:16:40Z reason=Error",
				"pod-created last",
			},
		},
		"a shorter grace later": {
			[]step{do(withDeletion(pod, 30), withDeletion(pod, 1))},
			newPod("last"),
			[]string{"pod-created app-1", "pod-deletion-asked app-1 grace=30", "pod-created last"},
		},
		"a container that starts again": {
			[]step{do(withExit(pod, "a", 2), restarted, withExit(restarted, "b", 3))},
			newPod("last"),
			[]string{
				"pod-created app-1",
				"container-exited app-1 exitCode=2 finishedAt=1970-01-01T00:16:40Z reason=Error",
				"container-exited app-1 exitCode=3 finishedAt=1970-01-01T00:16:40Z reason=Error",
				"pod-created last",
			},
		},
		"other pods": {
			[]step{do(control), undo(control)},
			newPod("last"),
			[]string{"pod-created last"},
		},
		"an endpoint's life": {
			[]step{
				do(newSlice("s", newEndpoint("app-1", false, false))),
				do(newSlice("s", newEndpoint("app-1", true, false))),
				do(newSlice("s", newEndpoint("app-1", true, false), newEndpoint("app-2", true, false))),
				do(newSlice("s", newEndpoint("app-1", false, true), newEndpoint("app-2", true, false))),
				do(newSlice("s", newEndpoint("app-1", false, true), newEndpoint("app-2", true, false))),
				do(newSlice("s", newEndpoint("app-2", true, false))),
			},
			newSlice("last", newEndpoint("last", true, false)),
			[]string{
				"endpoint-ready app-1 address=198.19.1.7",
				"endpoint-ready app-2 address=198.19.1.7",
				"endpoint-terminating app-1 address=198.19.1.7",
				"endpoint-removed app-1 address=198.19.1.7",
				"endpoint-ready last",
			},
		},
		"an endpoint that moves": {
			[]step{
				do(newSlice("s", newEndpoint("app-1", true, false))),
				do(newSlice("s2", newEndpoint("app-1", true, false))),
				do(newSlice("s")),
				undo(newSlice("s")),
			},
			newSlice("last", newEndpoint("last", true, false)),
			[]string{"endpoint-ready app-1 address=198.19.1.7", "endpoint-ready last"},
		},
		"a slice that goes": {
			[]step{
				do(newSlice("s", newEndpoint("app-2", true, false), newEndpoint("app-1", true, false))),
				undo(newSlice("s")),
				do(foreign),
			},
			newSlice("last", newEndpoint("last", true, false)),
			[]string{
				"endpoint-ready app-1 address=198.19.1.7",
				"endpoint-ready app-2 address=198.19.1.7",
				"endpoint-removed app-1 address=198.19.1.7",
				"endpoint-removed app-2 address=198.19.1.7",
				"endpoint-ready last",
			},
		},
		"a Deployment's replicas": {
			[]step{do(newDeployment("app", 6), newDeployment("app", 6), newDeployment("control", 1), newDeployment("control", 2), newDeployment("app", 2))},
			newDeployment("app", 1),
			[]string{"replicas Deployment/app from=6 to=2", "replicas Deployment/app from=2 to=1"},
		},
		"an autoscaler's replicas": {
			[]step{do(newHPA("app", 0), newHPA("app", 6), newHPA("app", 6), newHPA("other", 1), newHPA("other", 5), newHPA("app", 2))},
			newHPA("app", 1),
			[]string{"replicas HorizontalPodAutoscaler/app from=6 to=2", "replicas HorizontalPodAutoscaler/app from=2 to=1"},
		},
		"Events": {
			[]step{do(newEvent("e", "Killing", 0), newEvent("e", "Killing", 1), newEvent("e", "Killing", 3), newEvent("e", "Killing", 3))},
			newEvent("last", "Last", 1),
			[]string{
				"kubernetes-event Pod/app-1 message=because reason=Killing type=Warning",
				"kubernetes-event Pod/app-1 count=3 message=because reason=Killing type=Warning",
				"kubernetes-event Pod/app-1 message=because reason=Last type=Warning",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			client, rec, _ := start(t)
			for _, step := range c.steps {
				step(t, client)
			}
			put(t, client, c.sentinel)
			rec.waitEvent(t, c.want[len(c.want)-1])
			got := slices.DeleteFunc(rec.told(), func(line string) bool { return strings.HasPrefix(line, string(harness.EventLogIncomplete)) })
			if n := len(got); n > 0 && strings.HasPrefix(got[n-1], c.want[len(c.want)-1]) {
				got[n-1] = c.want[len(c.want)-1]
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("recorded\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

func TestStampsAreOnTheTrialsClock(t *testing.T) {
	client, rec, w := start(t)
	put(t, client, newPod("app-1"))
	rec.waitEvent(t, "pod-created app-1")
	if at := rec.events[0].At; at <= 0 || at > w.clock.Now() {
		t.Errorf("stamped %s at %s", at, w.clock.Now())
	}
}

func TestWatchEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Watch(ctx, fake.NewClientset(), Workload{namespace, "app", "app", "app", "app"}, harness.NewClock(), newMemory()); err == nil {
		t.Error("no error although the context had ended before the first listing")
	}
}

func TestStopWaitsForPods(t *testing.T) {
	client, rec, w := start(t)
	pod := newPod("app-1")
	put(t, client, pod)
	rec.waitEvent(t, "pod-created app-1")
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		w.Stop(ctx)
	}()
	remove(t, client, pod)
	select {
	case <-stopped:
	case <-time.After(patience):
		t.Fatal("Stop did not return")
	}
	if told := rec.told(); told[len(told)-1] != "pod-gone app-1" {
		t.Errorf("Stop returned before the end of the pod was recorded: %v", told)
	}
}

func TestStopDoesNotWaitLongerThanAsked(t *testing.T) {
	client, rec, w := start(t)
	put(t, client, newPod("app-1"))
	rec.waitEvent(t, "pod-created app-1")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	w.Stop(ended)
	before := len(rec.told())
	put(t, client, newPod("app-2"))
	if after := len(rec.told()); after != before {
		t.Error("recorded after Stop")
	}
}
