package alb

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
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
