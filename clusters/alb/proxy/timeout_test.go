package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lameduck/clusters/alb/accesslog"
)

// fullBacklog is a listening socket that answers no further SYN: its backlog
// of one is taken.
func fullBacklog(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(sa.(*unix.SockaddrInet4).Port))
	for range 8 {
		c, err := net.DialTimeout("tcp", addr, 200*time.Millisecond)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { c.Close() })
	}
	t.Fatal("backlog does not fill")
	return ""
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
	target := startTarget(t, func(x *exchangeWith) {
		x.request()
		x.request() // silence until the load balancer closes
	})
	f := frontWith(t, []string{target.addr()}, func(w *world) { w.lim.Idle = 50 * time.Millisecond })
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
	target := startTarget(t, func(x *exchangeWith) {
		x.request()
		x.say(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", resetN))
		tick := time.NewTicker(resetGap)
		defer tick.Stop()
		for range resetN {
			<-tick.C
			x.say("x")
		}
		x.request()
	})
	f := frontWith(t, []string{target.addr()}, func(w *world) { w.lim.Idle = resetIdle })
	if a := f.get("/"); a.status != 200 || a.body != strings.Repeat("x", resetN) || a.err != nil {
		t.Errorf("status %d, body %q, %v", a.status, a.body, a.err)
	}
	wantLine(t, f.line(), 200, 200, accesslog.PhaseDone, "")
}

func TestUploadResetsIdle(t *testing.T) {
	t.Parallel()
	target := startTarget(t, echo)
	f := frontWith(t, []string{target.addr()}, func(w *world) { w.lim.Idle = resetIdle })
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
	target := startTarget(t, func(x *exchangeWith) {
		echo(x)
		close(ended)
	})
	f := frontWith(t, []string{target.addr()}, func(w *world) { w.lim.Idle = 50 * time.Millisecond })
	f.get("/")
	<-ended
	if idle, busy := f.pool().Size(); idle != 0 || busy != 0 {
		t.Errorf("pool has %d idle and %d busy connections, want none", idle, busy)
	}
}

func TestIdleClientConnection(t *testing.T) {
	t.Parallel()
	target := startTarget(t, echo)
	f := frontWith(t, []string{target.addr()}, func(w *world) { w.lim.Idle = 50 * time.Millisecond })
	// No Connection: close, and yet the read ends.
	if got := f.raw("GET / HTTP/1.1\r\nHost: x\r\n\r\n"); !strings.HasSuffix(got, "ok") {
		t.Errorf("got %q", got)
	}
}

func TestClientKeepAlive(t *testing.T) {
	t.Parallel()
	target := startTarget(t, echo)
	f := frontWith(t, []string{target.addr()}, func(w *world) { w.lim.ClientKeepAlive = time.Nanosecond })
	if got := f.raw("GET / HTTP/1.1\r\nHost: x\r\n\r\n"); !strings.Contains(got, "\r\nConnection: close\r\n") {
		t.Errorf("got %q", got)
	}
}

func TestClosedIdleIsDropped(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*exchangeWith){
		"FIN":          func(x *exchangeWith) { x.Close() },
		"RST":          (*exchangeWith).reset,
		"stray answer": func(x *exchangeWith) { x.say("HTTP/1.1 408 Request Timeout\r\n\r\n") },
	} {
		ended := make(chan struct{}, 2)
		target := startTarget(t, func(x *exchangeWith) {
			x.request()
			x.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			if x.number == 1 {
				end(x)
				ended <- struct{}{}
				x.request()
			}
		})
		f := frontWith(t, []string{target.addr()}, nil)
		f.get("/")
		<-ended // on loopback the other end knows
		if a := f.get("/"); a.status != 200 {
			t.Errorf("%s: status %d, want 200", name, a.status)
		}
		if n := target.conns.Load(); n != 2 {
			t.Errorf("%s: %d connections, want 2", name, n)
		}
	}
}

func TestClosedIdleLeavesPoolAtOnce(t *testing.T) {
	target := startTarget(t, once("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
	f := frontWith(t, []string{target.addr()}, nil)
	f.get("/")
	eventually(t, "empty pool", func() bool {
		idle, busy := f.pool().Size()
		return idle+busy == 0
	})
}

func TestCloseRace(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end  func(*exchangeWith)
		want string
	}{
		"FIN": {func(x *exchangeWith) { x.Close() }, accesslog.ErrorEOF},
		"RST": {(*exchangeWith).reset, "ECONNRESET"},
	} {
		target := startTarget(t, func(x *exchangeWith) {
			x.request()
			c.end(x)
		})
		f := frontWith(t, []string{target.addr()}, nil)
		if a := f.get("/"); a.status != http.StatusBadGateway {
			t.Errorf("%s: status %d, want 502", name, a.status)
		}
		wantLine(t, f.line(), 502, 0, accesslog.PhaseWait, c.want)
	}
}

func TestChangedIdle(t *testing.T) {
	t.Parallel()
	target := startTarget(t, echo)
	f := frontWith(t, []string{target.addr()}, nil)
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
