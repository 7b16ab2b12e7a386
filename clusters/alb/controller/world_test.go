package controller

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	"lameduck/clusters/alb/elb"
)

func node(name, addr string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeHostName, Address: name},
				{Type: corev1.NodeInternalIP, Address: "fd00::1"},
				{Type: corev1.NodeInternalIP, Address: addr},
			},
		},
	}
}

func service(name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec: corev1.ServiceSpec{
			Type:     corev1.ServiceTypeNodePort,
			Selector: map[string]string{"app": name},
			Ports: []corev1.ServicePort{
				{Name: "http", Port: 80, NodePort: 30080, TargetPort: intstr.FromString("web")},
				{Name: "admin", Port: 81, NodePort: 30081, TargetPort: intstr.FromInt32(9090)},
			},
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

// annotated sets annotations of the controller: name, value, name, value.
func annotated[T metav1.Object](obj T, pairs ...string) T {
	all := obj.GetAnnotations()
	if all == nil {
		all = make(map[string]string)
	}
	for i := 0; i < len(pairs); i += 2 {
		name := pairs[i]
		if !strings.Contains(name, "/") {
			name = annotationPrefix + name
		}
		all[name] = pairs[i+1]
	}
	obj.SetAnnotations(all)
	return obj
}

func ipIngress(name string, port int) *networkingv1.Ingress {
	return annotated(ingress(name, port), "target-type", "ip")
}

func backend(service string) networkingv1.IngressBackend {
	return networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
		Name: service, Port: networkingv1.ServiceBackendPort{Number: 80},
	}}
}

func actionBackend(name string) networkingv1.IngressBackend {
	return networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
		Name: name, Port: networkingv1.ServiceBackendPort{Name: useAnnotation},
	}}
}

// pod is on node a, with ready containers.
func pod(name string, gates ...corev1.PodConditionType) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"app": "app"}},
		Spec:       corev1.PodSpec{NodeName: "a"},
		Status:     corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.ContainersReady, Status: corev1.ConditionTrue}}},
	}
	for _, g := range gates {
		p.Spec.ReadinessGates = append(p.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: g})
	}
	return p
}

// endpoint is one of a slice; its pod is named after the address.
type endpoint struct {
	addr               string
	ready, terminating bool
}

func podName(addr string) string { return "pod-" + strings.ReplaceAll(addr, ".", "-") }

// slice has the endpoints of app on port 8080, and another port.
func slice(name string, eps ...endpoint) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "app"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{
			{Name: ptr("http"), Port: ptr(int32(8080))},
			{Name: ptr("admin"), Port: ptr(int32(9090))},
		},
	}
	for _, e := range eps {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{e.addr},
			Conditions: discoveryv1.EndpointConditions{Ready: &e.ready, Terminating: &e.terminating},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: podName(e.addr)},
		})
	}
	return s
}

func ready(addrs ...string) []endpoint {
	var eps []endpoint
	for _, a := range addrs {
		eps = append(eps, endpoint{addr: a, ready: true})
	}
	return eps
}

func ptr[T any](v T) *T { return &v }

// fakeAPI is an ELBv2 of maps.
type fakeAPI struct {
	mu        sync.Mutex
	balancers map[string]elb.LoadBalancer
	groups    map[string]elb.TargetGroup
	targets   map[string]map[netip.AddrPort]elb.TargetHealth
	calls     []string // without DescribeTargetHealth
	looks     int      // calls of DescribeTargetHealth
	quota     int      // targets per group, 0: none
	drains    bool     // deregistered targets drain for ever
	initial   bool     // registered targets stay initial
	fail      map[string]error
	called    chan struct{}
}

func newFakeAPI() *fakeAPI {
	return &fakeAPI{
		balancers: make(map[string]elb.LoadBalancer),
		groups:    make(map[string]elb.TargetGroup),
		targets:   make(map[string]map[netip.AddrPort]elb.TargetHealth),
		fail:      make(map[string]error),
		called:    make(chan struct{}, 1),
	}
}

// enter begins a call under the lock.
func (f *fakeAPI) enter(call, name string) (leave func(), err error) {
	f.mu.Lock()
	if call == "DescribeTargetHealth" {
		f.looks++
	} else {
		f.calls = append(f.calls, call+" "+name)
	}
	return func() {
		f.mu.Unlock()
		select {
		case f.called <- struct{}{}:
		default:
		}
	}, f.fail[call]
}

func (f *fakeAPI) PutTargetGroup(_ context.Context, g elb.TargetGroup) error {
	leave, err := f.enter("PutTargetGroup", g.Name)
	defer leave()
	if err != nil {
		return err
	}
	if old, ok := f.groups[g.Name]; ok && (old.Type != g.Type || old.Protocol != g.Protocol) {
		return errors.New("type and protocol of a target group cannot change")
	}
	f.groups[g.Name] = g
	if f.targets[g.Name] == nil {
		f.targets[g.Name] = make(map[netip.AddrPort]elb.TargetHealth)
	}
	return nil
}

func (f *fakeAPI) DeleteTargetGroup(_ context.Context, name string) error {
	leave, err := f.enter("DeleteTargetGroup", name)
	defer leave()
	if err != nil {
		return err
	}
	for _, lb := range f.balancers {
		for _, r := range append(lb.Rules, elb.Rule{Action: lb.Default}) {
			if slices.ContainsFunc(r.Action.Forward, func(g elb.WeightedGroup) bool { return g.Group == name }) {
				return elb.ErrResourceInUse
			}
		}
	}
	delete(f.groups, name)
	delete(f.targets, name)
	return nil
}

func (f *fakeAPI) PutLoadBalancer(_ context.Context, lb elb.LoadBalancer) error {
	leave, err := f.enter("PutLoadBalancer", lb.Name)
	defer leave()
	if err != nil {
		return err
	}
	for name, other := range f.balancers {
		for _, l := range other.Listeners {
			if name != lb.Name && slices.ContainsFunc(lb.Listeners, func(x elb.Listener) bool { return x.Port == l.Port }) {
				return fmt.Errorf("%w: port %d is %s's", elb.ErrDuplicateListener, l.Port, name)
			}
		}
	}
	f.balancers[lb.Name] = lb
	return nil
}

func (f *fakeAPI) DeleteLoadBalancer(_ context.Context, name string) error {
	leave, err := f.enter("DeleteLoadBalancer", name)
	defer leave()
	delete(f.balancers, name)
	return err
}

func (f *fakeAPI) RegisterTargets(_ context.Context, group string, targets []netip.AddrPort) error {
	leave, err := f.enter("RegisterTargets", fmt.Sprintf("%s %d", group, len(targets)))
	defer leave()
	if err != nil {
		return err
	}
	all, ok := f.targets[group]
	if !ok {
		return elb.ErrTargetGroupNotFound
	}
	if f.quota > 0 && len(all)+len(targets) > f.quota {
		return elb.ErrTooManyTargets
	}
	for _, t := range targets {
		if all[t].State == elb.StateDraining {
			return fmt.Errorf("%w: %s is draining", elb.ErrInvalidTarget, t)
		}
	}
	for _, t := range targets {
		all[t] = elb.TargetHealth{Target: t, State: elb.StateHealthy}
		if f.initial {
			all[t] = elb.TargetHealth{Target: t, State: elb.StateInitial, Reason: elb.ReasonInitialHealthChecking, Description: "Initial health checks in progress"}
		}
	}
	return nil
}

func (f *fakeAPI) DeregisterTargets(_ context.Context, group string, targets []netip.AddrPort) error {
	leave, err := f.enter("DeregisterTargets", fmt.Sprintf("%s %d", group, len(targets)))
	defer leave()
	if err != nil {
		return err
	}
	for _, t := range targets {
		if f.drains {
			f.targets[group][t] = elb.TargetHealth{Target: t, State: elb.StateDraining, Reason: elb.ReasonDeregistrationInProgress}
		} else {
			delete(f.targets[group], t)
		}
	}
	return nil
}

func (f *fakeAPI) DescribeTargetHealth(_ context.Context, group string) ([]elb.TargetHealth, error) {
	leave, err := f.enter("DescribeTargetHealth", group)
	defer leave()
	if err != nil {
		return nil, err
	}
	all, ok := f.targets[group]
	if !ok {
		return nil, elb.ErrTargetGroupNotFound
	}
	var health []elb.TargetHealth
	for _, h := range all {
		health = append(health, h)
	}
	slices.SortFunc(health, func(x, y elb.TargetHealth) int { return x.Target.Compare(y.Target) })
	return health, nil
}

// with changes or looks at the fake under its lock.
func (f *fakeAPI) with(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

// count is how many calls begin with prefix.
func (f *fakeAPI) count(prefix string) (n int) {
	f.with(func() {
		for _, c := range f.calls {
			if strings.HasPrefix(c, prefix) {
				n++
			}
		}
	})
	return n
}

// registered are a group's targets that are not draining, sorted.
func (f *fakeAPI) registered(group string) []string {
	var list []netip.AddrPort
	f.with(func() {
		for _, h := range f.targets[group] {
			if h.State != elb.StateDraining {
				list = append(list, h.Target)
			}
		}
	})
	slices.SortFunc(list, netip.AddrPort.Compare)
	var texts []string
	for _, t := range list {
		texts = append(texts, t.String())
	}
	return texts
}

// world is a controller between a fake API server and a fake ELBv2.
type world struct {
	t      testing.TB
	client *fake.Clientset
	api    *fakeAPI
	c      *Controller
	events *record.FakeRecorder
	stop   func()
}

// start runs a controller whose times are short.
func start(t testing.TB, api *fakeAPI, o Options, objects ...runtime.Object) *world {
	t.Helper()
	w := &world{t: t, client: fake.NewClientset(objects...), api: api, events: record.NewFakeRecorder(1000)}
	if o.Addresses == nil {
		o.Addresses = []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")}
	}
	if o.HealthInterval == 0 {
		o.HealthInterval = 10 * time.Millisecond
	}
	if o.MaxBackoff == 0 {
		o.MaxBackoff = 20 * time.Millisecond
	}
	if o.Limits == (Limits{}) {
		o.Limits = Limits{Targets: Limit{1e6, 1000}, Describe: Limit{1e6, 1000}, Modify: Limit{1e6, 1000}}
	}
	o.RetryBase = time.Millisecond
	var err error
	if w.c, err = New(w.client, w.events, api, o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.c.Run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(w.stop)
	w.eventually("synchronization", w.c.Synced)
	return w
}

// eventually waits until something holds, long enough for a busy machine.
func (w *world) eventually(what string, holds func() bool) {
	w.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !holds() {
		if time.Now().After(deadline) {
			w.api.with(func() { w.t.Fatalf("no %s; the last calls: %q", what, w.api.calls[max(0, len(w.api.calls)-20):]) })
		}
		time.Sleep(time.Millisecond)
	}
}

// put creates or updates an object.
func (w *world) put(obj runtime.Object) {
	w.t.Helper()
	ctx := context.Background()
	var err error
	switch o := obj.(type) {
	case *corev1.Node:
		if _, err = w.client.CoreV1().Nodes().Update(ctx, o, metav1.UpdateOptions{}); err != nil {
			_, err = w.client.CoreV1().Nodes().Create(ctx, o, metav1.CreateOptions{})
		}
	case *corev1.Service:
		if _, err = w.client.CoreV1().Services("ns").Update(ctx, o, metav1.UpdateOptions{}); err != nil {
			_, err = w.client.CoreV1().Services("ns").Create(ctx, o, metav1.CreateOptions{})
		}
	case *corev1.Pod:
		if _, err = w.client.CoreV1().Pods("ns").Update(ctx, o, metav1.UpdateOptions{}); err != nil {
			_, err = w.client.CoreV1().Pods("ns").Create(ctx, o, metav1.CreateOptions{})
		}
	case *discoveryv1.EndpointSlice:
		if _, err = w.client.DiscoveryV1().EndpointSlices("ns").Update(ctx, o, metav1.UpdateOptions{}); err != nil {
			_, err = w.client.DiscoveryV1().EndpointSlices("ns").Create(ctx, o, metav1.CreateOptions{})
		}
	case *networkingv1.Ingress:
		if _, err = w.client.NetworkingV1().Ingresses(o.Namespace).Update(ctx, o, metav1.UpdateOptions{}); err != nil {
			_, err = w.client.NetworkingV1().Ingresses(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
		}
	default:
		w.t.Fatalf("put %T", obj)
	}
	if err != nil {
		w.t.Fatalf("put %T: %v", obj, err)
	}
}

func (w *world) removeIngress(name string) {
	w.t.Helper()
	if err := w.client.NetworkingV1().Ingresses("ns").Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// deployed waits for an Ingress's status.
func (w *world) deployed(name string) *networkingv1.Ingress {
	w.t.Helper()
	var ing *networkingv1.Ingress
	w.eventually("status of "+name, func() bool {
		var err error
		if ing, err = w.client.NetworkingV1().Ingresses("ns").Get(context.Background(), name, metav1.GetOptions{}); err != nil {
			w.t.Fatal(err)
		}
		return len(ing.Status.LoadBalancer.Ingress) > 0
	})
	return ing
}

// targets waits until a group has exactly these targets.
func (w *world) targets(group string, want ...string) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("targets %v in %s", want, group), func() bool { return slices.Equal(w.api.registered(group), want) })
}

// event waits for an Event that has all of the texts.
func (w *world) event(texts ...string) string {
	w.t.Helper()
	var seen []string
	for {
		select {
		case e := <-w.events.Events:
			if !slices.ContainsFunc(texts, func(t string) bool { return !strings.Contains(e, t) }) {
				return e
			}
			seen = append(seen, e)
		case <-time.After(20 * time.Second):
			w.t.Fatalf("no event with %q, only %q", texts, seen)
		}
	}
}

// balancer is a load balancer as the API has it.
func (w *world) balancer(name string) (lb elb.LoadBalancer, ok bool) {
	w.api.with(func() { lb, ok = w.api.balancers[name] })
	return lb, ok
}

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}
