package conformance

import (
	"context"
	"io"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	"lameduck/clusters/alb/controller"
)

// world is a controller between a fake API server and a recorder.
type world struct {
	*recorder
	t      *T
	client *fake.Clientset
	events *record.FakeRecorder
	c      *controller.Controller
}

// newWorld runs a controller. The API server has what is given.
func newWorld(t *T, objects ...runtime.Object) *world {
	return newWorldWith(t, controller.Options{}, objects...)
}

func newWorldWith(t *T, o controller.Options, objects ...runtime.Object) *world {
	w := &world{recorder: newRecorder(), t: t, client: fake.NewClientset(objects...), events: record.NewFakeRecorder(1000)}
	o.Addresses, o.Messages = []netip.Addr{netip.MustParseAddr("127.0.0.1")}, io.Discard
	var err error
	w.c, err = controller.New(w.client, w.events, w.recorder, o)
	t.must(err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		t.check(<-done)
	})
	return w
}

func (w *world) create(objects ...runtime.Object) {
	for _, o := range objects {
		w.t.must(w.client.Tracker().Add(o))
	}
}

func (w *world) update(obj runtime.Object) {
	ctx, o := w.t.Context(), metav1.UpdateOptions{}
	var err error
	switch obj := obj.(type) {
	case *corev1.Node:
		_, err = w.client.CoreV1().Nodes().Update(ctx, obj, o)
	case *corev1.Pod:
		_, err = w.client.CoreV1().Pods("ns").Update(ctx, obj, o)
	case *corev1.Service:
		_, err = w.client.CoreV1().Services("ns").Update(ctx, obj, o)
	case *networkingv1.Ingress:
		_, err = w.client.NetworkingV1().Ingresses("ns").Update(ctx, obj, o)
	case *discoveryv1.EndpointSlice:
		_, err = w.client.DiscoveryV1().EndpointSlices("ns").Update(ctx, obj, o)
	default:
		w.t.Fatalf("cannot update a %T", obj)
	}
	w.t.must(err)
}

// settle waits until the only Ingress has an address: a later write of its
// status would take a change back, in a fake API server.
func (w *world) settle() {
	w.t.eventually("address", func() bool {
		ing, err := w.client.NetworkingV1().Ingresses("ns").Get(w.t.Context(), "app", metav1.GetOptions{})
		w.t.must(err)
		return len(ing.Status.LoadBalancer.Ingress) == 1 && ing.Status.LoadBalancer.Ingress[0].IP == "127.0.0.1"
	})
}

// wantTargets waits until exactly these targets are registered.
func (w *world) wantTargets(want ...string) {
	var got []string
	w.t.Logf("want targets %v", want)
	w.t.eventually("targets", func() bool {
		got = w.registered()
		return strings.Join(got, " ") == strings.Join(want, " ")
	})
}

// event waits for an Event that contains all words.
func (w *world) event(words ...string) {
next:
	for {
		e := wait(w.t, "Event with "+strings.Join(words, ", "), w.events.Events)
		for _, word := range words {
			if !strings.Contains(e, word) {
				w.t.Logf("another Event: %s", e)
				continue next
			}
		}
		return
	}
}
