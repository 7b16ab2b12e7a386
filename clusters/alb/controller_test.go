package alb

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
)

func node(name, addr string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeHostName, Address: name},
				{Type: corev1.NodeInternalIP, Address: addr},
			},
		},
	}
}

func service(name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec: corev1.ServiceSpec{
			Type:  corev1.ServiceTypeNodePort,
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, NodePort: 30080}},
		},
	}
}

func ingress(name string, port int) *networkingv1.Ingress {
	class, prefix := IngressClass, networkingv1.PathTypePrefix
	return &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Annotations: map[string]string{
			annotationPrefix + "listen-ports": fmt.Sprintf(`[{"HTTP": %d}]`, port),
		}},
		Spec: networkingv1.IngressSpec{
			IngressClassName: &class,
			Rules: []networkingv1.IngressRule{{IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
				Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: &prefix, Backend: backend("app")}},
			}}}},
		},
	}
}

func backend(service string) networkingv1.IngressBackend {
	return networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
		Name: service, Port: networkingv1.ServiceBackendPort{Number: 80},
	}}
}

// stateOf is a cluster with one node and the Services.
func stateOf(services ...*corev1.Service) clusterState {
	return clusterState{
		nodes: []*corev1.Node{node("a", "198.18.0.11")},
		service: func(name string) *corev1.Service {
			for _, s := range services {
				if s.Name == name {
					return s
				}
			}
			return nil
		},
	}
}

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}

// freePort is a port that was free a moment ago.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// world is a controller with an API server's fake.
type world struct {
	t      *testing.T
	client *fake.Clientset
	c      *controller
	events *record.FakeRecorder
	dir    string
	stop   func()
}

func newWorld(t *testing.T, objects ...runtime.Object) *world {
	t.Helper()
	w := &world{t: t, client: fake.NewClientset(objects...), events: record.NewFakeRecorder(100), dir: t.TempDir()}
	h, err := newHangups()
	if err != nil {
		t.Fatal(err)
	}
	w.c, err = newController(w.client, w.events, &environment{
		address: "127.0.0.1", logDir: w.dir, hangups: h, messages: &lockedWriter{w: io.Discard},
		settings: Settings{DrainTimeout: time.Second, LogFlush: time.Millisecond}.withDefaults(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.c.run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := h.close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(w.stop)
	return w
}

func (w *world) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "ns", Name: name}
}

func (w *world) create(obj runtime.Object) { w.write(obj, w.client.Tracker().Add(obj)) }

func (w *world) update(obj runtime.Object) {
	var err error
	switch o := obj.(type) {
	case *corev1.Node:
		_, err = w.client.CoreV1().Nodes().Update(w.t.Context(), o, metav1.UpdateOptions{})
	case *corev1.Service:
		_, err = w.client.CoreV1().Services("ns").Update(w.t.Context(), o, metav1.UpdateOptions{})
	case *networkingv1.Ingress:
		_, err = w.client.NetworkingV1().Ingresses("ns").Update(w.t.Context(), o, metav1.UpdateOptions{})
	}
	w.write(obj, err)
}

func (w *world) write(obj runtime.Object, err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("write %T: %v", obj, err)
	}
}

func (w *world) remove(name string) {
	w.t.Helper()
	if err := w.client.NetworkingV1().Ingresses("ns").Delete(w.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// address waits for an Ingress's status.
func (w *world) address(name string) string {
	w.t.Helper()
	var addr string
	eventually(w.t, "address of "+name, func() bool {
		ing, err := w.client.NetworkingV1().Ingresses("ns").Get(w.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			w.t.Fatal(err)
		}
		for _, i := range ing.Status.LoadBalancer.Ingress {
			addr = net.JoinHostPort(i.IP, fmt.Sprint(i.Ports[0].Port))
		}
		return addr != ""
	})
	return addr
}

func (w *world) get(name string) int {
	w.t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + w.address(name))
	if err != nil {
		w.t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// event waits for an Event that contains all words, and returns it.
func (w *world) event(words ...string) string {
	w.t.Helper()
	limit := time.After(30 * time.Second)
next:
	for {
		select {
		case e := <-w.events.Events:
			for _, word := range words {
				if !strings.Contains(e, word) {
					continue next
				}
			}
			return e
		case <-limit:
			w.t.Fatalf("no event with %q", words)
		}
	}
}

// groupOf reads a balancer's group while the controller works. Tests know that
// the Ingress is there.
func (c *controller) groupOf(key types.NamespacedName, name string) *group {
	return c.balancers[key].groups[name]
}

func TestDeletedIngressClosesItsPort(t *testing.T) {
	w := newWorld(t, node("a", "127.0.0.1"), service("app"), ingress("app", freePort(t)))
	addr := w.address("app")
	w.get("app")
	w.remove("app")
	eventually(t, "closed port", func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	if lines := readLog(t, filepath.Join(w.dir, "ns", "app.jsonl")); len(lines) != 1 {
		t.Errorf("log has %d lines, want 1", len(lines))
	}
}

func TestIngressesSideBySide(t *testing.T) {
	w := newWorld(t, node("a", "127.0.0.1"), service("app"), ingress("one", freePort(t)), ingress("two", freePort(t)))
	if one, two := w.address("one"), w.address("two"); one == two {
		t.Errorf("both at %s", one)
	}
	w.get("one")
	w.get("two")
	for _, name := range []string{"one", "two"} {
		if lines := readLog(t, filepath.Join(w.dir, "ns", name+".jsonl")); len(lines) != 1 {
			t.Errorf("%s: log has %d lines, want 1", name, len(lines))
		}
	}
}

func TestTakenPort(t *testing.T) {
	port := freePort(t)
	w := newWorld(t, node("a", "127.0.0.1"), service("app"), ingress("one", port))
	w.address("one")
	w.create(ingress("two", port))
	w.event("Warning FailedBuildModel", fmt.Sprintf("port %d is taken by Ingress ns/one", port), "listen-ports")
	w.remove("one")
	w.address("two") // takes over as soon as the port is free
}

func TestPortOfAnotherProcess(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	w := newWorld(t, node("a", "127.0.0.1"), service("app"), ingress("app", port))
	w.event("Warning FailedDeployModel", "address already in use")
	l.Close()
	w.address("app") // it is tried again
}

func TestWrongAnnotationGetsEventAndNoListener(t *testing.T) {
	port := freePort(t)
	ing := ingress("app", port)
	ing.Annotations[annotationPrefix+"target-group-attributes"] = "deregistration_delay.timeout_seconds=3601"
	w := newWorld(t, node("a", "127.0.0.1"), service("app"), ing)
	w.event("Warning FailedBuildModel", annotationPrefix+"target-group-attributes", "deregistration_delay.timeout_seconds=3601", "0..3600")
	if c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
		c.Close()
		t.Error("it listens all the same")
	}
	w.update(ingress("app", port))
	w.address("app")
	w.event("Normal SuccessfullyReconciled")
}

func TestUnknownAnnotationGetsWarning(t *testing.T) {
	ing := ingress("app", freePort(t))
	ing.Annotations[annotationPrefix+"waf-acl-id"] = "x"
	ing.Annotations["example.com/other"] = "x"
	w := newWorld(t, node("a", "127.0.0.1"), service("app"), ing)
	w.event("Warning Ignored", annotationPrefix+"waf-acl-id")
	w.address("app")
}

func TestOtherClassesAreLeftAlone(t *testing.T) {
	other, legacy := ingress("other", freePort(t)), ingress("legacy", freePort(t))
	class := "nginx"
	other.Spec.IngressClassName = &class
	legacy.Spec.IngressClassName = nil
	legacy.Annotations[legacyClassAnnotation] = IngressClass
	w := newWorld(t, node("a", "127.0.0.1"), service("app"), other, legacy)
	w.address("legacy")
	ing, err := w.client.NetworkingV1().Ingresses("ns").Get(t.Context(), "other", metav1.GetOptions{})
	if err != nil || len(ing.Status.LoadBalancer.Ingress) != 0 {
		t.Errorf("status %+v, %v", ing.Status, err)
	}
}

func TestServiceThatComesLater(t *testing.T) {
	w := newWorld(t, node("a", "127.0.0.1"), ingress("app", freePort(t)))
	if status := w.get("app"); status != http.StatusServiceUnavailable {
		t.Errorf("status %d, want 503", status)
	}
	w.create(service("app"))
	eventually(t, "target", func() bool { return w.get("app") != http.StatusServiceUnavailable })
}

func TestRunStopsWhenContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	client := fake.NewClientset(node("a", "127.0.0.1"), service("app"), ingress("app", freePort(t)))
	w := &world{t: t, client: client}
	healthz := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	var log strings.Builder
	done := make(chan error)
	go func() {
		done <- run(ctx, client, Options{Address: "127.0.0.1", LogDir: t.TempDir(), Log: &log, HealthzAddr: healthz})
	}()
	w.address("app")
	w.get("app")
	resp, err := http.Get("http://" + healthz + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Errorf("healthz: status %d", resp.StatusCode)
	}
	eventually(t, "event in the API server", func() bool {
		events, err := client.CoreV1().Events("ns").List(t.Context(), metav1.ListOptions{})
		return err == nil && len(events.Items) > 0
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "load balancer on 127.0.0.1") {
		t.Errorf("messages: %q", log.String())
	}
}

func TestBadOptions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := Run(t.Context(), Options{LogDir: file, Settings: Settings{PoolOrder: "random"}})
	for _, want := range []string{`address is "": want an IP address`, "make log directory", `pool order is "random": want lifo or fifo`} {
		wantError(t, err, want)
	}
	err = Run(t.Context(), Options{Address: "198.18.255.254", LogDir: t.TempDir()})
	wantError(t, err, "listen on 198.18.255.254")
}
