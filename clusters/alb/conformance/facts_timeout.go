package conformance

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"lameduck/clusters/alb/accesslog"
	"lameduck/clusters/alb/proxy"
	"lameduck/clusters/alb/scripted"
)

func timeoutFacts() []Fact {
	return []Fact{
		{"2-connect", 2, Documented, guideTroubleshooting, "no connection within the connect timeout: 504", connectTimeout},
		{"2-answer", 2, Documented, guideTroubleshooting, "no answer within the idle timeout: 504", answerTimeout},
		{"2-target-resets", 2, Documented, guideAttributes, "any byte from the target starts the idle timeout anew", bytesResetIdle},
		{"2-client-resets", 2, Documented, guideAttributes, "any byte from the client starts the idle timeout anew", uploadResetsIdle},
		{"2-idle-target", 2, Documented, guideAttributes, "an idle connection to a target is closed after the idle timeout", idleTargetConnection},
		{"2-idle-client", 2, Documented, guideAttributes, "an idle client connection is closed after the idle timeout", idleClientConnection},
		{"2-client-keep-alive", 2, Documented, guideAttributes, "after the client keep-alive duration an answer says Connection: close", clientKeepAlive},
		{"2-closed-idle", 2, Documented, guideTroubleshooting, "an idle connection whose close has arrived is not used", closedIdleIsDropped},
		{"2-close-race", 2, Documented, guideTroubleshooting, "a target that closes as the request arrives: 502", closeRace},
		{"2-changed-idle", 2, Inferred, guideAttributes, "a changed idle timeout applies without closing the port", changedIdle},
	}
}

// fullBacklog is a listening socket that answers no further SYN: its backlog
// of one is taken.
func fullBacklog(t *T) string {
	addr, stop, err := scripted.FullBacklog()
	t.Cleanup(stop)
	t.must(err)
	return addr
}

func connectTimeout(t *T) {
	f := newFront(t, []string{fullBacklog(t)}, func(o *frontOptions) { o.pool.ConnectTimeout = 50 * time.Millisecond })
	if a := f.get("/"); a.status != http.StatusGatewayTimeout {
		t.Errorf("status %d, want 504", a.status)
	}
	l := f.line()
	wantLine(t, l, 504, 0, accesslog.PhaseConnect, "ETIMEDOUT")
	if l.Local != "" || l.Micros.FirstByte != -1 {
		t.Errorf("log: local %q, first byte %d; want none", l.Local, l.Micros.FirstByte)
	}
}

func answerTimeout(t *T) {
	target := startTarget(t, func(x *scripted.Exchange) {
		x.Request()
		x.Request() // silence until the load balancer closes
	})
	f := newFront(t, []string{target.Address()}, idleOf(shortIdle))
	if a := f.get("/"); a.status != http.StatusGatewayTimeout {
		t.Errorf("status %d, want 504", a.status)
	}
	wantLine(t, f.line(), 504, 0, accesslog.PhaseWait, "ETIMEDOUT")
}

// shortIdle is an idle timeout that a test waits for. It is also the time a
// client has for its request, on a machine that does other things too.
const shortIdle = time.Second

// The two tests of resetting send for longer than the timeout, at gaps far
// below it.
const (
	resetIdle = 1200 * time.Millisecond
	resetGap  = 100 * time.Millisecond
	resetN    = 15
)

func bytesResetIdle(t *T) {
	target := startTarget(t, func(x *scripted.Exchange) {
		x.Request()
		x.Say(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", resetN))
		tick := time.NewTicker(resetGap)
		defer tick.Stop()
		for range resetN {
			<-tick.C
			x.Say("x")
		}
		x.Request()
	})
	f := newFront(t, []string{target.Address()}, idleOf(resetIdle))
	if a := f.get("/"); a.status != 200 || a.body != strings.Repeat("x", resetN) || a.err != nil {
		t.Errorf("status %d, body %q, %v", a.status, a.body, a.err)
	}
	wantLine(t, f.line(), 200, 200, accesslog.PhaseDone, "")
}

func uploadResetsIdle(t *T) {
	target := startTarget(t, scripted.Echo)
	f := newFront(t, []string{target.Address()}, idleOf(resetIdle))
	body, in := io.Pipe()
	go func() {
		tick := time.NewTicker(resetGap)
		defer tick.Stop()
		for range resetN {
			<-tick.C
			_, _ = in.Write([]byte("x"))
		}
		in.Close()
	}()
	req := newRequest(t, http.MethodPost, f.url, body)
	if a := f.do(req); a.status != 200 || a.body != strings.Repeat("x", resetN) {
		t.Errorf("status %d, body %q", a.status, a.body)
	}
}

func idleTargetConnection(t *T) {
	ended := make(chan struct{})
	target := startTarget(t, func(x *scripted.Exchange) {
		scripted.Echo(x)
		close(ended)
	})
	f := newFront(t, []string{target.Address()}, idleOf(shortIdle))
	f.get("/")
	wait(t, "end of the connection", ended)
	if idle, busy := f.pool().Size(); idle != 0 || busy != 0 {
		t.Errorf("pool has %d idle and %d busy connections, want none", idle, busy)
	}
}

func idleClientConnection(t *T) {
	target := startTarget(t, scripted.Echo)
	f := newFront(t, []string{target.Address()}, idleOf(shortIdle))
	// No Connection: close, and yet the read ends.
	if got := f.raw("GET / HTTP/1.1\r\nHost: x\r\n\r\n"); !strings.HasSuffix(got, "ok") {
		t.Errorf("got %q", got)
	}
}

func clientKeepAlive(t *T) {
	target := startTarget(t, scripted.Echo)
	f := newFront(t, []string{target.Address()}, func(o *frontOptions) { o.limits.ClientKeepAlive = time.Nanosecond })
	if got := f.raw("GET / HTTP/1.1\r\nHost: x\r\n\r\n"); !strings.Contains(got, "\r\nConnection: close\r\n") {
		t.Errorf("got %q", got)
	}
}

func closedIdleIsDropped(t *T) {
	for name, end := range map[string]func(*scripted.Exchange){
		"FIN":          func(x *scripted.Exchange) { x.Close() },
		"RST":          (*scripted.Exchange).Reset,
		"stray answer": func(x *scripted.Exchange) { x.Say("HTTP/1.1 408 Request Timeout\r\n\r\n") },
	} {
		ended := make(chan struct{}, 2)
		target := startTarget(t, func(x *scripted.Exchange) {
			x.Request()
			x.Say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			if x.Number == 1 {
				end(x)
				ended <- struct{}{}
				x.Request()
			}
		})
		f := newFront(t, []string{target.Address()})
		f.get("/")
		wait(t, "end of the connection", ended) // on loopback the other end knows
		if a := f.get("/"); a.status != 200 {
			t.Errorf("%s: status %d, want 200", name, a.status)
		}
		if n := target.Conns.Load(); n != 2 {
			t.Errorf("%s: %d connections, want 2", name, n)
		}
	}
}

func closeRace(t *T) {
	for name, c := range map[string]struct {
		end  func(*scripted.Exchange)
		want string
	}{
		"FIN": {func(x *scripted.Exchange) { x.Close() }, accesslog.ErrorEOF},
		"RST": {(*scripted.Exchange).Reset, "ECONNRESET"},
	} {
		target := startTarget(t, func(x *scripted.Exchange) {
			x.Request()
			c.end(x)
		})
		f := newFront(t, []string{target.Address()})
		if a := f.get("/"); a.status != http.StatusBadGateway {
			t.Errorf("%s: status %d, want 502", name, a.status)
		}
		wantLine(t, f.line(), 502, 0, accesslog.PhaseWait, c.want)
	}
}

func changedIdle(t *T) {
	target := startTarget(t, scripted.Echo)
	f := newFront(t, []string{target.Address()})
	old := f.dial()
	br := bufio.NewReader(old)
	use := func() {
		send(t, old, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		resp, err := http.ReadResponse(br, nil)
		t.must(err)
		_, err = io.Copy(io.Discard, resp.Body)
		t.must(err)
	}
	use()
	f.listener.SetLimits(proxy.Limits{Idle: shortIdle, ClientKeepAlive: time.Hour})
	use() // the old connection lives on
	if got := f.raw("GET / HTTP/1.1\r\nHost: x\r\n\r\n"); !strings.HasSuffix(got, "ok") {
		t.Errorf("new connection got %q", got)
	}
}
