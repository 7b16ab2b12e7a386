package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"lameduck/clusters"
	"lameduck/harness"
)

// patience bounds waiting for what must come; a test that passes does not wait
// for it.
const patience = 30 * time.Second

var podsResource = corev1.SchemeGroupVersion.WithResource("pods")

// fakeCluster is the fake clientset with just enough of the controllers:
// a Deployment gets its pods at once, an Ingress its address.
type fakeCluster struct {
	*fake.Clientset
	newPod  func(*corev1.Pod) // how a new pod looks
	address string            // of the load balancer, "" for none

	mu       sync.Mutex
	listed   map[string]runtime.Object // that informers were shown, by resource/name
	requests []string                  // to pods
	others   []string                  // namespace/kind name of what is not typed
	fail     func(method, pod, path string) error
}

func newFakeCluster() *fakeCluster {
	c := &fakeCluster{Clientset: fake.NewClientset(), listed: make(map[string]runtime.Object), newPod: makeReady, address: "198.18.0.5"}
	c.PrependWatchReactor("*", c.watch)
	c.PrependReactor("list", "*", c.list)
	c.PrependReactor("create", "deployments", c.createPods)
	c.PrependReactor("delete-collection", "*", c.deleteCollection)
	c.PrependReactor("create", "ingresses", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if c.address != "" {
			a.(clienttesting.CreateAction).GetObject().(*networkingv1.Ingress).Status.LoadBalancer.Ingress =
				[]networkingv1.IngressLoadBalancerIngress{{IP: c.address}}
		}
		return false, nil, nil
	})
	return c
}

// all are the objects of a kind that informers watch.
func (c *fakeCluster) all(a clienttesting.Action) (map[string]runtime.Object, error) {
	kind := map[string]string{"pods": "Pod", "ingresses": "Ingress"}[a.GetResource().Resource]
	if kind == "" {
		return nil, nil
	}
	gvr := a.GetResource()
	list, err := c.Tracker().List(gvr, gvr.GroupVersion().WithKind(kind), a.GetNamespace())
	if err != nil {
		return nil, err
	}
	items, err := meta.ExtractList(list)
	all := make(map[string]runtime.Object)
	for _, o := range items {
		all[gvr.Resource+"/"+o.(metav1.Object).GetName()] = o
	}
	return all, err
}

// list notes what an informer is about to be shown.
func (c *fakeCluster) list(a clienttesting.Action) (bool, runtime.Object, error) {
	all, err := c.all(a)
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.Copy(c.listed, all)
	return err != nil, nil, err
}

// watch begins with what has changed since the listing before it, which the
// fake leaves out.
func (c *fakeCluster) watch(a clienttesting.Action) (bool, watch.Interface, error) {
	w, err := c.Tracker().Watch(a.GetResource(), a.GetNamespace())
	if err != nil {
		return true, nil, err
	}
	all, err := c.all(a)
	if err != nil {
		return true, nil, err
	}
	changes := w.(*watch.RaceFreeFakeWatcher)
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, o := range all {
		// What is as it was listed is not told again: it could be deleted at this
		// very moment, and would then come back to life.
		if !reflect.DeepEqual(o, c.listed[name]) {
			changes.Modify(o)
		}
	}
	for name, o := range c.listed {
		if _, there := all[name]; !there && strings.HasPrefix(name, a.GetResource().Resource+"/") {
			changes.Delete(o)
		}
	}
	return true, w, nil
}

// deleteCollection is what the fake clientset leaves out.
func (c *fakeCluster) deleteCollection(a clienttesting.Action) (bool, runtime.Object, error) {
	gvr := a.GetResource()
	for _, r := range deployedKinds {
		if r.gvr != gvr {
			continue
		}
		list, err := c.Tracker().List(gvr, gvr.GroupVersion().WithKind(r.kind), a.GetNamespace())
		if err != nil {
			return true, nil, err
		}
		items, err := meta.ExtractList(list)
		if err != nil {
			return true, nil, err
		}
		for _, o := range items {
			if err := c.Tracker().Delete(gvr, a.GetNamespace(), o.(metav1.Object).GetName()); err != nil {
				return true, nil, err
			}
		}
		return true, nil, nil
	}
	return true, nil, fmt.Errorf("the fake does not know %s", gvr)
}

func (c *fakeCluster) createPods(a clienttesting.Action) (bool, runtime.Object, error) {
	d := a.(clienttesting.CreateAction).GetObject().(*appsv1.Deployment)
	for i := range *d.Spec.Replicas {
		name := fmt.Sprintf("%s-%d", d.Name, i)
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Namespace: d.Namespace, UID: types.UID(name), Labels: d.Spec.Template.Labels,
			},
			Spec: d.Spec.Template.Spec,
		}
		c.newPod(pod)
		if err := c.Tracker().Create(podsResource, pod, d.Namespace); err != nil {
			return true, nil, err
		}
	}
	return false, nil, nil
}

func makeReady(pod *corev1.Pod) {
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
}

// edit changes a pod.
func (c *fakeCluster) edit(t *testing.T, namespace, name string, edit func(*corev1.Pod)) {
	t.Helper()
	o, err := c.Tracker().Get(podsResource, namespace, name)
	if err != nil {
		t.Fatal(err)
	}
	pod := o.(*corev1.Pod).DeepCopy()
	edit(pod)
	if err := c.Tracker().Update(podsResource, pod, namespace); err != nil {
		t.Fatal(err)
	}
}

// http answers as the pods do.
func (c *fakeCluster) http(_ context.Context, method, namespace, pod, path string, query map[string]string) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	line := method + " " + pod + path
	for _, key := range slices.Sorted(maps.Keys(query)) {
		line += fmt.Sprintf(" %s=%s", key, query[key])
	}
	c.requests = append(c.requests, line)
	if c.fail != nil {
		if err := c.fail(method, pod, path); err != nil {
			return nil, err
		}
	}
	if path != configPath {
		return nil, nil
	}
	o, err := c.Tracker().Get(podsResource, namespace, pod)
	if err != nil {
		return nil, err
	}
	// As the application does: from its command line.
	config := map[string]any{"pod": pod, "closeWhileDraining": false, "failReadiness": false}
	for _, arg := range o.(*corev1.Pod).Spec.Containers[0].Args {
		switch flag, value, _ := strings.Cut(arg, "="); flag {
		case "--on-sigterm":
			what, wait, _ := strings.Cut(value, "=")
			config["onSigterm"], config["sigtermWait"] = what, cmp.Or(wait, "0s")
		case "--keep-alive":
			config["keepAlive"] = value
		case "--close-while-draining":
			config["closeWhileDraining"] = true
		case "--fail-readiness":
			config["failReadiness"] = true
		}
	}
	if config["onSigterm"] == nil {
		return nil, errors.New("no --on-sigterm")
	}
	return json.Marshal(config)
}

func (c *fakeCluster) asked() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.requests)
}

// fakeLog opens the log of a load balancer.
type fakeLog func(namespace, ingress string, log clusters.LogName) (string, error)

func (f fakeLog) LoadBalancerLog(_ context.Context, namespace, ingress string, log clusters.LogName) (io.ReadCloser, error) {
	text, err := f(namespace, ingress, log)
	return io.NopCloser(strings.NewReader(text)), err
}

// world is one without access to the load balancer's logs.
func (c *fakeCluster) world() *World { return c.worldWithLog(nil) }

func (c *fakeCluster) worldWithLog(log clusters.LoadBalancerLog) *World {
	w, err := NewWorld(Config{REST: restConfig("http://127.0.0.1:0"), Provider: "fake", TargetImage: "target:1", LoadBalancerLog: log})
	if err != nil {
		panic(err)
	}
	w.client, w.http = c, c.http
	w.createOther = func(_ context.Context, namespace string, u *unstructured.Unstructured) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.others = append(c.others, namespace+"/"+identity(u))
		return nil
	}
	return w
}

// namespaces are the names of those that exist.
func (c *fakeCluster) namespaces(t *testing.T) []string {
	t.Helper()
	list, err := c.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, n := range list.Items {
		names = append(names, n.Name)
	}
	return names
}

// deployedKinds are what Deploy creates or has created.
var deployedKinds = []struct {
	gvr  schema.GroupVersionResource
	kind string
}{
	{podsResource, "Pod"},
	{corev1.SchemeGroupVersion.WithResource("services"), "Service"},
	{appsv1.SchemeGroupVersion.WithResource("deployments"), "Deployment"},
	{appsv1.SchemeGroupVersion.WithResource("replicasets"), "ReplicaSet"},
	{appsv1.SchemeGroupVersion.WithResource("statefulsets"), "StatefulSet"},
	{appsv1.SchemeGroupVersion.WithResource("daemonsets"), "DaemonSet"},
	{batchv1.SchemeGroupVersion.WithResource("jobs"), "Job"},
	{batchv1.SchemeGroupVersion.WithResource("cronjobs"), "CronJob"},
	{networkingv1.SchemeGroupVersion.WithResource("ingresses"), "Ingress"},
	{policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets"), "PodDisruptionBudget"},
	{schema.GroupVersionResource{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"}, "HorizontalPodAutoscaler"},
}

// left are the objects in a namespace that Deploy creates or has created.
func (c *fakeCluster) left(t *testing.T, namespace string) []string {
	t.Helper()
	var left []string
	for _, r := range deployedKinds {
		list, err := c.Tracker().List(r.gvr, r.gvr.GroupVersion().WithKind(r.kind), namespace)
		if err != nil {
			t.Fatal(err)
		}
		if n := meta.LenList(list); n > 0 {
			left = append(left, fmt.Sprintf("%d %s", n, r.kind))
		}
	}
	return left
}

// memory is a Recorder.
type memory struct {
	mu     sync.Mutex
	events []harness.Event
	lines  []string
}

func (m *memory) Request(harness.Request) {}
func (m *memory) Event(e harness.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = append(m.events, e)
}
func (m *memory) Log(log string, line []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lines = append(m.lines, log+" "+string(line))
}

func (m *memory) kinds() map[harness.EventKind]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := make(map[harness.EventKind]int)
	for _, e := range m.events {
		n[e.Kind]++
	}
	return n
}

func testTrial() harness.Trial {
	return harness.Trial{
		Number: 7, Repeat: 1, RunID: "0102150405",
		Cell: harness.Cell{Scenario: "hpa-scale-in", TargetType: harness.TargetInstance, Mitigation: "none", Connections: harness.ConnectionsPooled},
		Setup: harness.Setup{
			Workload: harness.Workload{
				Replicas: 6, OnSIGTERM: harness.SIGTERMDrain, GracePeriod: harness.Dur(30 * time.Second),
				ResponseTime: harness.ResponseTime{
					P50: harness.Dur(20 * time.Millisecond), P99: harness.Dur(80 * time.Millisecond),
					SlowShare: 0.01, Slow: harness.Dur(4 * time.Second),
				},
				KeepAlive: harness.Dur(75 * time.Second), CPURequest: "50m",
			},
			LoadBalancer: harness.LoadBalancer{
				TargetType: harness.TargetInstance, IdleTimeout: harness.Dur(time.Minute), DeregistrationDelay: harness.Dur(30 * time.Second),
			},
			Scenario: harness.ScenarioSpec{Name: "hpa-scale-in", To: 2, Drive: harness.DriveBounds},
		},
	}
}

const testNamespace = "lameduck-0102150405-0007"

// testContext ends long after a test that passes has.
func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

var errNotNow = errors.New("not now")
