package load

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lameduck/harness"
)

// attackSpec is an attack of 200 requests per second that lasts for limit.
func attackSpec(url string, limit time.Duration) harness.AttackSpec {
	return harness.AttackSpec{
		Target: harness.Target{URL: url},
		Load: harness.Load{
			Rate: 200, Connections: harness.ConnectionsPooled, Timeout: harness.Dur(30 * time.Second),
		},
		Anchor: harness.NewClock().Anchor(), Limit: harness.Dur(limit), IDPrefix: "r",
	}
}

// attack runs a Local attack and checks what must hold for each.
func attack(t *testing.T, ctx context.Context, spec harness.AttackSpec) ([]harness.Request, harness.AttackStats) {
	t.Helper()
	var requests []harness.Request
	ids := map[string]bool{}
	stats, err := Local{}.Attack(ctx, spec, func(r harness.Request) {
		if ids[r.ID] {
			t.Errorf("request %s is there twice", r.ID)
		}
		ids[r.ID] = true
		if r.Attempts > 1 {
			t.Errorf("request %s used %d connections", r.ID, r.Attempts)
		}
		if r.Sent < r.Planned || r.Latency <= 0 {
			t.Errorf("request %s was planned for %s, sent at %s and took %s", r.ID, r.Planned, r.Sent, r.Latency)
		}
		requests = append(requests, r)
	})
	if err != nil {
		t.Fatal(err)
	}
	if stats.Sent+stats.Streams != len(requests) {
		t.Errorf("stats tell of %d requests and %d streams, there are %d", stats.Sent, stats.Streams, len(requests))
	}
	return requests, stats
}

func count(requests []harness.Request) map[harness.Outcome]int {
	counts := map[harness.Outcome]int{}
	for _, r := range requests {
		counts[r.Outcome]++
	}
	return counts
}

// TestPlainRequest wants that what is sent is a request as any client sends it.
func TestPlainRequest(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	raw := make(chan string, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(30 * time.Second))
		var sent strings.Builder
		in := bufio.NewReader(io.TeeReader(c, &sent))
		for line := "start"; strings.TrimSpace(line) != "" && err == nil; {
			line, err = in.ReadString('\n')
		}
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
		io.Copy(io.Discard, in) // until the client closes
		raw <- sent.String()
	}()
	attack(t, t.Context(), attackSpec("http://"+l.Addr().String()+"/path?q=1", time.Millisecond))
	want := "GET /path?q=1 HTTP/1.1\r\nHost: " + l.Addr().String() + "\r\nUser-Agent: lameduck\r\nX-Lameduck-Request: r0\r\n\r\n"
	if got := <-raw; got != want {
		t.Errorf("sent %q, want %q", got, want)
	}
}

// number is a request's number in its stream.
func number(t *testing.T, id string) int {
	n, err := strconv.Atoi(strings.TrimLeft(id, "rc"))
	if err != nil {
		t.Errorf("id %q: want a number after r or rc", id)
	}
	return n
}

// TestOutcomes has a server fail requests in every way, and wants each of them
// counted as what it is, on new connections and on reused ones.
func TestOutcomes(t *testing.T) {
	for _, connections := range []harness.Connections{harness.ConnectionsPooled, harness.ConnectionsNew, harness.ConnectionsLongLived} {
		t.Run(string(connections), func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/control" {
					echo(w, r)
					return
				}
				n := number(t, r.Header.Get(harness.RequestIDHeader))
				misdeeds[n%len(misdeeds)].do(w, r)
			}))
			defer server.Close()
			const each = 6
			n := each * len(misdeeds)
			spec := attackSpec(server.URL, time.Duration(n)*5*time.Millisecond)
			spec.Load.Connections, spec.Load.Timeout = connections, harness.Dur(3*time.Second)
			if connections == harness.ConnectionsLongLived {
				spec.Load.LongLived = 4
			}
			spec.Target.ControlURL, spec.Load.ControlRate = server.URL+"/control", 20
			requests, stats := attack(t, t.Context(), spec)

			control := 0
			for _, r := range requests {
				if r.Control {
					control++
					if r.Outcome != harness.OutcomeOK {
						t.Errorf("control request %s: %s %s", r.ID, r.Outcome, r.Error)
					}
					continue
				}
				want := misdeeds[number(t, r.ID)%len(misdeeds)].want
				if r.Outcome != want {
					t.Errorf("request %s: %s (%s), want %s", r.ID, r.Outcome, r.Error, want)
				}
				if r.Attempts != 1 {
					t.Errorf("request %s used %d connections", r.ID, r.Attempts)
				}
				if connections == harness.ConnectionsNew && r.Reused {
					t.Errorf("request %s reused a connection", r.ID)
				}
			}
			if wantControl := (n*20 + 199) / 200; stats.Sent != n+control || control != wantControl {
				t.Errorf("%d requests and %d to the control target, want %d and %d", stats.Sent-control, control, n, wantControl)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	requests, _ := attack(t, t.Context(), attackSpec("http://"+l.Addr().String(), 100*time.Millisecond))
	if got := count(requests); len(requests) != 20 || got[harness.OutcomeRefused] != 20 {
		t.Errorf("%v, want 20 refused", got)
	}
	for _, r := range requests {
		if r.Attempts != 0 || r.Status != 0 || r.Error == "" {
			t.Errorf("%+v: want no connection, no status and an error", r)
		}
	}
}

// TestOpenLoop wants that requests are sent on time to a server that answers
// none before the last one has come.
func TestOpenLoop(t *testing.T) {
	const n = 100
	var come atomic.Int32
	all := make(chan struct{})
	ctx := t.Context() // ends before Cleanup
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if come.Add(1) == n {
			close(all)
		}
		select {
		case <-all:
		case <-ctx.Done():
		}
		echo(w, r)
	}))
	t.Cleanup(server.Close)
	requests, _ := attack(t, t.Context(), attackSpec(server.URL, n*5*time.Millisecond))
	if got := count(requests); len(requests) != n || got[harness.OutcomeOK] != n {
		t.Errorf("%v, want %d ok", got, n)
	}
}

func TestConnections(t *testing.T) {
	for _, connections := range []harness.Connections{harness.ConnectionsPooled, harness.ConnectionsNew} {
		var opened atomic.Int32
		server := httptest.NewUnstartedServer(http.HandlerFunc(echo))
		server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
			if s == http.StateNew {
				opened.Add(1)
			}
		}
		server.Start()
		spec := attackSpec(server.URL, 500*time.Millisecond)
		spec.Load.Connections = connections
		requests, _ := attack(t, t.Context(), spec)
		server.Close()
		reused := 0
		for _, r := range requests {
			if r.Reused {
				reused++
			}
		}
		if got := count(requests); got[harness.OutcomeOK] != 100 {
			t.Errorf("%s: %v, want 100 ok", connections, got)
		}
		switch {
		case connections == harness.ConnectionsNew && (reused != 0 || opened.Load() != 100):
			t.Errorf("new: %d of 100 requests reused a connection, the server saw %d", reused, opened.Load())
		case connections == harness.ConnectionsPooled && (reused == 0 || int(opened.Load()) < 100-reused):
			t.Errorf("pooled: %d of 100 requests reused a connection, the server saw %d", reused, opened.Load())
		}
	}
}

// TestNodesInTurn has two nodes, and a name that does not exist: it is not
// looked up.
func TestNodesInTurn(t *testing.T) {
	var served [2]atomic.Int32
	spec := attackSpec("http://lb.invalid", 500*time.Millisecond)
	spec.Load.Connections = harness.ConnectionsNew
	for i := range served {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			served[i].Add(1)
			echo(w, r)
		}))
		defer server.Close()
		spec.Target.Nodes = append(spec.Target.Nodes, server.Listener.Addr().String())
	}
	requests, _ := attack(t, t.Context(), spec)
	if got := count(requests); got[harness.OutcomeOK] != 100 {
		t.Errorf("%v, want 100 ok", got)
	}
	if a, b := served[0].Load(), served[1].Load(); a != b {
		t.Errorf("the nodes served %d and %d connections, want the same", a, b)
	}
}

// TestStop ends the context in the middle of an attack without an end.
func TestStop(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var come atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if come.Add(1) == 50 {
			stop()
		}
		<-ctx.Done() // so that all of them are in flight when it ends
		echo(w, r)
	}))
	defer server.Close()
	requests, stats := attack(t, ctx, attackSpec(server.URL, time.Hour))
	if len(requests) != int(come.Load()) || len(requests) < 50 {
		t.Errorf("%d requests recorded, the server got %d, want the same and at least 50", len(requests), come.Load())
	}
	if got := count(requests); got[harness.OutcomeOK] != len(requests) {
		t.Errorf("%v, want all ok", got)
	}
	if stats.Elapsed <= 0 || stats.Elapsed >= time.Hour {
		t.Errorf("sending took %s", stats.Elapsed)
	}

	// A context that has ended already is not an error either.
	requests, stats = attack(t, ctx, attackSpec(server.URL, time.Hour))
	if len(requests) != 0 || stats.Sent != 0 {
		t.Errorf("%d requests after the end", len(requests))
	}
}

// TestPlan wants each stream's requests planned evenly, on the trial's clock.
func TestPlan(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(echo))
	defer server.Close()
	spec := attackSpec(server.URL, 250*time.Millisecond)
	spec.Target.ControlURL, spec.Load.ControlRate = server.URL, 50
	clock := harness.NewClock()
	spec.Anchor = clock.Anchor()
	spec.Anchor.Wall = spec.Anchor.Wall.Add(-time.Hour)
	if spec.Anchor.Monotonic != 0 {
		spec.Anchor.Monotonic -= time.Hour.Nanoseconds()
	}
	began := clock.Now()
	requests, stats := attack(t, t.Context(), spec)
	planned := map[string]time.Duration{}
	for _, r := range requests {
		planned[r.ID] = r.Planned
		if r.Control != strings.HasPrefix(r.ID, "rc") {
			t.Errorf("request %s: control is %v", r.ID, r.Control)
		}
		if ended := r.Sent + r.Latency; ended > time.Hour+clock.Now() || r.Planned < time.Hour+began-time.Second {
			t.Errorf("request %s planned at %s and ended at %s: not on the trial's clock", r.ID, r.Planned, ended)
		}
	}
	first := planned["r0"]
	for n := range 50 {
		if got, want := planned[fmt.Sprint("r", n)]-first, time.Duration(n)*5*time.Millisecond; got != want {
			t.Errorf("request r%d is planned %s after the first, want %s", n, got, want)
		}
	}
	for n := range 13 {
		if got, want := planned[fmt.Sprint("rc", n)]-first, time.Duration(n)*20*time.Millisecond; got != want {
			t.Errorf("request rc%d is planned %s after the first, want %s", n, got, want)
		}
	}
	if stats.Sent != 50+13 || stats.Elapsed < spec.Limit.Duration {
		t.Errorf("%d requests in %s, want 63 in at least %s", stats.Sent, stats.Elapsed, spec.Limit)
	}
}
