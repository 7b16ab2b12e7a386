package conformance

import (
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"

	"lameduck/clusters/alb/accesslog"
	"lameduck/clusters/alb/elb"
	"lameduck/clusters/alb/scripted"
)

func ruleFacts() []Fact {
	return []Fact{
		{"3-no-target", 3, Documented, guideTroubleshooting, "no registered target: 503", noTarget},
		{"3-no-service", 3, Source, controllerSource, "a rule without a Service: 503", noService},
		{"3-no-rule", 3, Source, controllerSource, "no rule and no default backend: 404", noRule},
		{"8-hosts-and-paths", 8, Documented, guideRules, "host and path patterns choose the action", hostsAndPaths},
		{"8-conditions", 8, Documented, guideRules, "method, header, query and source conditions, all of a rule's at once", otherConditions},
		{"8-priority", 8, Documented, guideRules, "the first rule by priority that matches decides, and its priority is logged", rulePriority},
		{"8-fixed-response", 8, Documented, guideRules, "fixed-response: status, type and body as configured", fixedResponse},
		{"8-redirect", 8, Documented, guideRules, "redirect: placeholders keep parts of the request, #{path} without its leading slash", redirect},
		{"8-redirect-port", 8, Documented, guideAccessLogs, "redirect: the port is in the URL, also the usual one", redirectPort},
		{"6-actions", 6, Documented, guideAccessLogs, "actions_executed and redirect_url tell the action, rule 0 the default one", actionsLogged},
	}
}

func noTarget(t *T) {
	c := newCloud(t)
	for node := range c.nodes {
		a := c.get(node, "/")
		if a.status != http.StatusServiceUnavailable || a.header.Get("Server") != "awselb/2.0" {
			t.Errorf("status %d from %s, want 503 from awselb/2.0", a.status, a.header.Get("Server"))
		}
	}
	l := c.wait(t, 2)[0]
	wantLine(t, l, 503, 0, accesslog.PhaseRoute, accesslog.ErrorNoTarget)
	if l.Group != frontGroup || l.Target != "" {
		t.Errorf("log: group %q, target %q", l.Group, l.Target)
	}
}

func noService(t *T) {
	c := newCloud(t, func(o *cloudOptions) { o.lb.Default = forward("") })
	wantStatus(t, "rule without a Service", c.get(0, "/"), http.StatusServiceUnavailable)
}

func noRule(t *T) {
	c := newCloud(t, func(o *cloudOptions) { o.lb.Default = elb.Action{} })
	wantStatus(t, "no rule", c.get(0, "/other"), http.StatusNotFound)
	l := c.only(t)
	wantLine(t, l, 404, 0, accesslog.PhaseRoute, l.Error)
	if l.Target != "" || l.Group != "" {
		t.Errorf("log: group %q, target %q", l.Group, l.Target)
	}
}

// says is an action whose answer tells which rule it was.
func says(text string) elb.Action {
	return elb.Action{Fixed: &elb.FixedResponse{Status: http.StatusOK, ContentType: "text/plain", Body: text}}
}

// withRules has rules in front of a default that says "default".
func withRules(rules ...elb.Rule) func(*cloudOptions) {
	return func(o *cloudOptions) {
		for i := range rules {
			rules[i].Priority = i + 1
		}
		o.lb.Rules, o.lb.Default = rules, says("default")
	}
}

func hostsAndPaths(t *T) {
	c := newCloud(t, withRules(
		elb.Rule{Hosts: []string{"*.example.com"}, Paths: []string{"/x", "/x/*"}, Action: says("a")},
		elb.Rule{Paths: []string{"/img/?.png"}, Action: says("b")},
	))
	for _, r := range []struct{ host, path, want string }{
		{"www.example.com", "/x", "a"},
		{"WWW.Example.COM:80", "/x/y?z=1", "a"},
		{"www.example.com", "/xy", "default"},
		{"www.example.com", "/X", "default"},
		{"example.com", "/x", "default"},
		{"other", "/img/1.png?q", "b"},
		{"other", "/img/12.png", "default"},
	} {
		req := newRequest(t, http.MethodGet, c.url(0)+r.path, nil)
		req.Host = r.host
		if a := do(t, c.client, req); a.body != r.want {
			t.Errorf("%s%s: %q, want %s", r.host, r.path, a.body, r.want)
		}
	}
}

func otherConditions(t *T) {
	c := newCloud(t, withRules(
		elb.Rule{Methods: []string{"PUT", "POST"}, Headers: map[string][]string{"X-Stage": {"canary", "b?ta*"}}, Action: says("method and header")},
		elb.Rule{Query: []elb.QueryCondition{{Key: "version", Value: "v*"}, {Value: "any"}}, Action: says("query")},
		elb.Rule{Paths: []string{"/source"}, Sources: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Action: says("source")},
		elb.Rule{Sources: []netip.Prefix{netip.MustParsePrefix("198.18.0.0/15")}, Action: says("other source")},
	))
	for _, r := range []struct{ method, path, stage, want string }{
		{"POST", "/", "canary", "method and header"},
		{"PUT", "/", "beta-2", "method and header"},
		{"GET", "/", "canary", "default"},
		{"POST", "/", "live", "default"},
		{"POST", "/", "", "default"},
		{"GET", "/?a=b&version=v2", "", "query"},
		{"GET", "/?x=any", "", "query"},
		{"GET", "/?version=2", "", "default"},
		{"GET", "/source", "", "source"},
	} {
		req := newRequest(t, r.method, c.url(0)+r.path, nil)
		if r.stage != "" {
			req.Header.Set("X-Stage", r.stage)
		}
		if a := do(t, c.client, req); a.body != r.want {
			t.Errorf("%s %s %s: %q, want %s", r.method, r.path, r.stage, a.body, r.want)
		}
	}
}

func rulePriority(t *T) {
	c := newCloud(t, withRules(
		elb.Rule{Paths: []string{"/a/*"}, Action: says("first")},
		elb.Rule{Paths: []string{"/*"}, Action: says("second")},
	))
	for path, want := range map[string]string{"/a/b": "first", "/b": "second"} {
		if a := c.get(0, path); a.body != want {
			t.Errorf("%s: %q, want %s", path, a.body, want)
		}
	}
	for _, l := range c.wait(t, 2) {
		if want := map[string]int{"/a/b": 1, "/b": 2}[l.Path]; l.Rule != want {
			t.Errorf("log: %s has rule %d, want %d", l.Path, l.Rule, want)
		}
	}
}

func fixedResponse(t *T) {
	c := newCloud(t, withRules(
		elb.Rule{Paths: []string{"/down"}, Action: elb.Action{Fixed: &elb.FixedResponse{Status: 503, ContentType: "application/json", Body: `{"down":true}`}}},
		elb.Rule{Paths: []string{"/empty"}, Action: elb.Action{Fixed: &elb.FixedResponse{Status: 404}}},
	))
	if a := c.get(0, "/down"); a.status != 503 || a.body != `{"down":true}` || a.header.Get("Content-Type") != "application/json" {
		t.Errorf("status %d, type %q, body %q", a.status, a.header.Get("Content-Type"), a.body)
	}
	if a := c.get(0, "/empty"); a.status != 404 || a.body != "" {
		t.Errorf("status %d, body %q; want 404 without a body", a.status, a.body)
	}
}

func redirect(t *T) {
	c := newCloud(t, withRules(
		elb.Rule{Paths: []string{"/old/*"}, Action: elb.Action{Redirect: &elb.Redirect{
			Status: 301, Protocol: "HTTPS", Host: "new.#{host}", Port: "8443", Path: "/new/#{path}", Query: "#{query}&from=old"}}},
		elb.Rule{Paths: []string{"/keep"}, Action: elb.Action{Redirect: &elb.Redirect{
			Status: 302, Protocol: "#{protocol}", Host: "other", Port: "#{port}", Path: "/#{path}", Query: "#{query}"}}},
	))
	port := strings.TrimPrefix(c.url(0), "http://"+c.nodes[0].Addr().String())
	for path, want := range map[string]string{
		"/old/a?b=c": "https://new.shop:8443/new/old/a?b=c&from=old",
		"/keep?b=c":  "http://other" + port + "/keep?b=c",
	} {
		req := newRequest(t, http.MethodGet, c.url(0)+path, nil)
		req.Host = "shop"
		a := do(t, c.client, req)
		if got := a.header.Get("Location"); got != want || a.status/100 != 3 {
			t.Errorf("%s: status %d to %q, want %q", path, a.status, got, want)
		}
	}
}

func redirectPort(t *T) {
	c := newCloud(t, func(o *cloudOptions) {
		o.lb.Default = elb.Action{Redirect: &elb.Redirect{Status: 301, Protocol: "HTTPS", Host: "h", Port: "443", Path: "/#{path}", Query: "#{query}"}}
	})
	if got := c.get(0, "/").header.Get("Location"); got != "https://h:443/" {
		t.Errorf("to %q, want https://h:443/", got)
	}
}

func actionsLogged(t *T) {
	target := startTarget(t, scripted.Echo)
	c := newCloud(t, withRules(
		elb.Rule{Paths: []string{"/fixed"}, Action: says("x")},
		elb.Rule{Paths: []string{"/redirect"}, Action: elb.Action{Redirect: &elb.Redirect{
			Status: 301, Protocol: "HTTPS", Host: "h", Port: "8443", Path: "/", Query: ""}}},
	), func(o *cloudOptions) { o.lb.Default = forward(frontGroup) })
	c.serve(target)
	for i, path := range []string{"/fixed", "/redirect", "/"} {
		c.get(0, path)
		c.wait(t, i+1) // or a later one might be logged first
	}
	got := map[string]accesslog.Line{}
	for _, l := range c.wait(t, 3) {
		got[l.Path] = l
	}
	for path, want := range map[string]struct {
		rule   int
		action string
	}{"/fixed": {1, "fixed-response"}, "/redirect": {2, "redirect"}, "/": {0, "forward"}} {
		if l := got[path]; l.Rule != want.rule || l.Action != want.action {
			t.Errorf("%s: rule %d, action %q; want %d, %s", path, l.Rule, l.Action, want.rule, want.action)
		}
	}
	e := entry(t, filepath.Join(c.dir, "ns", "app.log"), 1)
	wantColumns(t, e, map[string]string{
		"target:port": "-", "elb_status_code": "301", "target_status_code": "-", "matched_rule_priority": "2",
		"actions_executed": `"redirect"`, "redirect_url": `"https://h:8443/"`, "target_group_arn": "-",
	})
}
