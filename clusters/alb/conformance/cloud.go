package conformance

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"lameduck/clusters/alb/accesslog"
	"lameduck/clusters/alb/elb"
	"lameduck/clusters/alb/scripted"
)

// cloud is the AWS side: one load balancer with two nodes and one target group
// behind its default action, through ELBv2's API.
type cloud struct {
	fileLines // the load balancer's side log
	t         *T
	service   *elb.Service
	api       elb.API // the same
	dir       string  // of the logs
	group     elb.TargetGroup
	lb        elb.LoadBalancer
	nodes     []netip.AddrPort // where each node listens
	client    *http.Client
}

// cloudOptions are what a test may change before the start. Health checks are
// off at first: a target is healthy as soon as it is registered.
type cloudOptions struct {
	settings elb.Settings
	group    elb.TargetGroup
	lb       elb.LoadBalancer
}

// never is longer than any test.
const never = time.Hour

// quickCheck is a health check whose every step takes milliseconds.
func quickCheck() elb.HealthCheck {
	return elb.HealthCheck{
		Protocol: elb.HTTP, Path: "/health", Interval: 10 * time.Millisecond, Timeout: time.Second,
		Healthy: 2, Unhealthy: 2, Codes: []elb.CodeRange{{Low: 200, High: 200}},
	}
}

// checked turns health checks on.
func checked(o *cloudOptions) { o.group.HealthCheck = quickCheck() }

// lastNode numbers the nodes of all clouds: each has addresses of its own, so
// that no two meet on a port.
var lastNode atomic.Uint32

// nodeAddresses are two addresses of loopback that nobody else has.
func nodeAddresses() []netip.Addr {
	var all []netip.Addr
	for range 2 {
		n := lastNode.Add(1)
		all = append(all, netip.AddrFrom4([4]byte{127, 1 + byte(n>>16), byte(n >> 8), byte(n)}))
	}
	return all
}

// newCloud creates the group and the load balancer.
func newCloud(t *T, edits ...func(*cloudOptions)) *cloud {
	none := &elb.Range{}
	dir := t.TempDir()
	o := cloudOptions{
		settings: elb.Settings{Nodes: nodeAddresses(), ConnectTimeout: 5 * time.Second, WeightLag: none, Rates: unlimited()},
		group: elb.TargetGroup{
			Name: frontGroup, Type: elb.TargetIP, Protocol: elb.HTTP, DeregistrationDelay: never, Algorithm: elb.RoundRobin,
			HealthCheck: elb.HealthCheck{Disabled: true}, DeregistrationLag: none, RegistrationLag: none,
		},
		lb: elb.LoadBalancer{
			Name: "ns/app", Listeners: []elb.Listener{{Protocol: elb.HTTP}}, IdleTimeout: 10 * time.Second, ClientKeepAlive: time.Hour,
			Default: forward(frontGroup),
		},
	}
	for _, edit := range edits {
		edit(&o)
	}
	service, err := elb.New(o.settings, elb.Outputs{Messages: io.Discard, Log: func(lb string) (elb.Log, error) {
		namespace, ingress, _ := strings.Cut(lb, "/")
		return accesslog.Open(dir, namespace, ingress, time.Millisecond, func(err error) { t.Errorf("%v", err) })
	}})
	t.must(err)
	t.Cleanup(func() {
		at, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		t.check(service.Close(at))
	})
	c := &cloud{
		fileLines: fileLines{filepath.Join(dir, "ns", "app.jsonl")}, t: t, service: service, api: service, dir: dir,
		group: o.group, lb: o.lb, client: newClient(t, false),
	}
	t.must(c.api.PutTargetGroup(t.Context(), c.group))
	t.must(c.api.PutLoadBalancer(t.Context(), c.lb))
	c.nodes = service.Addresses(c.lb.Name)
	if len(c.nodes) != len(o.settings.Nodes) {
		t.Fatalf("%d addresses, want one for each of %d nodes", len(c.nodes), len(o.settings.Nodes))
	}
	return c
}

// unlimited are rates that no test comes near.
func unlimited() elb.Rates {
	none := elb.Rate{Burst: -1}
	return elb.Rates{Targets: none, Describe: none, Modify: none}
}

// forward is an action with equal weights.
func forward(groups ...string) elb.Action {
	var a elb.Action
	for _, g := range groups {
		a.Forward = append(a.Forward, elb.WeightedGroup{Group: g, Weight: 1})
	}
	return a
}

func addrs(targets ...*scripted.Target) []netip.AddrPort {
	var all []netip.AddrPort
	for _, target := range targets {
		all = append(all, netip.MustParseAddrPort(target.Address()))
	}
	return all
}

func (c *cloud) register(targets ...*scripted.Target) {
	c.t.must(c.api.RegisterTargets(c.t.Context(), c.group.Name, addrs(targets...)))
}

func (c *cloud) deregister(targets ...*scripted.Target) {
	c.t.must(c.api.DeregisterTargets(c.t.Context(), c.group.Name, addrs(targets...)))
}

func (c *cloud) update(edit func(*elb.LoadBalancer)) {
	edit(&c.lb)
	c.t.must(c.api.PutLoadBalancer(c.t.Context(), c.lb))
}

// health is what DescribeTargetHealth says of a target; ok is false if it is
// not in the list.
func (c *cloud) health(target *scripted.Target) (h elb.TargetHealth, ok bool) {
	all, err := c.api.DescribeTargetHealth(c.t.Context(), frontGroup)
	c.t.must(err)
	i := slices.IndexFunc(all, func(h elb.TargetHealth) bool { return h.Target.String() == target.Address() })
	if i < 0 {
		return elb.TargetHealth{}, false
	}
	return all[i], true
}

// wantHealth waits for a state of a target and compares the reason with it.
func (c *cloud) wantHealth(target *scripted.Target, state elb.State, reason string) {
	var h elb.TargetHealth
	c.t.eventually(fmt.Sprintf("state %s of %s", state, target.Address()), func() bool {
		h, _ = c.health(target)
		return h.State == state
	})
	if h.Reason != reason || (reason != "") != (h.Description != "") {
		c.t.Errorf("%s: reason %q, description %q; want %q and a description", state, h.Reason, h.Description, reason)
	}
}

// serve registers targets and waits until each is healthy.
func (c *cloud) serve(targets ...*scripted.Target) {
	c.register(targets...)
	for _, target := range targets {
		c.t.eventually("healthy target", func() bool { h, _ := c.health(target); return h.State == elb.StateHealthy })
	}
}

func (c *cloud) url(node int) string { return "http://" + c.nodes[node].String() }

// get sends a GET to one node.
func (c *cloud) get(node int, path string) answer { return get(c.t, c.client, c.url(node)+path) }

// changes are those of a target's state on a node ("": over all), in order.
func (c *cloud) changes(target *scripted.Target, node string) []elb.StateChange {
	var got []elb.StateChange
	for _, change := range read[elb.StateChange](c.t, filepath.Join(c.dir, "ns", "app.targets.jsonl")) {
		if change.Target.String() == target.Address() && change.Node == node {
			got = append(got, change)
		}
	}
	return got
}

// wantOnNode waits for a target's state on one node: health tells only the
// least advanced one.
func (c *cloud) wantOnNode(target *scripted.Target, node int, state elb.State) {
	c.t.eventually(fmt.Sprintf("state %s of %s on node %d", state, target.Address(), node), func() bool {
		got := c.changes(target, c.nodes[node].Addr().String())
		return len(got) > 0 && got[len(got)-1].State == state
	})
}

// last is the last change of a target over all nodes to a state.
func (c *cloud) last(target *scripted.Target, state elb.State) elb.StateChange {
	for _, change := range slices.Backward(c.changes(target, "")) {
		if change.State == state {
			return change
		}
	}
	return elb.StateChange{}
}
