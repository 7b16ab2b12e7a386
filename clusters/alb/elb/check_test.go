package elb

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestCheckRequest(t *testing.T) {
	type seen struct{ from, host, path, agent, connection string }
	got := make(chan seen, 100)
	_, target := served(t, func(_ http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		select {
		case got <- seen{host, r.Host, r.RequestURI, r.UserAgent(), r.Header.Get("Connection")}:
		default:
		}
	})
	w := newWorld(t, wired, func(o *worldOptions) { o.group.HealthCheck.Path = "/h?deep=1" })
	w.register(target)
	w.waitHealth(target, "healthy")
	from := make(map[string]bool)
	for range 2 {
		s := <-got
		from[s.from] = true
		s.from = ""
		if want := (seen{"", target.String(), "/h?deep=1", "ELB-HealthChecker/2.0", "close"}); s != want {
			t.Errorf("%+v, want %+v", s, want)
		}
	}
	for len(from) < 2 { // both nodes check, from their own addresses
		from[(<-got).from] = true
	}
	if !from["127.0.0.1"] || !from["127.0.0.2"] {
		t.Errorf("checks from %v", from)
	}
}

// TestCheckConnections: each check opens a connection and closes it.
func TestCheckConnections(t *testing.T) {
	var mu sync.Mutex
	conns := make(map[net.Conn]http.ConnState)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write(make([]byte, 200<<10)) // more than is read
	}))
	s.Config.ConnState = func(c net.Conn, state http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		conns[c] = state
	}
	s.Start()
	defer s.Close()
	w := newWorld(t, wired)
	target := mustAddr(s.Listener.Addr().String())
	w.register(target)
	eventually(t, "ten connections", func() bool { mu.Lock(); defer mu.Unlock(); return len(conns) >= 10 })
	w.deregister(target)
	eventually(t, "end of all connections", func() bool {
		mu.Lock()
		defer mu.Unlock()
		for _, state := range conns {
			if state != http.StateClosed {
				return false
			}
		}
		return true
	})
}

func TestCheckOutcomes(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)          // before the servers' end, which wait
	const dead = "127.0.0.1:1" // nobody has this port; a free one might be taken meanwhile
	garbage, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer garbage.Close()
	go func() {
		for {
			c, err := garbage.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, "SSH-2.0-x\r\n")
			io.Copy(io.Discard, c)
			c.Close()
		}
	}()
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Location", "/x"); w.WriteHeader(code) }
	}
	address := func(h http.HandlerFunc) string { _, a := served(t, h); return a.String() }
	secure := httptest.NewTLSServer(http.HandlerFunc(ok))
	defer secure.Close()
	codes := []CodeRange{{200, 200}, {300, 399}}
	for _, c := range []struct {
		name, addr string
		protocol   Protocol
		timeout    time.Duration
		want       outcome
	}{
		{"200", address(ok), HTTP, time.Minute, outcome{"", "Health check answered 200"}},
		{"302 is not followed", address(status(302)), HTTP, time.Minute, outcome{"", "Health check answered 302"}},
		{"503", address(status(503)), HTTP, time.Minute, outcome{ReasonResponseCodeMismatch, "Health checks failed with these codes: [503]"}},
		{"204", address(status(204)), HTTP, time.Minute, outcome{ReasonResponseCodeMismatch, "Health checks failed with these codes: [204]"}},
		{"no answer", address(func(http.ResponseWriter, *http.Request) { <-hang }), HTTP, 20 * time.Millisecond, outcome{ReasonTimeout, "Request timed out"}},
		{"refused", dead, HTTP, time.Minute, outcome{ReasonFailedHealthChecks, "connection refused"}},
		{"garbage", garbage.Addr().String(), HTTP, time.Minute, outcome{ReasonFailedHealthChecks, "malformed"}},
		{"TLS", secure.Listener.Addr().String(), HTTPS, time.Minute, outcome{"", "Health check answered 200"}},
		{"no TLS", address(ok), HTTPS, time.Minute, outcome{ReasonFailedHealthChecks, "does not look like a TLS handshake"}},
	} {
		n := newNode(0, netip.MustParseAddr("127.0.0.2"))
		got := checkHTTP(t.Context(), checkRequest{node: n, addr: c.addr, HealthCheck: HealthCheck{Protocol: c.protocol, Path: "/", Timeout: c.timeout, Codes: codes}})
		if got.reason != c.want.reason || !strings.Contains(got.description, c.want.description) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestCheckPort(t *testing.T) {
	_, health := served(t, ok)
	_, traffic := served(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
	w := newWorld(t, wired, func(o *worldOptions) { o.group.HealthCheck.Port = health.Port() })
	w.register(traffic)
	w.waitHealth(traffic, "healthy")
}

func BenchmarkCheck(b *testing.B) {
	s := httptest.NewServer(http.HandlerFunc(ok))
	defer s.Close()
	c := checkRequest{node: newNode(0, netip.MustParseAddr("127.0.0.2")), addr: s.Listener.Addr().String(),
		HealthCheck: HealthCheck{Protocol: HTTP, Path: "/", Timeout: time.Minute, Codes: []CodeRange{{200, 200}}}}
	b.ReportAllocs()
	for b.Loop() {
		if o := checkHTTP(b.Context(), c); o.reason != "" {
			b.Fatal(o)
		}
	}
}
