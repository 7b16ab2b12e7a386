package alb

import (
	"net/http"
	"strings"
	"testing"
)

func routingFacts() []fact {
	return []fact{
		{"1", gradeDocumented, guideTroubleshooting, "a request whose connection is refused is not tried on another target", noRetryOnOtherTarget},
		{"1", gradeDocumented, guideTroubleshooting, "a GET on a reused connection that dies before the first byte is not sent again", noRetryOnReusedConnection},
		{"1", gradeDocumented, guideIntroduction, "connections to a target are shared by all clients", connectionsAreShared},
		{"1", gradeUnknown, notPublished, "pool order is a setting: lifo reuses the connection used last, fifo the one idle longest", poolOrder},
		{"1", gradeDocumented, guideTargetGroups, "round robin over the targets", roundRobin},
		{"3", gradeObserved, guideTroubleshooting, "no rule and no default backend: 404", noRule},
		{"8", gradeSource, controllerSource, "hosts and path patterns choose the target group", hostsAndPaths},
	}
}

func noRetryOnOtherTarget(t *testing.T) {
	good := startTarget(t, echo)
	dead := startTarget(t, echo)
	dead.Close()
	f := frontWith(t, []string{dead.addr(), good.addr()}, nil)
	if a := f.get("/"); a.status != http.StatusBadGateway {
		t.Errorf("status %d, want 502", a.status)
	}
	if n := good.conns.Load(); n != 0 {
		t.Errorf("the other target got %d connections, want 0", n)
	}
	f.line().want(t, 502, 0, PhaseConnect, "ECONNREFUSED")
}

func noRetryOnReusedConnection(t *testing.T) {
	target := startTarget(t, func(x *exchangeWith) {
		x.request()
		x.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		x.request() // and close without an answer
	})
	f := frontWith(t, []string{target.addr()}, nil)
	f.get("/")
	if a := f.get("/"); a.status != http.StatusBadGateway {
		t.Errorf("status %d, want 502", a.status)
	}
	if c, r := target.conns.Load(), target.requests.Load(); c != 1 || r != 2 {
		t.Errorf("target saw %d connections and %d requests, want 1 and 2", c, r)
	}
	l := f.lines(2)[1]
	l.want(t, 502, 0, PhaseWait, ErrorEOF)
	if !l.Reused {
		t.Error("log: not reused")
	}
}

func connectionsAreShared(t *testing.T) {
	target := startTarget(t, echo)
	f := frontWith(t, []string{target.addr()}, nil)
	for range 5 { // five client connections: front's client keeps none
		f.get("/")
	}
	if n := target.conns.Load(); n != 1 {
		t.Errorf("target saw %d connections, want 1", n)
	}
}

func poolOrder(t *testing.T) {
	for order, want := range map[PoolOrder]string{PoolLIFO: "1", PoolFIFO: "2"} {
		release := make(chan struct{})
		target := startTarget(t, func(x *exchangeWith) {
			for r := x.request(); r != nil; r = x.request() {
				if r.URL.Path == "/hold" {
					<-release
				}
				x.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Conn: " + string(rune('0'+x.number)) + "\r\n\r\nok")
			}
		})
		f := frontWith(t, []string{target.addr()}, func(s *Settings, _ *model) { s.PoolOrder = order })
		held := make(chan answer)
		go func() { held <- f.get("/hold") }() // connection 1
		eventually(t, "held request", func() bool { return target.requests.Load() == 1 })
		second := f.get("/") // connection 2 becomes idle ...
		if got := second.header.Get("X-Conn"); got != "2" {
			t.Fatalf("second request on connection %s, want 2", got)
		}
		close(release)
		<-held // ... then connection 1: the order of use is 2, 1
		eventually(t, "idle connections", func() bool { i, _ := f.pool(target.addr()).size(); return i == 2 })
		if got := f.get("/").header.Get("X-Conn"); got != want {
			t.Errorf("%s: connection %s, want %s", order, got, want)
		}
	}
}

func roundRobin(t *testing.T) {
	a, b := startTarget(t, echo), startTarget(t, echo)
	f := frontWith(t, []string{a.addr(), b.addr()}, nil)
	for range 6 {
		f.get("/")
	}
	if a.requests.Load() != 3 || b.requests.Load() != 3 {
		t.Errorf("targets got %d and %d requests, want 3 and 3", a.requests.Load(), b.requests.Load())
	}
}

func noRule(t *testing.T) {
	f := frontWith(t, nil, func(_ *Settings, m *model) { m.rules[0].paths = []string{"/only"} })
	if a := f.get("/other"); a.status != http.StatusNotFound {
		t.Errorf("status %d, want 404", a.status)
	}
	f.line().want(t, 404, 0, PhaseRoute, ErrorNoRule)
}

func hostsAndPaths(t *testing.T) {
	named := func(name string) string {
		return startTarget(t, func(x *exchangeWith) {
			for x.request() != nil {
				x.say("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n" + name)
			}
		}).addr()
	}
	f := frontWith(t, nil, func(_ *Settings, m *model) {
		m.groups = map[string]groupModel{"a": {targets: []string{named("a")}}, "b": {targets: []string{named("b")}}, "c": {targets: []string{named("c")}}}
		m.rules = []ruleModel{
			{host: "*.example.com", paths: []string{"/x", "/x/*"}, group: "a"},
			{paths: []string{"/img/?.png"}, group: "b"},
		}
		m.hasFallback, m.fallback = true, "c"
	})
	for _, c := range []struct{ host, path, want string }{
		{"www.example.com", "/x", "a"},
		{"WWW.Example.COM:80", "/x/y?z=1", "a"},
		{"www.example.com", "/xy", "c"},
		{"example.com", "/x", "c"},
		{"other", "/img/1.png?q", "b"},
		{"other", "/img/12.png", "c"},
	} {
		req, err := http.NewRequest(http.MethodGet, f.url+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = c.host
		if a := f.do(req); a.body != c.want {
			t.Errorf("%s%s went to %q, want %s", c.host, c.path, a.body, c.want)
		}
	}
	// The absolute form of a request target is matched by its path.
	got := f.raw("GET http://www.example.com/x HTTP/1.1\r\nHost: www.example.com\r\nConnection: close\r\n\r\n")
	if !strings.HasSuffix(got, "\r\n\r\na") {
		t.Errorf("absolute form: %q, want a", got)
	}
}

func TestMatchPattern(t *testing.T) {
	for _, c := range []struct {
		pattern, s string
		want       bool
	}{
		{"/*", "/", true}, {"/*", "*", false}, {"/", "/", true}, {"/", "/a", false},
		{"/a*c", "/abc", true}, {"/a*c", "/abcb", false}, {"/a*c", "/acac", true}, {"*a*b*", "xaxbx", true},
		{"/?", "/", false}, {"", "", true}, {"*", "", true}, {"a**b", "ab", true},
	} {
		if got := matchPattern(c.pattern, c.s); got != c.want {
			t.Errorf("matchPattern(%q, %q) = %v", c.pattern, c.s, got)
		}
	}
}
