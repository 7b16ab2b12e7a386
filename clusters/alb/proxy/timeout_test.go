package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"lameduck/clusters/alb/accesslog"
	"lameduck/clusters/alb/scripted"
)

// fullBacklog is a listening socket that answers no further SYN: its backlog
// of one is taken.
func fullBacklog(t *testing.T) string {
	t.Helper()
	addr, stop, err := scripted.FullBacklog()
	t.Cleanup(stop)
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

func TestConnectTimeout(t *testing.T) {
	t.Parallel()
	f := frontWith(t, []string{fullBacklog(t)}, func(w *world) { w.pool.ConnectTimeout = 50 * time.Millisecond })
	if a := f.get("/"); a.status != http.StatusGatewayTimeout {
		t.Errorf("status %d, want 504", a.status)
	}
	l := f.line()
	wantLine(t, l, 504, 0, accesslog.PhaseConnect, "ETIMEDOUT")
	if l.Local != "" || l.Micros.FirstByte != -1 {
		t.Errorf("log: local %q, first byte %d; want none", l.Local, l.Micros.FirstByte)
	}
}

func TestAnswerTimeout(t *testing.T) {
	t.Parallel()
	target := startTarget(t, func(x *scripted.Exchange) {
		x.Request()
		x.Request() // silence until the load balancer closes
	})
	f := frontWith(t, []string{target.Address()}, func(w *world) { w.lim.Idle = 50 * time.Millisecond })
	if a := f.get("/"); a.status != http.StatusGatewayTimeout {
		t.Errorf("status %d, want 504", a.status)
	}
	wantLine(t, f.line(), 504, 0, accesslog.PhaseWait, "ETIMEDOUT")
}

// The two tests of resetting send for longer than the timeout, at gaps far
// below it.
const (
	resetIdle = 1200 * time.Millisecond
	resetGap  = 100 * time.Millisecond
	resetN    = 15
)

func TestBytesResetIdle(t *testing.T) {
	t.Parallel()
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
	f := frontWith(t, []string{target.Address()}, func(w *world) { w.lim.Idle = resetIdle })
	if a := f.get("/"); a.status != 200 || a.body != strings.Repeat("x", resetN) || a.err != nil {
		t.Errorf("status %d, body %q, %v", a.status, a.body, a.err)
	}
	wantLine(t, f.line(), 200, 200, accesslog.PhaseDone, "")
}

func TestUploadResetsIdle(t *testing.T) {
	t.Parallel()
	target := startTarget(t, scripted.Echo)
	f := frontWith(t, []string{target.Address()}, func(w *world) { w.lim.Idle = resetIdle })
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
	req, err := http.NewRequest(http.MethodPost, f.url, body)
	if err != nil {
		t.Fatal(err)
	}
	if a := f.do(req); a.status != 200 || a.body != strings.Repeat("x", resetN) {
		t.Errorf("status %d, body %q", a.status, a.body)
	}
}

func TestIdleTargetConnection(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	target := startTarget(t, func(x *scripted.Exchange) {
		scripted.Echo(x)
		close(ended)
	})
	f := frontWith(t, []string{target.Address()}, func(w *world) { w.lim.Idle = 50 * time.Millisecond })
	f.get("/")
	<-ended
	if idle, busy := f.pool().Size(); idle != 0 || busy != 0 {
		t.Errorf("pool has %d idle and %d busy connections, want none", idle, busy)
	}
}

func TestIdleClientConnection(t *testing.T) {
	t.Parallel()
	target := startTarget(t, scripted.Echo)
	f := frontWith(t, []string{target.Address()}, func(w *world) { w.lim.Idle = 50 * time.Millisecond })
	// No Connection: close, and yet the read ends.
	if got := f.raw("GET / HTTP/1.1\r\nHost: x\r\n\r\n"); !strings.HasSuffix(got, "ok") {
		t.Errorf("got %q", got)
	}
}

func TestClientKeepAlive(t *testing.T) {
	t.Parallel()
	target := startTarget(t, scripted.Echo)
	f := frontWith(t, []string{target.Address()}, func(w *world) { w.lim.ClientKeepAlive = time.Nanosecond })
	if got := f.raw("GET / HTTP/1.1\r\nHost: x\r\n\r\n"); !strings.Contains(got, "\r\nConnection: close\r\n") {
		t.Errorf("got %q", got)
	}
}

func TestClosedIdleIsDropped(t *testing.T) {
	t.Parallel()
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
		f := frontWith(t, []string{target.Address()}, nil)
		f.get("/")
		<-ended // on loopback the other end knows
		if a := f.get("/"); a.status != 200 {
			t.Errorf("%s: status %d, want 200", name, a.status)
		}
		if n := target.Conns.Load(); n != 2 {
			t.Errorf("%s: %d connections, want 2", name, n)
		}
	}
}

func TestClosedIdleLeavesPoolAtOnce(t *testing.T) {
	target := startTarget(t, scripted.Once("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
	f := frontWith(t, []string{target.Address()}, nil)
	f.get("/")
	eventually(t, "empty pool", func() bool {
		idle, busy := f.pool().Size()
		return idle+busy == 0
	})
}

func TestCloseRace(t *testing.T) {
	t.Parallel()
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
		f := frontWith(t, []string{target.Address()}, nil)
		if a := f.get("/"); a.status != http.StatusBadGateway {
			t.Errorf("%s: status %d, want 502", name, a.status)
		}
		wantLine(t, f.line(), 502, 0, accesslog.PhaseWait, c.want)
	}
}

func TestChangedIdle(t *testing.T) {
	t.Parallel()
	target := startTarget(t, scripted.Echo)
	f := frontWith(t, []string{target.Address()}, nil)
	old := f.dial()
	br := bufio.NewReader(old)
	use := func() {
		t.Helper()
		if _, err := io.WriteString(old, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatal(err)
		}
	}
	use()
	f.l.SetLimits(Limits{Idle: 50 * time.Millisecond})
	use() // the old connection lives on
	if got := f.raw("GET / HTTP/1.1\r\nHost: x\r\n\r\n"); !strings.HasSuffix(got, "ok") {
		t.Errorf("new connection got %q", got)
	}
}
