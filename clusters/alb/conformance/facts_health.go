package conformance

import (
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"lameduck/clusters/alb/elb"
	"lameduck/clusters/alb/scripted"
)

func healthFacts() []Fact {
	return []Fact{
		{"4-one-check", 4, Documented, guideHealthChecks, "a new target needs one passing check, whatever the threshold", oneCheck},
		{"4-own-connection", 4, Documented, guideHealthChecks, "each check opens a connection of its own and closes it", checkConnections},
		{"4-per-node", 4, Documented, guideHealthChecks, "every node checks and routes on its own, and a target is healthy when it is on all of them", perNode},
		{"4-unhealthy-threshold", 4, Documented, guideHealthChecks, "as many consecutive failed checks as the threshold make a target unhealthy", unhealthyThreshold},
		{"4-healthy-threshold", 4, Documented, guideHealthChecks, "as many consecutive passed checks as the threshold make it healthy again", healthyThreshold},
		{"4-success-codes", 4, Documented, guideHealthChecks, "ranges of success codes", successCodes},
		{"4-check-port", 4, Documented, guideHealthChecks, "checks go to the traffic port or to one of their own", checkPort},
		{"4-check-disturbs-nothing", 4, Documented, guideAccessLogs, "checks are not in the access log", checksNotLogged},
		{"4-fail-open", 4, Documented, guideTargetGroups, "if only unhealthy targets are left, requests go to all of them", failOpen},
		{"4-healthy-only", 4, Documented, guideTargetGroups, "an unhealthy target gets no requests while there is a healthy one", healthyOnly},
	}
}

// checkedTarget answers checks as a test says and other requests with ok.
type checkedTarget struct {
	*scripted.Target
	served atomic.Int64 // requests that are no checks
	mu     sync.Mutex
	passes func(node string, n int) bool // of node's nth check, from 1
	checks map[string]int                // by the node's address
}

func startChecked(t *T, passes func(node string, n int) bool) *checkedTarget {
	c := &checkedTarget{passes: passes, checks: map[string]int{}}
	c.Target = startTarget(t, func(x *scripted.Exchange) {
		for r := x.Request(); r != nil; r = x.Request() {
			switch {
			case r.URL.Path != "/health":
				c.served.Add(1)
				x.Say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			case c.check(x.RemoteAddr()):
				x.Say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			default:
				x.Say("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
			}
		}
	})
	return c
}

func (c *checkedTarget) check(from net.Addr) bool {
	node, _, _ := net.SplitHostPort(from.String())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checks[node]++
	return c.passes(node, c.checks[node])
}

// become changes what checks find. Counts start anew.
func (c *checkedTarget) become(passes func(node string, n int) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.passes, c.checks = passes, map[string]int{}
}

// least is the number of checks of the node that checked least.
func (c *checkedTarget) least(nodes int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.checks) < nodes {
		return 0
	}
	least := 1 << 30
	for _, n := range c.checks {
		least = min(least, n)
	}
	return least
}

func passing(string, int) bool { return true }
func failing(string, int) bool { return false }

func oneCheck(t *T) {
	target := startChecked(t, passing)
	c := newCloud(t, checked, func(o *cloudOptions) { o.group.HealthCheck.Healthy = 10 })
	c.serve(target.Target)
	if n := target.least(2); n >= 10 {
		t.Errorf("healthy after %d checks of each node, want one", n)
	}
	t.eventually("more checks", func() bool { return target.least(2) >= 3 })
}

func checkConnections(t *T) {
	var mu sync.Mutex
	var open, again int
	agents, hosts := map[string]bool{}, map[string]bool{}
	target := startTarget(t, func(x *scripted.Exchange) {
		r := x.Request()
		if r == nil {
			return
		}
		mu.Lock()
		open++
		agents[r.UserAgent()], hosts[r.Host] = true, true
		mu.Unlock()
		x.Say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		more := x.Request() // until the load balancer closes
		mu.Lock()
		defer mu.Unlock()
		open--
		if more != nil {
			again++
		}
	})
	c := newCloud(t, checked)
	c.serve(target)
	t.eventually("six connections", func() bool { return target.Conns.Load() >= 6 })
	c.deregister(target) // the checks end
	t.eventually("end of all connections", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return open == 0
	})
	mu.Lock()
	defer mu.Unlock()
	if again > 0 {
		t.Errorf("%d checks came on a connection that had one", again)
	}
	if !agents["ELB-HealthChecker/2.0"] || !hosts[target.Address()] || len(agents)+len(hosts) != 2 {
		t.Errorf("User-Agents %v, Hosts %v; want ELB-HealthChecker/2.0 and %s", agents, hosts, target.Address())
	}
}

func perNode(t *T) {
	c := newCloud(t, checked)
	blind := c.nodes[0].Addr().String()
	half := startChecked(t, func(node string, _ int) bool { return node != blind })
	whole := startChecked(t, passing)
	c.register(half.Target)
	c.serve(whole.Target)
	c.wantOnNode(half.Target, 1, elb.StateHealthy)
	if h, _ := c.health(half.Target); h.State == elb.StateHealthy {
		t.Errorf("healthy over all nodes")
	}
	for range 4 {
		c.get(0, "/")
	}
	if n := half.served.Load(); n != 0 {
		t.Errorf("the node that finds it unhealthy sent %d requests, want 0", n)
	}
	for range 4 {
		c.get(1, "/")
	}
	if n := half.served.Load(); n != 2 {
		t.Errorf("the node that finds it healthy sent %d of 4 requests, want 2", n)
	}
}

func unhealthyThreshold(t *T) {
	target := startChecked(t, passing)
	c := newCloud(t, checked, func(o *cloudOptions) { o.group.HealthCheck.Unhealthy = 3 })
	c.serve(target.Target)
	target.become(func(_ string, n int) bool { return n%3 == 0 }) // never three in a row
	t.eventually("twelve checks", func() bool { return target.least(2) >= 12 })
	if c.last(target.Target, elb.StateUnhealthy).State == elb.StateUnhealthy {
		t.Errorf("unhealthy after two failed checks in a row, want three")
	}
	target.become(failing)
	c.wantHealth(target.Target, elb.StateUnhealthy, elb.ReasonResponseCodeMismatch)
}

func healthyThreshold(t *T) {
	target := startChecked(t, failing)
	c := newCloud(t, checked, func(o *cloudOptions) { o.group.HealthCheck.Healthy = 3 })
	c.register(target.Target)
	c.wantHealth(target.Target, elb.StateUnhealthy, elb.ReasonResponseCodeMismatch)
	target.become(func(_ string, n int) bool { return n%3 != 0 })
	t.eventually("twelve checks", func() bool { return target.least(2) >= 12 })
	if c.last(target.Target, elb.StateHealthy).State == elb.StateHealthy {
		t.Errorf("healthy after two passed checks in a row, want three")
	}
	target.become(passing)
	c.wantHealth(target.Target, elb.StateHealthy, "")
}

func successCodes(t *T) {
	for answer, want := range map[string]elb.State{
		"200 OK": elb.StateUnhealthy, "204 No Content": elb.StateHealthy, "302 Found": elb.StateHealthy, "399 Last": elb.StateHealthy, "404 Not Found": elb.StateUnhealthy,
	} {
		target := startTarget(t, scripted.Once("HTTP/1.1 "+answer+"\r\nContent-Length: 0\r\n\r\n"))
		c := newCloud(t, checked, func(o *cloudOptions) {
			o.group.HealthCheck.Codes = []elb.CodeRange{{Low: 204, High: 204}, {Low: 300, High: 399}}
		})
		c.register(target)
		t.eventually(answer+": "+string(want), func() bool { h, _ := c.health(target); return h.State == want })
	}
}

func checkPort(t *T) {
	health, traffic := startChecked(t, passing), startTarget(t, scripted.Echo)
	c := newCloud(t, checked, func(o *cloudOptions) { o.group.HealthCheck.Port = addrs(health.Target)[0].Port() })
	c.serve(traffic)
	wantStatus(t, "request", c.get(0, "/"), http.StatusOK)
	if n := traffic.Requests.Load(); n != 1 {
		t.Errorf("the traffic port got %d requests, want 1", n)
	}
	if health.least(2) == 0 {
		t.Errorf("the check's port got no checks")
	}
}

func checksNotLogged(t *T) {
	target := startChecked(t, passing)
	c := newCloud(t, checked)
	c.serve(target.Target)
	t.eventually("checks", func() bool { return target.least(2) >= 3 })
	if got := c.copy(t); len(got) != 0 {
		t.Errorf("log has %d lines", len(got))
	}
}

func failOpen(t *T) {
	a, b := startChecked(t, failing), startChecked(t, failing)
	c := newCloud(t, checked)
	c.register(a.Target, b.Target)
	for _, target := range []*checkedTarget{a, b} {
		c.wantOnNode(target.Target, 0, elb.StateUnhealthy)
	}
	for range 4 {
		wantStatus(t, "fail-open", c.get(0, "/"), http.StatusOK)
	}
	if a.served.Load() != 2 || b.served.Load() != 2 {
		t.Errorf("targets got %d and %d requests, want 2 and 2", a.served.Load(), b.served.Load())
	}
	for _, l := range c.wait(t, 4) {
		if l.TargetState != string(elb.StateUnhealthy) {
			t.Errorf("log: target state %q, want unhealthy", l.TargetState)
		}
	}
}

func healthyOnly(t *T) {
	good, bad := startChecked(t, passing), startChecked(t, failing)
	c := newCloud(t, checked)
	c.register(bad.Target)
	c.wantHealth(bad.Target, elb.StateUnhealthy, elb.ReasonResponseCodeMismatch)
	c.serve(good.Target)
	for range 4 {
		wantStatus(t, "request", c.get(0, "/"), http.StatusOK)
	}
	if n := bad.served.Load(); n != 0 {
		t.Errorf("the unhealthy target got %d requests, want 0", n)
	}
}
