package kube

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"lameduck/harness"
)

func restConfig(host string) *rest.Config { return &rest.Config{Host: host} }

// deployed is a deployment on a fake cluster.
func deployed(t *testing.T, edit func(*harness.Setup)) (*fakeCluster, harness.Deployment) {
	t.Helper()
	c := newFakeCluster()
	trial := testTrial()
	if edit != nil {
		edit(&trial.Setup)
	}
	d, err := c.world().Deploy(testContext(t), trial, harness.NewClock(), &memory{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := d.Remove(ctx); err != nil {
			t.Error(err)
		}
	})
	return c, d
}

func TestWaitPods(t *testing.T) {
	c, d := deployed(t, nil)
	if err := d.WaitPods(testContext(t), 6); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- d.WaitPods(testContext(t), 5) }()
	c.edit(t, testNamespace, "app-5", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} })
	c.edit(t, testNamespace, "app-0", func(p *corev1.Pod) { p.Status.Conditions = nil })
	if err := c.Tracker().Delete(podsResource, testNamespace, "app-5"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		t.Fatalf("returned while a pod was not ready: %v", err)
	default:
	}
	c.edit(t, testNamespace, "app-0", makeReady)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("limit is over"))
	checkError(t, d.WaitPods(ended, 2), "wait for 2 pods", "limit is over", "5 exist, 5 ready, 0 terminating")
}

func TestCensus(t *testing.T) {
	pod := func(ready, leaving bool) *corev1.Pod {
		p := &corev1.Pod{}
		if ready {
			makeReady(p)
		}
		if leaving {
			p.DeletionTimestamp = &metav1.Time{}
		}
		return p
	}
	for _, c := range []struct {
		pods    []*corev1.Pod
		settled bool
	}{
		{[]*corev1.Pod{pod(true, false), pod(true, false)}, true},
		{[]*corev1.Pod{pod(true, false)}, false},
		{[]*corev1.Pod{pod(true, false), pod(true, true)}, false},
		{[]*corev1.Pod{pod(true, false), pod(true, false), pod(true, true)}, false},
		{[]*corev1.Pod{pod(true, false), pod(false, false)}, false},
	} {
		if got := count(c.pods); got.settled(2) != c.settled {
			t.Errorf("%s: settled %v", got, got.settled(2))
		}
	}
}

func TestSetHPABounds(t *testing.T) {
	c, d := deployed(t, nil)
	if err := d.(harness.HPABounds).SetHPABounds(t.Context(), 2, 3); err != nil {
		t.Fatal(err)
	}
	hpa, err := c.AutoscalingV2().HorizontalPodAutoscalers(testNamespace).Get(t.Context(), appName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if *hpa.Spec.MinReplicas != 2 || hpa.Spec.MaxReplicas != 3 || len(hpa.Spec.Metrics) != 1 {
		t.Errorf("HPA is now %+v", hpa.Spec)
	}
}

func TestBurnCPU(t *testing.T) {
	c, d := deployed(t, func(s *harness.Setup) { s.Workload.Replicas = 3 })
	stop, err := d.(harness.CPUBurn).BurnCPU(t.Context(), 80)
	if err != nil {
		t.Fatal(err)
	}
	burning := []string{
		"POST app-0/lameduck/burn millicores=80", "POST app-1/lameduck/burn millicores=80", "POST app-2/lameduck/burn millicores=80",
	}
	if got := c.asked(); !slices.Equal(got, burning) {
		t.Errorf("asked %q", got)
	}
	if err := c.Tracker().Delete(podsResource, testNamespace, "app-1"); err != nil {
		t.Fatal(err)
	}
	if err := d.WaitPods(testContext(t), 2); err != nil {
		t.Fatal(err)
	}
	if err := stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := append(burning, "POST app-0/lameduck/burn millicores=0", "POST app-2/lameduck/burn millicores=0")
	if got := c.asked(); !slices.Equal(got, want) {
		t.Errorf("asked %q, want %q", got, want)
	}
}

func TestBurnCPUFails(t *testing.T) {
	c, d := deployed(t, func(s *harness.Setup) { s.Workload.Replicas = 2 })
	failing := true
	c.fail = func(_, pod, _ string) error {
		if failing && pod == "app-1" {
			failing = false
			return errNotNow
		}
		return nil
	}
	_, err := d.(harness.CPUBurn).BurnCPU(t.Context(), 80)
	checkError(t, err, "not now")
	last := c.asked()
	if !slices.Contains(last, "POST app-0/lameduck/burn millicores=0") {
		t.Errorf("what had begun was not ended: %q", last)
	}
}

// A pod that leaves while its burn is ended is no error, one that stays is.
func TestBurnCPUEnds(t *testing.T) {
	c, d := deployed(t, func(s *harness.Setup) { s.Workload.Replicas = 2 })
	stop, err := d.(harness.CPUBurn).BurnCPU(t.Context(), 80)
	if err != nil {
		t.Fatal(err)
	}
	c.fail = func(_, pod, _ string) error {
		if pod == "app-1" {
			return errNotNow
		}
		return nil
	}
	checkError(t, stop(t.Context()), "not now")
	c.fail = func(_, pod, _ string) error {
		if pod != "app-1" {
			return nil
		}
		return errors.Join(errNotNow, c.Tracker().Delete(podsResource, testNamespace, pod))
	}
	if err := stop(t.Context()); err != nil {
		t.Errorf("ending the burn of a pod that left: %v", err)
	}
}

func TestPodProxy(t *testing.T) {
	var got string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Method + " " + r.URL.String()
		if strings.Contains(got, "missing") {
			http.Error(w, "no such pod", http.StatusNotFound)
			return
		}
		_, _ = io.WriteString(w, "body")
	}))
	defer server.Close()
	w, err := NewWorld(Config{REST: restConfig(server.URL), TargetImage: "image"})
	if err != nil {
		t.Fatal(err)
	}
	body, err := w.http(t.Context(), http.MethodPost, "ns", "app-1", burnPath, map[string]string{"millicores": "80"})
	if want := "POST /api/v1/namespaces/ns/pods/app-1:8080/proxy/lameduck/burn?millicores=80"; got != want || err != nil || string(body) != "body" {
		t.Errorf("sent %s and got %q, %v; want %s", got, body, err, want)
	}
	_, err = w.http.get(t.Context(), "ns", "missing", configPath)
	checkError(t, err, "GET /lameduck/config of pod missing")
}

func TestEnvironment(t *testing.T) {
	c := newFakeCluster()
	c.Discovery().(*fakediscovery.FakeDiscovery).FakedServerVersion = &version.Info{GitVersion: "v1.37.2"}
	node := func(name string, labels map[string]string) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
			Status:     corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KernelVersion: "6.18.1", OSImage: "Debian 12", ContainerRuntimeVersion: "containerd://2.4.2"}},
		}
	}
	for _, n := range []*corev1.Node{node("a", nil), node("b", nil), node("c", map[string]string{controlPlaneLabel: ""})} {
		if _, err := c.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w := c.world()
	w.cfg.Details = map[string]string{"deadAddress": "drop"}
	env, err := w.Environment(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if env.Provider != "fake" || env.Kubernetes != "v1.37.2" || env.Nodes != 2 || env.Kernel != "6.18.1" || env.OS != "Debian 12" ||
		env.Cores < 1 || env.Details["deadAddress"] != "drop" || env.Details["containerRuntime"] != "containerd://2.4.2" {
		t.Errorf("environment %+v", env)
	}
	if len(w.cfg.Details) != 1 {
		t.Error("Environment changed the Config")
	}
}

func TestClean(t *testing.T) {
	c := newFakeCluster()
	for name, labels := range map[string]map[string]string{
		"lameduck-a-0001": {managedByLabel: managedBy, runLabel: "a"},
		"lameduck-b-0001": {managedByLabel: managedBy, runLabel: "b"},
		"lameduck-c-0001": {managedByLabel: "helm", runLabel: "c"},
		"lameduck-d-0001": {managedByLabel: managedBy},
		"kube-system":     nil,
	} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		if _, err := c.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		n := int32(2)
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "app", Namespace: name}, Spec: appsv1.DeploymentSpec{Replicas: &n}}
		if _, err := c.AppsV1().Deployments(name).Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	if err := clean(testContext(t), c, "a", &log); err != nil {
		t.Fatal(err)
	}
	if got, want := c.namespaces(t), []string{"kube-system", "lameduck-b-0001", "lameduck-c-0001", "lameduck-d-0001"}; !slices.Equal(got, want) {
		t.Errorf("left after cleaning run a: %v, want %v", got, want)
	}
	if err := clean(testContext(t), c, "", &log); err != nil {
		t.Fatal(err)
	}
	foreign := []string{"kube-system", "lameduck-c-0001", "lameduck-d-0001"}
	if got := c.namespaces(t); !slices.Equal(got, foreign) {
		t.Errorf("left after cleaning all runs: %v, want %v", got, foreign)
	}
	if log.String() != "removed namespace lameduck-a-0001\nremoved namespace lameduck-b-0001\n" {
		t.Errorf("log %q", log.String())
	}
	for _, name := range foreign {
		if left := c.left(t, name); !slices.Equal(left, []string{"2 Pod", "1 Deployment"}) {
			t.Errorf("%s has %v, want it untouched", name, left)
		}
	}
	if err := clean(testContext(t), c, "", &log); err != nil {
		t.Errorf("cleaning a clean cluster: %v", err)
	}
}

// A finalizer that nobody serves must not hold a run up for ever.
func TestWaitGoneIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(&corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: "lameduck-a-0001", Finalizers: []string{"example.com/hold"}},
			Status: corev1.NamespaceStatus{Conditions: []corev1.NamespaceCondition{{
				Type: corev1.NamespaceContentRemaining, Status: corev1.ConditionTrue, Reason: "SomeResourcesRemain", Message: "pods. has 1 resource instances",
			}}},
		})
		w := &World{client: client, left: []string{"lameduck-a-0001"}}
		start := time.Now()
		checkError(t, w.Close(t.Context()), "namespace lameduck-a-0001", "still there after 2m0s", "finalizers example.com/hold", "pods. has 1 resource instances")
		if took := time.Since(start); took != goneLimit {
			t.Errorf("gave up after %s, want %s", took, goneLimit)
		}
	})
}

func TestCleanNamesWhatStays(t *testing.T) {
	c := newFakeCluster()
	labels := map[string]string{managedByLabel: managedBy, runLabel: "a"}
	for _, name := range []string{"lameduck-a-0001", "lameduck-a-0002"} {
		if _, err := c.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c.PrependReactor("delete-collection", "ingresses", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetNamespace() == "lameduck-a-0001" {
			return true, nil, errNotNow
		}
		return false, nil, nil
	})
	checkError(t, clean(testContext(t), c, "", io.Discard), "remove namespace lameduck-a-0001: not now")
	if got := c.namespaces(t); !slices.Equal(got, []string{"lameduck-a-0001"}) {
		t.Errorf("left: %v, want only the one that cannot be removed", got)
	}
}

func TestNewWorldRefuses(t *testing.T) {
	_, err := NewWorld(Config{REST: restConfig("x")})
	checkError(t, err, "TargetImage")
	_, err = NewWorld(Config{TargetImage: "image"})
	checkError(t, err, "REST")
}
