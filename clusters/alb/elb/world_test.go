package elb

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lameduck/clusters/alb/proxy"
)

// hangups is shared: its goroutine waits in the kernel, which synctest would
// take for work to be done.
var hangups *proxy.Hangups

func TestMain(m *testing.M) {
	var err error
	if hangups, err = proxy.NewHangups(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = hangups.Close() // the process ends anyway
	os.Exit(code)
}

const (
	groupName = "ns/app:80"
	lbName    = "ns/app"
)

// world is a service with two nodes, a group and a load balancer.
type world struct {
	*Service
	t     testing.TB
	group TargetGroup
	lb    LoadBalancer

	mu      sync.Mutex
	changes []StateChange
	// fails are the targets whose checks fail, by node and address.
	fails map[string]outcome
}

type worldOptions struct {
	settings Settings
	outputs  Outputs
	group    TargetGroup
	lb       LoadBalancer
	sockets  bool // real health checks
}

// newWorld creates all that is asked for. The load balancer has no listeners
// and checks are made up, unless an edit says otherwise. Lags are off.
func newWorld(t testing.TB, edits ...func(*worldOptions)) *world {
	t.Helper()
	none := &Range{}
	o := worldOptions{
		settings: Settings{
			Nodes:             []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")},
			DeregistrationLag: none, RegistrationLag: none, WeightLag: none,
			Rates: Rates{Targets: Rate{Burst: -1}, Describe: Rate{Burst: -1}, Modify: Rate{Burst: -1}},
		},
		group: TargetGroup{
			Name: groupName, Type: TargetIP, Protocol: HTTP, DeregistrationDelay: time.Minute, Algorithm: RoundRobin,
			HealthCheck: HealthCheck{Protocol: HTTP, Path: "/health", Interval: 10 * time.Second, Timeout: 5 * time.Second, Healthy: 3, Unhealthy: 2, Codes: []CodeRange{{200, 200}}},
		},
		lb: LoadBalancer{Name: lbName, IdleTimeout: time.Minute, ClientKeepAlive: time.Hour, Default: forwardTo(groupName)},
	}
	for _, edit := range edits {
		edit(&o)
	}
	w := &world{t: t, group: o.group, lb: o.lb, fails: make(map[string]outcome)}
	o.outputs.Hangups = hangups
	o.outputs.States = func(c StateChange) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.changes = append(w.changes, c)
	}
	var err error
	w.Service, err = New(o.settings, o.outputs)
	w.must(err)
	if !o.sockets {
		w.check = func(_ context.Context, c checkRequest) outcome {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.fails[c.node.name+" "+c.addr]
		}
	}
	w.must(w.PutTargetGroup(t.Context(), w.group))
	w.must(w.PutLoadBalancer(t.Context(), w.lb))
	t.Cleanup(func() { w.close() })
	return w
}

// close cuts everything.
func (w *world) close() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	w.must(w.Close(ctx))
}

func unchecked(o *worldOptions) { o.group.HealthCheck = HealthCheck{Disabled: true} }

func withAlgorithm(a Algorithm) func(*worldOptions) {
	return func(o *worldOptions) { o.group.Algorithm = a }
}

func instances(o *worldOptions) { o.group.Type = TargetInstance }

// deregisterLate makes the nodes late by a fixed time.
func deregisterLate(d time.Duration) func(*worldOptions) {
	return func(o *worldOptions) { o.group.DeregistrationLag = &Range{d, d} }
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func forwardTo(groups ...string) Action {
	var a Action
	for _, g := range groups {
		a.Forward = append(a.Forward, WeightedGroup{g, 1})
	}
	return a
}

func addr(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}), 80)
}

func addrs(n int) []netip.AddrPort {
	var all []netip.AddrPort
	for i := range n {
		all = append(all, addr(i))
	}
	return all
}

func (w *world) register(targets ...netip.AddrPort) {
	w.t.Helper()
	w.must(w.RegisterTargets(w.t.Context(), groupName, targets))
}

func (w *world) deregister(targets ...netip.AddrPort) {
	w.t.Helper()
	w.must(w.DeregisterTargets(w.t.Context(), groupName, targets))
}

// update changes the group.
func (w *world) update(edit func(*TargetGroup)) {
	w.t.Helper()
	edit(&w.group)
	w.must(w.PutTargetGroup(w.t.Context(), w.group))
}

// rule changes the load balancer.
func (w *world) rule(edit func(*LoadBalancer)) {
	w.t.Helper()
	edit(&w.lb)
	w.must(w.PutLoadBalancer(w.t.Context(), w.lb))
}

// fail makes checks of a target fail on a node, or pass with a zero outcome.
func (w *world) fail(node string, target netip.AddrPort, o outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fails[node+" "+target.String()] = o
}

func (w *world) failEverywhere(target netip.AddrPort, o outcome) {
	for _, n := range w.nodes {
		w.fail(n.name, target, o)
	}
}

var badCode = outcome{ReasonResponseCodeMismatch, "Health checks failed with these codes: [500]"}

// health is "state reason" of a target, "" if it is not listed.
func (w *world) health(target netip.AddrPort) string {
	w.t.Helper()
	all, err := w.DescribeTargetHealth(w.t.Context(), groupName)
	w.must(err)
	for _, h := range all {
		if h.Target == target {
			return strings.TrimSpace(string(h.State) + " " + h.Reason)
		}
	}
	return ""
}

func (w *world) wantHealth(target netip.AddrPort, want ...string) {
	w.t.Helper()
	if got, want := w.health(target), strings.Join(want, " "); got != want {
		w.t.Errorf("health of %s is %q, want %q", target, got, want)
	}
}

// told is "state reason" of each change of a target on a node.
func (w *world) told(target netip.AddrPort, node string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for _, c := range w.changes {
		if c.Target == target && c.Node == node {
			all = append(all, strings.TrimSpace(string(c.State)+" "+c.Reason))
		}
	}
	return all
}

func (w *world) wantTold(target netip.AddrPort, node string, want ...string) {
	w.t.Helper()
	if got := w.told(target, node); !slices.Equal(got, want) {
		w.t.Errorf("changes of %s on node %q:\n%s\nwant\n%s", target, node, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// request is a proxy.Request.
type request struct {
	method, host, target, ip, scheme, port string
	headers                                map[string]string
}

func (r *request) Method() string            { return or(r.method, "GET") }
func (r *request) Host() string              { return or(r.host, "shop.example.com") }
func (r *request) Target() string            { return or(r.target, "/") }
func (r *request) Header(name string) string { return r.headers[name] }
func (r *request) ClientIP() string          { return or(r.ip, "192.0.2.1") }
func (r *request) Scheme() string            { return or(r.scheme, "http") }
func (r *request) Port() string              { return or(r.port, "80") }

func or(s, byDefault string) string {
	if s == "" {
		return byDefault
	}
	return s
}

// route asks one node. Requests stay in flight until done.
func (w *world) route(node int, r *request) proxy.Route {
	var router *router
	w.look(func() { router = w.balancers[lbName].routers[node] })
	return router.Route(r)
}

// look runs f with the service's lock held.
func (w *world) look(f func()) {
	w.Service.mu.Lock()
	defer w.Service.mu.Unlock()
	f()
}

// pool is a target's on a node.
func (w *world) pool(target netip.AddrPort, node int) (p *proxy.Pool) {
	w.look(func() { p = w.groups[groupName].targets[target].nodes[node].Pool() })
	return p
}

// where is the target that a request of one node goes to, or the status of the
// answer. The request ends with 200.
func (w *world) where(node int, r *request) string {
	route := w.route(node, r)
	if route.Target == nil {
		return fmt.Sprintf("%d %s", route.Answer.Status, route.Answer.Error)
	}
	route.Target.Done(200)
	return route.Target.(*nodeTarget).target.addr.String() + " " + route.State
}

func (w *world) wantWhere(node int, want string) {
	w.t.Helper()
	if got := w.where(node, &request{}); got != want {
		w.t.Errorf("a request of node %d goes to %q, want %q", node, got, want)
	}
}

// shares counts where n requests of node 0 go.
func (w *world) shares(n int) map[string]int {
	counts := make(map[string]int)
	for range n {
		where, _, _ := strings.Cut(w.where(0, &request{}), " ")
		counts[where]++
	}
	return counts
}

func mustAddr(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }
