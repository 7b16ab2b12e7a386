package conformance

import (
	"net/http"
	"net/url"
	"time"

	"lameduck/clusters/alb/elb"
	"lameduck/clusters/alb/scripted"
)

func weightFacts() []Fact {
	return []Fact{
		{"4-weights", 4, Documented, guideRules, "a weighted forward shares requests by weight, none for weight 0", weights},
		{"4-weight-range", 4, Documented, guideRules, "weights are 0..999", weightRange},
		{"4-weight-lag", 4, Observed, controllerIssues, "a change of weights reaches the nodes after the weight lag, a setting", weightLag},
		{"4-group-sticky", 4, Documented, guideSticky, "group stickiness: AWSALBTG keeps a client at its group while weights change", groupSticky},
		{"4-sticky", 4, Documented, guideSticky, "AWSALB keeps a client at its target, on every node", sticky},
		{"4-sticky-expires", 4, Documented, guideSticky, "AWSALB ends after its duration, and starts anew with every answer", stickyExpires},
		{"4-sticky-gone", 4, Documented, guideSticky, "a client whose target is gone gets another one, and a cookie for it", stickyGone},
	}
}

// second is another group of a cloud, with a target that says its name.
func (c *cloud) second(name string) {
	g := c.group
	g.Name = name
	c.t.must(c.api.PutTargetGroup(c.t.Context(), g))
	c.t.must(c.api.RegisterTargets(c.t.Context(), g.Name, addrs(startTarget(c.t, named(name)))))
}

func weighted(first, second int) elb.Action {
	return elb.Action{Forward: []elb.WeightedGroup{{Group: "blue", Weight: first}, {Group: "green", Weight: second}}}
}

// blueGreen is a cloud with two groups.
func blueGreen(t *T, edits ...func(*cloudOptions)) *cloud {
	c := newCloud(t, edits...)
	c.second("blue")
	c.second("green")
	return c
}

func (c *cloud) share(n int, name string) int {
	got := 0
	for range n {
		if c.get(0, "/").body == name {
			got++
		}
	}
	return got
}

func weights(t *T) {
	c := blueGreen(t)
	c.update(func(lb *elb.LoadBalancer) { lb.Default = weighted(1, 0) })
	t.eventually("blue", func() bool { return c.get(0, "/").body == "blue" })
	if n := c.share(20, "blue"); n != 20 {
		t.Errorf("1:0: blue got %d of 20", n)
	}
	c.update(func(lb *elb.LoadBalancer) { lb.Default = weighted(0, 100) })
	t.eventually("green", func() bool { return c.get(0, "/").body == "green" })
	if n := c.share(20, "green"); n != 20 {
		t.Errorf("0:100: green got %d of 20", n)
	}
	c.update(func(lb *elb.LoadBalancer) { lb.Default = weighted(1, 3) })
	// 200 drawn at random: 150 on average; the bounds are missed once in 10^8 times.
	if n := c.share(200, "green"); n < 113 || n > 185 {
		t.Errorf("1:3: green got %d of 200", n)
	}
}

func weightRange(t *T) {
	c := blueGreen(t)
	for _, bad := range [][2]int{{-1, 1}, {1000, 1}} {
		lb := c.lb
		lb.Default = weighted(bad[0], bad[1])
		if err := c.api.PutLoadBalancer(t.Context(), lb); err == nil {
			t.Errorf("weights %v are accepted, want 0..999", bad)
		}
	}
	c.update(func(lb *elb.LoadBalancer) { lb.Default = weighted(999, 0) })
}

func weightLag(t *T) {
	const lag = 100 * time.Millisecond
	c := blueGreen(t, func(o *cloudOptions) {
		o.lb.WeightLag = &elb.Range{Min: lag, Max: lag}
	})
	c.update(func(lb *elb.LoadBalancer) { lb.Default = weighted(1, 0) })
	t.eventually("blue", func() bool { return c.get(0, "/").body == "blue" })
	t.eventually("blue on the other node", func() bool { return c.get(1, "/").body == "blue" })
	start := time.Now()
	c.update(func(lb *elb.LoadBalancer) { lb.Default = weighted(0, 1) })
	for node := range c.nodes {
		t.eventually("green", func() bool { return c.get(node, "/").body == "green" })
		if d := time.Since(start); d < lag {
			t.Errorf("node %d changed after %s, want not before %s", node, d, lag)
		}
	}
}

// getWith sends a GET with cookies to one node.
func (c *cloud) getWith(node int, cookies []*http.Cookie) answer {
	req := newRequest(c.t, http.MethodGet, c.url(node), nil)
	for _, cookie := range cookies {
		req.AddCookie(cookie)
	}
	return do(c.t, c.client, req)
}

func cookies(a answer) []*http.Cookie { return (&http.Response{Header: a.header}).Cookies() }

// wantCookie finds a cookie of an answer.
func wantCookie(t *T, a answer, name string) *http.Cookie {
	for _, cookie := range cookies(a) {
		if cookie.Name == name {
			return cookie
		}
	}
	t.Fatalf("no cookie %s in %v", name, a.header["Set-Cookie"])
	return nil
}

func groupSticky(t *T) {
	c := blueGreen(t)
	change := func(blue, green int) {
		c.update(func(lb *elb.LoadBalancer) {
			lb.Default = weighted(blue, green)
			lb.Default.Sticky = time.Minute
		})
	}
	change(1, 0)
	first := c.get(0, "/")
	wantCookie(t, first, "AWSALBTG")
	change(1, 999)
	for range 10 {
		if a := c.getWith(1, cookies(first)); a.body != "blue" {
			t.Errorf("a client of blue went to %q", a.body)
		}
	}
	if n := c.share(20, "green"); n < 15 {
		t.Errorf("green got %d of 20 requests without a cookie at 1:999", n)
	}
}

// stickyGroup has two targets that say their names.
func stickyGroup(t *T, d time.Duration) (*cloud, []*scripted.Target) {
	c := newCloud(t, func(o *cloudOptions) { o.group.Stickiness.Duration = d })
	targets := []*scripted.Target{startTarget(t, named("a")), startTarget(t, named("b"))}
	c.serve(targets...)
	return c, targets
}

func sticky(t *T) {
	c, _ := stickyGroup(t, time.Minute)
	first := c.get(0, "/")
	cookie := wantCookie(t, first, "AWSALB")
	if cookie.Path != "/" || time.Until(cookie.Expires) < 30*time.Second {
		t.Errorf("cookie %v: want path / and an end in a minute", cookie)
	}
	if cors := wantCookie(t, first, "AWSALBCORS"); cors.Value != cookie.Value || cors.SameSite != http.SameSiteNoneMode {
		t.Errorf("cookie %v: want the same value with SameSite=None", cors)
	}
	if plain, err := url.QueryUnescape(cookie.Value); err != nil || plain == first.body {
		t.Errorf("cookie %q tells the target", cookie.Value)
	}
	for i := range 10 {
		if a := c.getWith(i%2, []*http.Cookie{cookie}); a.body != first.body {
			t.Errorf("request %d went to %q, want %q", i, a.body, first.body)
		}
	}
	seen := map[string]bool{}
	for range 4 {
		seen[c.get(0, "/").body] = true
	}
	if len(seen) != 2 {
		t.Errorf("clients without a cookie all went to %v", seen)
	}
	if a := c.getWith(0, []*http.Cookie{{Name: "AWSALB", Value: "garbage"}}); a.status != http.StatusOK {
		t.Errorf("a garbage cookie: status %d, want 200", a.status)
	}
}

func stickyExpires(t *T) {
	const duration = 2 * time.Second // Expires tells whole seconds: up to one is lost
	c, _ := stickyGroup(t, duration)
	start := time.Now()
	first := c.get(0, "/")
	old := []*http.Cookie{wantCookie(t, first, "AWSALB")}
	again := c.getWith(0, old)
	if wantCookie(t, again, "AWSALB").Value == "" {
		t.Errorf("no new cookie with the second answer")
	}
	t.eventually("another target", func() bool { return c.getWith(0, old).body != first.body })
	if d := time.Since(start); d < duration-time.Second {
		t.Errorf("stickiness ended after %s", d)
	}
}

func stickyGone(t *T) {
	c, targets := stickyGroup(t, time.Minute)
	first := c.get(0, "/")
	gone, other := targets[0], "b"
	if first.body == "b" {
		gone, other = targets[1], "a"
	}
	c.deregister(gone)
	a := c.getWith(0, cookies(first))
	if a.status != http.StatusOK || a.body != other {
		t.Errorf("status %d from %q, want 200 from %q", a.status, a.body, other)
	}
	if got := wantCookie(t, a, "AWSALB").Value; got == wantCookie(t, first, "AWSALB").Value {
		t.Errorf("the cookie is still the old one")
	}
}
