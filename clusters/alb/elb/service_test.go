package elb

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestParseRange(t *testing.T) {
	for value, want := range map[string]Range{
		"none": {}, "17s": {17 * time.Second, 17 * time.Second}, "nlb": {2 * time.Minute, 3 * time.Minute},
		"5s..20s": {5 * time.Second, 20 * time.Second}, "0s": {}, "1h": {time.Hour, time.Hour}, "10ms..1m": {10 * time.Millisecond, time.Minute},
	} {
		got, err := ParseRange(value)
		if err != nil || got != want {
			t.Errorf("%s: %v, %v", value, got, err)
		}
		if again, err := ParseRange(got.String()); err != nil || again != got {
			t.Errorf("%s: String gives %q: %v, %v", value, got, again, err)
		}
		for range 100 {
			if d := got.draw(); d < got.Min || d > got.Max {
				t.Errorf("%s: drew %s", value, d)
			}
		}
	}
	for _, value := range []string{"", "x", "5", "5s..", "..5s", "20s..5s", "-1s", "61m", "1s..2s..3s", "5s-20s"} {
		if _, err := ParseRange(value); err == nil || !strings.HasPrefix(err.Error(), `"`+value+`": want none, 17s, nlb`) {
			t.Errorf("%q: %v", value, err)
		}
	}
}

func TestSettings(t *testing.T) {
	two := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")}
	for want, s := range map[string]Settings{
		"nodes: want at least one":                       {},
		"nodes: 127.0.0.1 is invalid or named twice":     {Nodes: []netip.Addr{two[0], two[0]}},
		"deregistration lag is 2s..1s: want":             {DeregistrationLag: &Range{2 * time.Second, time.Second}},
		"registration lag is -1s: want":                  {RegistrationLag: &Range{-time.Second, -time.Second}},
		"weight lag is 0s..2h0m0s: want":                 {WeightLag: &Range{0, 2 * time.Hour}},
		`pool order is "random": want lifo or fifo`:      {PoolOrder: "random"},
		"unusable status is 500: want 502 or 503":        {UnusableStatus: 500},
		"connect timeout is -1s":                         {ConnectTimeout: -time.Second},
		"quotas are":                                     {Quotas: Quotas{GroupsPerAction: -1}},
		"rate of modify is {PerSecond:0 Burst:1}: want ": {Rates: Rates{Modify: Rate{0, 1}}},
	} {
		if s.Nodes == nil && !strings.HasPrefix(want, "nodes") {
			s.Nodes = two
		}
		if _, err := New(s, Outputs{Hangups: hangups}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestDefaults: what the issue names.
func TestDefaults(t *testing.T) {
	s := Settings{}.withDefaults()
	if *s.DeregistrationLag != (Range{5 * time.Second, 20 * time.Second}) || s.UnusableStatus != 503 || s.KeepIdleAtDeregistration ||
		s.ConnectTimeout != 10*time.Second || s.Quotas != (Quotas{1000, 1000, 100, 5}) {
		t.Errorf("%+v", s)
	}
}

func TestGroupErrors(t *testing.T) {
	w := newWorld(t)
	for want, edit := range map[string]func(*TargetGroup){
		"it has no name":          func(g *TargetGroup) { g.Name = "" },
		`type is "lambda": want`:  func(g *TargetGroup) { g.Type = "lambda" },
		`protocol is "": want`:    func(g *TargetGroup) { g.Protocol = "" },
		`algorithm is "x": want`:  func(g *TargetGroup) { g.Algorithm = "x" },
		"slow start is 30s: want": func(g *TargetGroup) { g.Algorithm, g.SlowStart = WeightedRandom, 30*time.Second },
		"anomaly mitigation is on: want it off with algorithm round_robin": func(g *TargetGroup) { g.AnomalyMitigation = true },
		"deregistration delay is -1s":                                      func(g *TargetGroup) { g.DeregistrationDelay = -time.Second },
		"deregistration lag is 1s..0s":                                     func(g *TargetGroup) { g.DeregistrationLag = &Range{time.Second, 0} },
		"unusable status is 504":                                           func(g *TargetGroup) { g.UnusableStatus = 504 },
		`health check protocol is "TCP"`:                                   func(g *TargetGroup) { g.HealthCheck.Protocol = "TCP" },
		`health check path is "x"`:                                         func(g *TargetGroup) { g.HealthCheck.Path = "x" },
		"health check interval is 0s":                                      func(g *TargetGroup) { g.HealthCheck.Interval = 0 },
		"health check thresholds are 0 and 2":                              func(g *TargetGroup) { g.HealthCheck.Healthy = 0 },
		"health check success codes are empty":                             func(g *TargetGroup) { g.HealthCheck.Codes = nil },
		"is of type ip and protocol HTTP, which cannot change":             func(g *TargetGroup) { g.Type = TargetInstance },
	} {
		g := w.group
		edit(&g)
		if err := w.PutTargetGroup(t.Context(), g); !errors.Is(err, ErrInvalidConfiguration) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := w.DeleteTargetGroup(t.Context(), groupName); !errors.Is(err, ErrResourceInUse) {
		t.Errorf("delete a group in use: %v", err)
	}
	for what, err := range map[string]error{
		"delete":     w.DeleteTargetGroup(t.Context(), "x"),
		"register":   w.RegisterTargets(t.Context(), "x", addrs(1)),
		"deregister": w.DeregisterTargets(t.Context(), "x", addrs(1)),
		"describe":   func() error { _, err := w.DescribeTargetHealth(t.Context(), "x"); return err }(),
	} {
		if !errors.Is(err, ErrTargetGroupNotFound) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, bad := range []netip.AddrPort{{}, netip.MustParseAddrPort("198.18.0.1:0")} {
		if err := w.RegisterTargets(t.Context(), groupName, []netip.AddrPort{bad}); !errors.Is(err, ErrInvalidTarget) {
			t.Errorf("target %s: %v", bad, err)
		}
	}
}

func TestLoadBalancerErrors(t *testing.T) {
	w := newWorld(t)
	other := w.lb
	other.Name, other.Default = "ns/other", Action{}
	other.Listeners = []Listener{{Port: 0, Protocol: HTTP}}
	w.must(w.PutLoadBalancer(t.Context(), other))
	for _, c := range []struct {
		want error
		text string
		edit func(*LoadBalancer)
	}{
		{ErrInvalidConfiguration, "it has no name", func(lb *LoadBalancer) { lb.Name = "" }},
		{ErrInvalidConfiguration, "idle timeout is 0s", func(lb *LoadBalancer) { lb.IdleTimeout = 0 }},
		{ErrInvalidConfiguration, "weight lag is 1s..0s", func(lb *LoadBalancer) { lb.WeightLag = &Range{time.Second, 0} }},
		{ErrInvalidConfiguration, `protocol of port 1 is "TCP"`, func(lb *LoadBalancer) { lb.Listeners = []Listener{{1, "TCP"}} }},
		{ErrDuplicateListener, "port 1 is that of another listener", func(lb *LoadBalancer) { lb.Listeners = []Listener{{1, HTTP}, {1, HTTPS}} }},
		{ErrTargetGroupNotFound, "nowhere", func(lb *LoadBalancer) { lb.Default = forwardTo("nowhere") }},
		{ErrInvalidAction, "weight of target group ns/app:80 is 1000: want 0..999", func(lb *LoadBalancer) { lb.Default.Forward = []WeightedGroup{{groupName, 1000}} }},
		{ErrInvalidAction, "6 target groups: want at most 5", func(lb *LoadBalancer) { lb.Default = forwardTo("", "", "", "", "", "") }},
		{ErrInvalidAction, "rule 1 of 1", func(lb *LoadBalancer) {
			lb.Rules = []Rule{{Action: Action{Fixed: &FixedResponse{Status: 100}}}}
		}},
		{ErrInvalidAction, "status of the redirect is 307", func(lb *LoadBalancer) { lb.Default = Action{Redirect: &Redirect{Status: 307}} }},
		{ErrInvalidAction, "want one of", func(lb *LoadBalancer) { lb.Default.Fixed = &FixedResponse{Status: 200} }},
		{ErrInvalidAction, "group stickiness is -1s", func(lb *LoadBalancer) { lb.Default = Action{Forward: forwardTo("").Forward, Sticky: -time.Second} }},
		{ErrAssociationLimit, "target group ns/app:80 is load balancer ns/app's", func(lb *LoadBalancer) { lb.Name = "ns/third" }},
	} {
		lb := w.lb
		lb.Default.Forward = append([]WeightedGroup(nil), lb.Default.Forward...)
		c.edit(&lb)
		if err := w.PutLoadBalancer(t.Context(), lb); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v, want %v with %q", err, c.want, c.text)
		}
	}
	w.must(w.DeleteLoadBalancer(t.Context(), "nobody"))
}

func TestQuotas(t *testing.T) {
	w := newWorld(t, unchecked)
	w.register(addrs(1000)...)
	err := w.RegisterTargets(t.Context(), groupName, addrs(1002)[1000:])
	if !errors.Is(err, ErrTooManyTargets) || !strings.Contains(err.Error(), "1002 targets: want at most 1000") {
		t.Errorf("two more than a thousand: %v", err)
	}
	w.wantHealth(addr(7), "healthy") // the others are unharmed
	w.deregister(addr(7))
	w.register(addr(1000)) // draining ones do not count
	second := w.group
	second.Name = "ns/second:80"
	w.must(w.PutTargetGroup(t.Context(), second))
	w.must(w.RegisterTargets(t.Context(), second.Name, addrs(1)))
	lb := w.lb
	lb.Default = forwardTo(groupName, second.Name)
	if err := w.PutLoadBalancer(t.Context(), lb); !errors.Is(err, ErrTooManyTargets) {
		t.Errorf("1001 targets in two groups: %v", err)
	}
	w.must(w.DeregisterTargets(t.Context(), second.Name, addrs(1)))
	w.must(w.PutLoadBalancer(t.Context(), lb))
	if err := w.RegisterTargets(t.Context(), second.Name, addrs(2)[1:]); !errors.Is(err, ErrTooManyTargets) || !strings.Contains(err.Error(), "load balancer ns/app would have 1001") {
		t.Errorf("the 1001st target of a load balancer: %v", err)
	}
}

func TestGroupQuota(t *testing.T) {
	w := newWorld(t, func(o *worldOptions) { o.settings.Quotas.GroupsPerLoadBalancer = 1 })
	second := w.group
	second.Name = "ns/second:80"
	w.must(w.PutTargetGroup(t.Context(), second))
	lb := w.lb
	lb.Rules = []Rule{{Priority: 1, Paths: []string{"/a"}, Action: forwardTo(second.Name)}}
	if err := w.PutLoadBalancer(t.Context(), lb); !errors.Is(err, ErrTooManyGroups) || !strings.Contains(err.Error(), "2 target groups: want at most 1") {
		t.Errorf("%v", err)
	}
}

func TestThrottling(t *testing.T) {
	w := newWorld(t, func(o *worldOptions) { o.settings.Rates.Targets = Rate{PerSecond: 1e-6, Burst: 2} })
	w.register(addr(1))
	w.deregister(addr(1))
	if err := w.RegisterTargets(t.Context(), groupName, addrs(1)); !errors.Is(err, ErrThrottling) {
		t.Errorf("the third call: %v", err)
	}
	w.wantHealth(addr(1), draining) // describing has a bucket of its own
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.PutTargetGroup(ended, w.group); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}

// TestCallInterval: one call per interval, whatever it does, and only of the
// group that has one.
func TestCallInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, unchecked, func(o *worldOptions) { o.group.CallInterval = 30 * time.Second })
		refused := func() {
			t.Helper()
			if err := w.DeregisterTargets(t.Context(), groupName, addrs(1)); !errors.Is(err, ErrThrottling) {
				t.Errorf("%v, want ErrThrottling", err)
			}
			w.wantHealth(addr(0), "healthy")
		}
		other := w.group
		other.Name, other.CallInterval = "ns/other:80", 0
		w.must(w.PutTargetGroup(t.Context(), other))
		w.register(addrs(2)...)
		refused()
		for range 3 {
			w.must(w.RegisterTargets(t.Context(), other.Name, addrs(1)))
		}
		time.Sleep(30*time.Second - time.Nanosecond)
		refused() // and costs nothing
		w.update(func(g *TargetGroup) { g.SlowStart = time.Minute })
		refused() // the interval goes on
		time.Sleep(time.Nanosecond)
		w.deregister(addr(0))
		w.wantHealth(addr(0), draining)
		w.update(func(g *TargetGroup) { g.CallInterval = 0 })
		w.deregister(addr(1))
		w.wantHealth(addr(1), draining)
		w.close()
	})
}

func TestClosed(t *testing.T) {
	w := newWorld(t)
	w.close()
	w.close() // again
	if err := w.PutTargetGroup(t.Context(), w.group); !errors.Is(err, errClosed) {
		t.Errorf("%v", err)
	}
}

// TestHostCounts: CloudWatch's HealthyHostCount and UnHealthyHostCount.
func TestHostCounts(t *testing.T) {
	m := &fakeMetrics{counts: make(map[string][2]int)}
	w := newWorld(t, unchecked, func(o *worldOptions) {
		o.outputs.Metrics = func(lb string) Metrics { m.name = lb; return m }
	})
	want := func(healthy, unhealthy int) {
		t.Helper()
		if got := m.counts[groupName]; got != [2]int{healthy, unhealthy} {
			t.Errorf("counts %v, want %d and %d", got, healthy, unhealthy)
		}
	}
	w.register(addrs(3)...)
	want(3, 0)
	w.deregister(addr(1))
	want(2, 0)
	if m.name != lbName {
		t.Errorf("metrics of %q", m.name)
	}
	w.rule(func(lb *LoadBalancer) { lb.Default = Action{} })
	if _, there := m.counts[groupName]; there {
		t.Error("an unused group has counts")
	}
}

type fakeMetrics struct {
	noMetrics
	name   string
	counts map[string][2]int
}

func (m *fakeMetrics) Hosts(group string, healthy, unhealthy int) {
	m.counts[group] = [2]int{healthy, unhealthy}
}

func (m *fakeMetrics) GroupGone(group string) { delete(m.counts, group) }
