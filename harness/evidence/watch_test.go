package evidence

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"lameduck/harness"
)

const namespace = "lameduck-test-0001"

// patience bounds waiting for something that must come; a test that passes
// does not wait for it.
const patience = 30 * time.Second

// memory is a Recorder that can be waited on.
type memory struct {
	mu      sync.Mutex
	events  []harness.Event
	lines   []string
	changed chan struct{}
}

func newMemory() *memory { return &memory{changed: make(chan struct{})} }

func (m *memory) change(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *memory) Request(harness.Request) {}
func (m *memory) Event(e harness.Event)   { m.change(func() { m.events = append(m.events, e) }) }
func (m *memory) Log(log string, line []byte) {
	m.change(func() { m.lines = append(m.lines, log+" "+string(line)) })
}

// told is every event as one line: kind object key=value ...
func (m *memory) told() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var lines []string
	for _, e := range m.events {
		line := fmt.Sprintf("%s %s", e.Kind, e.Object)
		for _, key := range slices.Sorted(maps.Keys(e.Detail)) {
			line += fmt.Sprintf(" %s=%s", key, e.Detail[key])
		}
		lines = append(lines, line)
	}
	return lines
}

func (m *memory) logged() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.lines)
}

func (m *memory) waitFor(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for {
		m.mu.Lock()
		changed := m.changed
		m.mu.Unlock()
		if cond() {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("%s did not come; events:\n%s\nlog:\n%s", what, strings.Join(m.told(), "\n"), strings.Join(m.logged(), "\n"))
		}
	}
}

// waitEvent waits for an event that begins so.
func (m *memory) waitEvent(t *testing.T, prefix string) {
	t.Helper()
	m.waitFor(t, prefix, func() bool {
		return slices.ContainsFunc(m.told(), func(line string) bool { return strings.HasPrefix(line, prefix) })
	})
}

// start watches a fake cluster. The fake does not replay what happened before
// a watch began, so start returns when all have.
func start(t *testing.T) (*fake.Clientset, *memory, *Watcher) {
	t.Helper()
	client := fake.NewClientset()
	begun := make(chan string, 100)
	client.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		w, err := client.Tracker().Watch(action.GetResource(), action.GetNamespace())
		begun <- action.GetResource().Resource
		return true, w, err
	})
	rec := newMemory()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	w, err := Watch(ctx, client, Workload{namespace, "app", "app", "app", "app"}, harness.NewClock(), rec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		w.Stop(ended)
	})
	for missing := 5; missing > 0; missing-- {
		select {
		case <-begun:
		case <-ctx.Done():
			t.Fatalf("%d watches did not begin", missing)
		}
	}
	return client, rec, w
}

func stop(t *testing.T, w *Watcher) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	w.Stop(ctx)
	if ctx.Err() != nil {
		t.Fatal("Stop waited in vain")
	}
}

// object tells the fake of objects, new or changed.
func put(t *testing.T, client *fake.Clientset, objects ...runtime.Object) {
	t.Helper()
	for _, o := range objects {
		var err error
		for _, gvr := range resourceOf(o) {
			if err = client.Tracker().Update(gvr, o, namespace); err != nil {
				err = client.Tracker().Create(gvr, o, namespace)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func remove(t *testing.T, client *fake.Clientset, o runtime.Object) {
	t.Helper()
	for _, gvr := range resourceOf(o) {
		if err := client.Tracker().Delete(gvr, namespace, o.(metav1.Object).GetName()); err != nil {
			t.Fatal(err)
		}
	}
}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{RoleLabel: "app"},
	}
}

func newPod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: meta(name), Spec: corev1.PodSpec{NodeName: "node1"}, Status: corev1.PodStatus{PodIP: "198.19.1.7"}}
}

func withReady(pod *corev1.Pod, ready corev1.ConditionStatus) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	return pod
}

func withDeletion(pod *corev1.Pod, grace int64) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Unix(1000, 0)}, &grace
	return pod
}

func withExit(pod *corev1.Pod, id string, code int32) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", ContainerID: id, State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{
			ContainerID: id, ExitCode: code, Reason: "Error", FinishedAt: metav1.Unix(1000, 0),
		},
	}}}
	return pod
}

func newSlice(name string, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	m := meta(name)
	m.Labels = map[string]string{discoveryv1.LabelServiceName: "app"}
	return &discoveryv1.EndpointSlice{ObjectMeta: m, Endpoints: endpoints}
}

func newEndpoint(pod string, ready, terminating bool) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{
		Addresses: []string{"198.19.1.7"}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: pod},
		Conditions: discoveryv1.EndpointConditions{Ready: &ready, Terminating: &terminating},
	}
}

func newDeployment(name string, replicas int32) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: meta(name), Spec: appsv1.DeploymentSpec{Replicas: &replicas}}
}

func newHPA(name string, desired int32) *autoscalingv2.HorizontalPodAutoscaler {
	return &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: meta(name), Status: autoscalingv2.HorizontalPodAutoscalerStatus{DesiredReplicas: desired},
	}
}

func newEvent(name, reason string, count int32) *corev1.Event {
	return &corev1.Event{
		ObjectMeta: meta(name), Type: corev1.EventTypeWarning, Reason: reason, Message: "because", Count: count,
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "app-1"},
	}
}
