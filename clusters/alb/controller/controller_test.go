package controller

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"lameduck/clusters/alb/elb"
)

func TestIngressBecomesLoadBalancer(t *testing.T) {
	w := start(t, newFakeAPI(), Options{}, node("a", "198.18.0.11"), service("app"), annotated(ingress("app", 80), "listen-ports", `[{"HTTP":80},{"HTTPS":443}]`))
	ing := w.deployed("app")
	var got []string
	for _, at := range ing.Status.LoadBalancer.Ingress {
		for _, p := range at.Ports {
			got = append(got, netip.AddrPortFrom(netip.MustParseAddr(at.IP), uint16(p.Port)).String())
		}
	}
	if want := "127.0.0.1:80 127.0.0.1:443 127.0.0.2:80 127.0.0.2:443"; strings.Join(got, " ") != want {
		t.Errorf("status has %q, want %q", got, want)
	}
	w.event("Normal SuccessfullyReconciled", "127.0.0.1, 127.0.0.2")
	w.targets("ns/app:80", "198.18.0.11:30080")
	if lb, ok := w.balancer("ns/app"); !ok || lb.Rules[0].Action.Forward[0].Group != "ns/app:80" {
		t.Errorf("load balancer %+v", lb)
	}
}

// TestNothingIsPutTwice: what is as it should be costs no call.
func TestNothingIsPutTwice(t *testing.T) {
	w := start(t, newFakeAPI(), Options{}, node("a", "198.18.0.11"), service("app"), service("other"), ingress("app", 80))
	w.deployed("app")
	svc := service("other")
	svc.Spec.Selector = map[string]string{"x": "y"} // looks at all Ingresses of the namespace again
	w.put(svc)
	w.put(annotated(ingress("app", 80), "healthcheck-path", "/healthz"))
	w.eventually("change of the group", func() bool { return w.api.count("PutTargetGroup") == 2 })
	w.put(annotated(ingress("app", 80), "healthcheck-path", "/healthz", "load-balancer-attributes", "idle_timeout.timeout_seconds=5"))
	w.eventually("change of the load balancer", func() bool { return w.api.count("PutLoadBalancer") == 2 })
	if n := w.api.count("PutTargetGroup"); n != 2 {
		t.Errorf("%d calls of PutTargetGroup, want 2", n)
	}
}

func TestDeletedIngress(t *testing.T) {
	w := start(t, newFakeAPI(), Options{}, node("a", "198.18.0.11"), service("app"), ingress("app", 80))
	if ing := w.deployed("app"); len(ing.Finalizers) != 0 {
		t.Errorf("finalizers %v: the Ingress could not be deleted after kill -9", ing.Finalizers)
	}
	w.targets("ns/app:80", "198.18.0.11:30080")
	w.removeIngress("app")
	w.eventually("end of load balancer and group", func() bool {
		_, ok := w.balancer("ns/app")
		return !ok && w.api.count("DeleteTargetGroup ns/app:80") == 1
	})
	w.put(ingress("app", 80)) // the name is free again
	w.targets("ns/app:80", "198.18.0.11:30080")
}

func TestOtherClass(t *testing.T) {
	other, legacy, both := ingress("other", 80), ingress("legacy", 81), ingress("both", 82)
	other.Spec.IngressClassName = ptr("nginx")
	legacy.Spec.IngressClassName = nil
	legacy.Annotations[legacyClassAnnotation] = IngressClass
	both.Annotations[legacyClassAnnotation] = "nginx" // the annotation wins
	w := start(t, newFakeAPI(), Options{}, node("a", "198.18.0.11"), service("app"), other, legacy, both)
	w.deployed("legacy")
	for _, name := range []string{"other", "both"} {
		if _, ok := w.balancer("ns/" + name); ok {
			t.Errorf("%s has a load balancer", name)
		}
	}
	changed := ingress("legacy", 81)
	changed.Spec.IngressClassName = ptr("nginx")
	w.put(changed)
	w.eventually("end of the load balancer", func() bool { _, ok := w.balancer("ns/legacy"); return !ok })
}

// TestWrongChangeKeepsOld: a wrong annotation is told, and what is there stays.
func TestWrongChangeKeepsOld(t *testing.T) {
	w := start(t, newFakeAPI(), Options{}, node("a", "198.18.0.11"), service("app"), ingress("app", 80))
	w.deployed("app")
	w.put(annotated(ingress("app", 81), "target-group-attributes", "deregistration_delay.timeout_seconds=3601", "scheme", "x"))
	w.event("Warning FailedBuildModel", annotationPrefix+"target-group-attributes", "deregistration_delay.timeout_seconds=3601", "0..3600", annotationPrefix+"scheme")
	if lb, ok := w.balancer("ns/app"); !ok || lb.Listeners[0].Port != 80 {
		t.Errorf("load balancer %+v, %v", lb, ok)
	}
	w.put(ingress("app", 82))
	w.eventually("the right change", func() bool { lb, _ := w.balancer("ns/app"); return lb.Listeners[0].Port == 82 })
}

func TestWarningsAreEvents(t *testing.T) {
	w := start(t, newFakeAPI(), Options{}, service("app"), annotated(ingress("app", 80), "no-such", "x"))
	w.event("Warning Ignored", annotationPrefix+"no-such")
	w.deployed("app")
}

func TestServiceThatComesLater(t *testing.T) {
	w := start(t, newFakeAPI(), Options{}, node("a", "198.18.0.11"), ingress("app", 80))
	w.event("Warning Ignored", "Service ns/app does not exist", "503")
	w.put(service("app"))
	w.targets("ns/app:80", "198.18.0.11:30080")
}

func TestTakenPort(t *testing.T) {
	w := start(t, newFakeAPI(), Options{}, service("app"), ingress("one", 80))
	w.deployed("one")
	w.put(ingress("two", 80))
	w.event("Warning FailedDeployModel", "DuplicateListener", "ns/one", "listen-ports")
	w.removeIngress("one")
	w.deployed("two")
}

// TestTargetTypeChange: type and protocol of a target group cannot change, so
// there is a new group, and then the old one goes.
func TestTargetTypeChange(t *testing.T) {
	w := start(t, newFakeAPI(), Options{}, node("a", "198.18.0.11"), service("app"), pod(podName("198.18.0.1")), slice("s", ready("198.18.0.1")...), ingress("app", 80))
	w.targets("ns/app:80", "198.18.0.11:30080")
	w.put(ipIngress("app", 80))
	group := ""
	w.eventually("new group in the rule", func() bool {
		lb, _ := w.balancer("ns/app")
		group = lb.Rules[0].Action.Forward[0].Group
		return strings.HasPrefix(group, "ns/app:80@")
	})
	w.targets(group, "198.18.0.1:8080")
	w.eventually("end of the old group", func() bool { return w.api.count("DeleteTargetGroup ns/app:80") == 1 })
}

func TestGroupOfIngresses(t *testing.T) {
	member := func(name string) *networkingv1.Ingress {
		ing := annotated(ingress(name, 80), "group.name", "team")
		ing.Spec.Rules[0].Host = name + ".example.com"
		return ing
	}
	w := start(t, newFakeAPI(), Options{}, service("app"), member("b"), member("a"))
	w.deployed("a")
	w.deployed("b")
	lb, _ := w.balancer("group.name/team")
	if len(lb.Rules) != 2 || lb.Rules[0].Hosts[0] != "a.example.com" {
		t.Errorf("rules %+v", lb.Rules)
	}
	wrong := annotated(ingress("b", 81), "group.name", "Team")
	w.put(wrong)
	w.event("Warning FailedLoadGroupID", annotationPrefix+"group.name", "Team")
	w.eventually("a group of one", func() bool { lb, _ := w.balancer("group.name/team"); return len(lb.Rules) == 1 })
	w.removeIngress("a")
	w.eventually("end of the group", func() bool { _, ok := w.balancer("group.name/team"); return !ok })
}

func TestThrottlingIsRetried(t *testing.T) {
	api := newFakeAPI()
	api.fail["PutLoadBalancer"] = elb.ErrThrottling
	w := start(t, api, Options{}, service("app"), ingress("app", 80))
	w.eventually("retries", func() bool { return w.api.count("PutLoadBalancer") >= maxAttempts })
	w.api.with(func() { delete(api.fail, "PutLoadBalancer") })
	w.deployed("app")
}

// TestOwnLimits: calls beyond the burst wait for a token.
func TestOwnLimits(t *testing.T) {
	api := newFakeAPI()
	_ = api.PutTargetGroup(t.Context(), elb.TargetGroup{Name: "g"})
	const perSecond, burst, extra = 100, 2, 3
	th := newThrottled(api, Limits{Targets: Limit{perSecond, burst}, Describe: Limit{1, 1}, Modify: Limit{1, 1}}, time.Millisecond)
	targets := make([]netip.AddrPort, (burst+extra-1)*maxTargetsPerCall+1)
	for i := range targets {
		targets[i] = netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}), 80)
	}
	begin := time.Now()
	if err := th.RegisterTargets(t.Context(), "g", targets); err != nil {
		t.Fatal(err)
	}
	if n := api.count("RegisterTargets g 200"); n != burst+extra-1 || api.count("RegisterTargets g 1") != 1 {
		t.Errorf("%d calls with 200 targets, calls %q", n, api.calls)
	}
	if took, least := time.Since(begin), time.Second*(extra-1)/perSecond; took < least {
		t.Errorf("took %s, want no less than %s", took, least)
	}
	if DefaultLimits != (Limits{Limit{4, 20}, Limit{50, 200}, Limit{3, 20}}) {
		t.Errorf("limits of the original are %+v", DefaultLimits)
	}
}

func TestUnreachableAPIServer(t *testing.T) {
	client := fake.NewClientset()
	var mu sync.Mutex
	down := true
	client.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		if down {
			return true, nil, errors.New("connection refused")
		}
		return false, nil, nil
	})
	said := make(chan string, 10)
	c, err := New(client, record.NewFakeRecorder(10), newFakeAPI(), Options{
		Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, Messages: writerFunc(func(s string) { said <- s }),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	if s := <-said; !strings.Contains(s, "waiting for the API server: connection refused") || c.Synced() {
		t.Errorf("said %q, synced %v", s, c.Synced())
	}
	mu.Lock()
	down = false
	mu.Unlock()
	for !c.Synced() {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

type writerFunc func(string)

func (f writerFunc) Write(p []byte) (int, error) { f(string(p)); return len(p), nil }

// TestStatusOfDeletedIngress: an Ingress that goes while its status is written
// is no failure.
func TestStatusOfDeletedIngress(t *testing.T) {
	w := start(t, newFakeAPI(), Options{}, service("app"))
	gone := ingress("gone", 80)
	if err := w.c.setStatus(t.Context(), gone, []elb.Listener{{Port: 80}}); err != nil {
		t.Error(err)
	}
}
