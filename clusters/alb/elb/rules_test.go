package elb

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"lameduck/clusters/alb/proxy"
)

func TestConditions(t *testing.T) {
	for _, c := range []struct {
		name  string
		rule  Rule
		match []request
		other []request
	}{
		{"none", Rule{}, []request{{}}, nil},
		{"host", Rule{Hosts: []string{"shop.example.com", "*.example.org"}},
			[]request{{}, {host: "SHOP.example.com:8080"}, {host: "a.b.example.org"}},
			[]request{{host: "example.org"}, {host: "shop.example.com.evil"}, {host: "[::1]:80"}}},
		{"host, IPv6", Rule{Hosts: []string{"[2001:db8::1]"}}, []request{{host: "[2001:DB8::1]"}, {host: "[2001:db8::1]:80"}}, []request{{}}},
		{"path", Rule{Paths: []string{"/api/*", "/v?"}},
			[]request{{target: "/api/x?y=1"}, {target: "/v1"}, {target: "http://x/api/y"}},
			[]request{{target: "/API/x"}, {target: "/v10"}, {target: "/"}, {target: "*"}, {target: "http://x"}}},
		{"method", Rule{Methods: []string{"PUT", "POST"}}, []request{{method: "POST"}}, []request{{}, {method: "post"}}},
		{"header", Rule{Headers: map[string][]string{"User-Agent": {"*Firefox*", "curl"}, "X-A": {"1"}}},
			[]request{{headers: map[string]string{"User-Agent": "a firefox b", "X-A": "1"}}},
			[]request{{headers: map[string]string{"User-Agent": "curl"}}, {headers: map[string]string{"User-Agent": "curl/8", "X-A": "1"}}, {}}},
		{"query", Rule{Query: []QueryCondition{{"version", "v*"}, {"", "any"}}},
			[]request{{target: "/?a=1&Version=V2"}, {target: "/?x=any"}, {target: "/?version=%76"}},
			[]request{{target: "/?version=2"}, {target: "/version=v2"}, {}, {target: "/?any"}, {target: "/?version=%zz"}}},
		{"queries", Rule{Query: []QueryCondition{{"a", "1"}}, AllQueries: [][]QueryCondition{{{"b", "2"}, {"b", "3"}}}},
			[]request{{target: "/?a=1&b=3"}}, []request{{target: "/?a=1"}, {target: "/?b=2"}}},
		{"source", Rule{Sources: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}},
			[]request{{}, {ip: "::ffff:192.0.2.7"}}, []request{{ip: "198.51.100.1"}, {ip: "2001:db8::1"}, {ip: "x"}}},
		{"port", Rule{Ports: []uint16{80, 8080}}, []request{{}, {port: "8080"}}, []request{{port: "443"}}},
		{"all of them", Rule{Hosts: []string{"shop.example.com"}, Paths: []string{"/a"}, Methods: []string{"GET"}},
			[]request{{target: "/a"}}, []request{{target: "/b"}, {target: "/a", method: "PUT"}, {target: "/a", host: "x"}}},
	} {
		conditions := compileConditions(c.rule)
		for _, r := range c.match {
			if !conditions.match(&subject{req: &r}) {
				t.Errorf("%s: %+v does not match", c.name, r)
			}
		}
		for _, r := range c.other {
			if conditions.match(&subject{req: &r}) {
				t.Errorf("%s: %+v matches", c.name, r)
			}
		}
	}
}

func TestMatchPattern(t *testing.T) {
	for _, c := range []struct {
		pattern, s string
		want       bool
	}{
		{"/*", "/", true}, {"/*", "*", false}, {"*", "", true}, {"", "", true}, {"", "a", false}, {"?", "", false},
		{"a*b*c", "a-b-b-c", true}, {"a*b*c", "a-b-b", false}, {"*.jpg", "/x/y.jpg", true}, {"/img/*/pics", "/img/1/2/pics", true},
		{"a**", "a", true}, {"a?c", "abc", true}, {"a?c", "ac", false}, {"*a", "ba", true}, {"*a", "ab", false},
	} {
		if got := matchPattern(c.pattern, c.s); got != c.want {
			t.Errorf("%q, %q: %v", c.pattern, c.s, got)
		}
	}
}

func TestRedirect(t *testing.T) {
	r := &request{host: "Shop.example.com:8080", target: "/a/b?c=d&e", port: "8080"}
	for _, c := range []struct {
		redirect Redirect
		status   int
		location string
	}{
		{Redirect{}, 302, "http://shop.example.com:8080/a/b?c=d&e"},
		{Redirect{Status: 301, Protocol: "HTTPS", Port: "443"}, 301, "https://shop.example.com:443/a/b?c=d&e"},
		{Redirect{Host: "www.#{host}", Path: "/new/#{path}/x", Query: "old=#{port}"}, 302, "http://www.shop.example.com:8080/new/a/b/x?old=8080"},
		{Redirect{Query: "#{query}&f=1", Path: "/"}, 302, "http://shop.example.com:8080/?c=d&e&f=1"},
	} {
		full := c.redirect.withDefaults()
		if a := full.answer(r); a.Status != c.status || a.Location != c.location {
			t.Errorf("%+v: %d %s, want %d %s", c.redirect, a.Status, a.Location, c.status, c.location)
		}
	}
	full := Redirect{}.withDefaults()
	if a := full.answer(&request{}); a.Location != "http://shop.example.com:80/" {
		t.Errorf("without a query: %s", a.Location)
	}
}

func TestActions(t *testing.T) {
	path := func(p string, priority int, a Action) Rule {
		return Rule{Priority: priority, Paths: []string{p}, Action: a}
	}
	w := newWorld(t, unchecked, func(o *worldOptions) {
		o.lb.Default = Action{}
		o.lb.Rules = []Rule{
			path("/fixed", 1, Action{Fixed: &FixedResponse{Status: 418, ContentType: "text/plain", Body: "tea"}}),
			path("/redirect", 2, Action{Redirect: &Redirect{Status: 301}}),
			path("/none", 3, forwardTo("")),
			path("/zero", 4, Action{Forward: []WeightedGroup{{groupName, 0}, {"", 0}}}),
			path("/only-zero", 5, Action{Forward: []WeightedGroup{{groupName, 0}}}),
			path("/app", 7, forwardTo(groupName)),
			path("/app", 8, Action{}),
		}
	})
	w.register(addr(1))
	for target, want := range map[string]proxy.Route{
		"/fixed":     {Priority: 1, Action: "fixed-response", Answer: proxy.Answer{Status: 418, ContentType: "text/plain", Body: "tea", Fixed: true}},
		"/redirect":  {Priority: 2, Action: "redirect", Answer: proxy.Answer{Status: 301, Location: "http://shop.example.com:80/redirect"}},
		"/none":      {Priority: 3, Action: "forward", Answer: proxy.Answer{Status: 503, Error: "NO_TARGET"}},
		"/zero":      {Priority: 4, Action: "forward", Answer: proxy.Answer{Status: 503, Error: "NO_TARGET"}},
		"/only-zero": {Priority: 5, Action: "forward", Group: groupName, State: "healthy"},
		"/app":       {Priority: 7, Action: "forward", Group: groupName, State: "healthy"},
		"/other":     {Priority: -1, Answer: proxy.Answer{Status: 404, Error: "NO_RULE"}},
	} {
		got := w.route(0, &request{target: target})
		if (got.Target != nil) != (want.State != "") {
			t.Errorf("%s: target %v", target, got.Target)
		}
		if got.Priority != want.Priority || got.Action != want.Action || got.Group != want.Group || got.State != want.State || got.Answer != want.Answer {
			t.Errorf("%s: %+v, want %+v", target, got, want)
		}
	}
	w.rule(func(lb *LoadBalancer) { lb.Rules, lb.Default = nil, forwardTo(groupName) })
	if got := w.route(0, &request{}); got.Priority != 0 || got.Target == nil {
		t.Errorf("default action: %+v", got)
	}
}

// blueGreen is a forward to two groups; each has one target.
func blueGreen(t testing.TB, edits ...func(*worldOptions)) *world {
	weights := func(o *worldOptions) {
		o.lb.Default = Action{Forward: []WeightedGroup{{groupName, 100}}}
	}
	w := newWorld(t, append([]func(*worldOptions){unchecked, weights}, edits...)...)
	green := w.group
	green.Name = "ns/green:80"
	w.must(w.PutTargetGroup(t.Context(), green))
	w.register(addr(1))
	w.must(w.RegisterTargets(t.Context(), green.Name, addrs(3)[2:]))
	return w
}

func (w *world) weigh(blue, green int) {
	w.t.Helper()
	w.rule(func(lb *LoadBalancer) {
		lb.Default.Forward = []WeightedGroup{{groupName, blue}, {"ns/green:80", green}}
	})
}

func TestWeights(t *testing.T) {
	w := blueGreen(t)
	const n = 2000
	for _, c := range []struct{ blue, green int }{{100, 0}, {0, 1}, {50, 50}, {999, 333}} {
		w.weigh(c.blue, c.green)
		got := w.shares(n)["198.18.0.1:80"]
		want := n * c.blue / (c.blue + c.green)
		// Six standard deviations at most.
		if got < want-135 || got > want+135 || c.blue == 0 && got != 0 || c.green == 0 && got != n {
			t.Errorf("%d/%d: %d of %d requests, want about %d", c.blue, c.green, got, n, want)
		}
	}
	w.must(w.DeregisterTargets(t.Context(), groupName, addrs(2)))
	w.weigh(1, 0) // no other group steps in
	w.wantWhere(0, "503 NO_USABLE_TARGET")
}

func TestWeightLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := blueGreen(t)
		lag := func(d time.Duration) { w.lb.WeightLag = &Range{d, d} }
		settle := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
		const blue, green = "198.18.0.1:80 healthy", "198.18.0.2:80 healthy"
		w.wantWhere(0, blue) // new load balancers do not wait
		lag(15 * time.Second)
		w.weigh(0, 100)
		settle(15*time.Second - 1)
		w.wantWhere(0, blue)
		settle(1)
		w.wantWhere(0, green)
		w.wantWhere(1, green)

		w.weigh(0, 100) // the same again changes nothing
		w.weigh(100, 0)
		lag(5 * time.Second)
		w.weigh(0, 1) // overtakes the change before
		settle(6 * time.Second)
		w.wantWhere(0, green)
		settle(time.Minute)
		w.wantWhere(0, green)

		// A group that the rules do not name any more serves the nodes that
		// have not heard of it.
		w.rule(func(lb *LoadBalancer) { lb.Default = forwardTo(groupName) })
		w.must(w.DeleteTargetGroup(t.Context(), "ns/green:80"))
		w.wantWhere(0, green)
		settle(5 * time.Second)
		w.wantWhere(0, blue)
		retired := func(want int) {
			t.Helper()
			w.look(func() {
				if got := len(w.retired); got != want {
					t.Errorf("%d deleted groups are kept, want %d", got, want)
				}
			})
		}
		retired(1) // until its delay is over
		settle(time.Minute)
		retired(0)
		got := w.told(netip.MustParseAddrPort("198.18.0.2:80"), "")
		if last := got[len(got)-1]; last != notThere {
			t.Errorf("its target is %s at last", last)
		}
		w.close()
	})
}

func TestWeightLagIsDrawnPerNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := blueGreen(t, func(o *worldOptions) { o.settings.WeightLag = &Range{0, time.Hour} })
		w.weigh(0, 1)
		w.weigh(0, 1)
		apart := false // one node has heard of it and the other has not
		for range 3600 {
			time.Sleep(time.Second)
			synctest.Wait()
			apart = apart || w.where(0, &request{}) != w.where(1, &request{})
		}
		if !apart {
			t.Error("both nodes changed within a second")
		}
		w.wantWhere(0, "198.18.0.2:80 healthy")
		w.wantWhere(1, "198.18.0.2:80 healthy")
		w.close()
	})
}
