package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"lameduck/clusters/alb/accesslog"
	"lameduck/clusters/alb/scripted"
)

func TestUnreachable(t *testing.T) {
	t.Parallel()
	f := frontWith(t, []string{"198.18.0.99:80"}, func(w *world) {
		w.pool.Dial = func(context.Context, string, time.Duration) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EHOSTUNREACH)}
		}
	})
	if a := f.get("/"); a.status != http.StatusBadGateway {
		t.Errorf("status %d, want 502", a.status)
	}
	wantLine(t, f.line(), 502, 0, accesslog.PhaseConnect, "EHOSTUNREACH")
}

func TestOwnShortage(t *testing.T) {
	t.Parallel()
	f := frontWith(t, []string{"198.18.0.99:80"}, func(w *world) {
		w.pool.Dial = func(context.Context, string, time.Duration) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("socket", syscall.EMFILE)}
		}
	})
	if a := f.get("/"); a.status != http.StatusInternalServerError {
		t.Errorf("status %d, want 500", a.status)
	}
	wantLine(t, f.line(), 500, 0, accesslog.PhaseConnect, "EMFILE")
}

func TestMalformedAnswers(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"hello\r\n\r\n",
		"HTTP/1.1 2x0 OK\r\n\r\n",
		"HTTP/1.1 099 Low\r\n\r\n",
		"HTTP/2.0 200 OK\r\n\r\n",
		"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
		"HTTP/1.1 200 OK\r\nBad Name: x\r\n\r\n",
		"HTTP/1.1 200 OK\r\nX: a\x00b\r\n\r\n",
		"HTTP/1.1 200 OK\r\nX: a\r\n folded\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
		"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", // nobody asked for it
		strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 20) + "HTTP/1.1 200 OK\r\n\r\n",
		"\x16\x03\x01\x02\x00\x01\n\n",
	} {
		target := startTarget(t, scripted.Once(bad))
		f := frontWith(t, []string{target.Address()}, nil)
		if a := f.get("/"); a.status != http.StatusBadGateway {
			t.Errorf("%q: status %d, want 502", bad, a.status)
		}
		wantLine(t, f.line(), 502, 0, accesslog.PhaseWait, accesslog.ErrorMalformed)
	}
}

func TestBigAnswerHead(t *testing.T) {
	t.Parallel()
	head := func(size int) string {
		const start, end = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Big: ", "\r\n\r\n"
		return start + strings.Repeat("x", size-len(start)-len(end)) + end + "ok"
	}
	for size, want := range map[int]int{32 << 10: 200, 32<<10 + 1: 502} {
		target := startTarget(t, scripted.Once(head(size)))
		f := frontWith(t, []string{target.Address()}, nil)
		if a := f.get("/"); a.status != want {
			t.Errorf("%d bytes: status %d, want %d", size, a.status, want)
		}
		if want == 502 {
			wantLine(t, f.line(), 502, 0, accesslog.PhaseWait, accesslog.ErrorHeaderTooLarge)
		}
	}
}

func TestNoTarget(t *testing.T) {
	t.Parallel()
	f := frontWith(t, nil, nil)
	a := f.get("/")
	if a.status != http.StatusServiceUnavailable || a.header.Get("Server") != "awselb/2.0" {
		t.Errorf("status %d from %s, want 503 from awselb/2.0", a.status, a.header.Get("Server"))
	}
	l := f.line()
	wantLine(t, l, 503, 0, accesslog.PhaseRoute, accesslog.ErrorNoTarget)
	if l.Group != "ns/app:80" {
		t.Errorf("log: group %q", l.Group)
	}
}

func TestShortBody(t *testing.T) {
	t.Parallel()
	target := startTarget(t, func(x *scripted.Exchange) {
		x.Request()
		x.Say("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
		x.Request() // until the load balancer closes
	})
	f := frontWith(t, []string{target.Address()}, func(w *world) { w.lim.Idle = 50 * time.Millisecond })
	a := f.get("/")
	if a.status != 200 || a.body != "hello" || !errors.Is(a.err, io.ErrUnexpectedEOF) {
		t.Errorf("client saw status %d, body %q, error %v; want 200, hello, unexpected EOF", a.status, a.body, a.err)
	}
	l := f.line()
	wantLine(t, l, 504, 200, accesslog.PhaseBody, "ETIMEDOUT")
	if l.Sent != 5 {
		t.Errorf("log: sent %d, want 5", l.Sent)
	}
}

func TestBrokenBody(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		head string
		end  func(*scripted.Exchange)
		want string
	}{
		"FIN, length":  {"Content-Length: 10\r\n\r\nhello", func(x *scripted.Exchange) { x.Close() }, accesslog.ErrorEOF},
		"FIN, chunked": {"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", func(x *scripted.Exchange) { x.Close() }, accesslog.ErrorEOF},
		"bad chunk":    {"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n", func(x *scripted.Exchange) { x.Close() }, accesslog.ErrorMalformed},
		"long, FIN":    {"Content-Length: 100000\r\n\r\nhello", func(x *scripted.Exchange) { x.Close() }, accesslog.ErrorEOF},
	} {
		target := startTarget(t, func(x *scripted.Exchange) {
			x.Request()
			x.Say("HTTP/1.1 200 OK\r\n" + c.head)
			c.end(x)
		})
		f := frontWith(t, []string{target.Address()}, nil)
		if a := f.get("/"); a.status != 200 || a.body != "hello" || a.err == nil {
			t.Errorf("%s: client saw status %d, body %q, error %v", name, a.status, a.body, a.err)
		}
		wantLine(t, f.line(), 502, 200, accesslog.PhaseBody, c.want)
	}
	// RST may overtake the body in the kernel, so only the log is certain.
	reset := make(chan struct{})
	target := startTarget(t, func(x *scripted.Exchange) {
		x.Request()
		x.Say("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
		<-reset
		x.Reset()
	})
	f := frontWith(t, []string{target.Address()}, nil)
	resp, err := f.client.Get(f.url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	close(reset)
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("RST: body is complete")
	}
	wantLine(t, f.line(), 502, 200, accesslog.PhaseBody, "ECONNRESET")
}

func TestClientGoes(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	target := startTarget(t, func(x *scripted.Exchange) {
		x.Request()
		x.Request() // the load balancer gives the connection up
		close(ended)
	})
	f := frontWith(t, []string{target.Address()}, nil)
	c := f.dial()
	if _, err := io.WriteString(c, "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "request", func() bool { return target.Requests.Load() == 1 })
	c.Close()
	<-ended
	wantLine(t, f.line(), statusClientClosed, 0, accesslog.PhaseWait, accesslog.ErrorClientClosed)
}

func TestClientGoesSending(t *testing.T) {
	t.Parallel()
	got := make(chan struct{})
	target := startTarget(t, func(x *scripted.Exchange) {
		if _, err := x.Reader.ReadString('x'); err == nil { // the body's first byte
			close(got)
		}
		_, _ = io.Copy(io.Discard, x.Reader)
	})
	f := frontWith(t, []string{target.Address()}, nil)
	c := f.dial()
	if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nx"); err != nil {
		t.Fatal(err)
	}
	<-got
	c.Close()
	l := f.line()
	wantLine(t, l, statusClientClosed, 0, accesslog.PhaseWait, accesslog.ErrorClientClosed)
	if l.Received != 1 {
		t.Errorf("log: received %d, want 1", l.Received)
	}
}

func TestTooManyForwarded(t *testing.T) {
	t.Parallel()
	target := startTarget(t, scripted.Echo)
	f := frontWith(t, []string{target.Address()}, nil)
	for n, want := range map[int]int{30: 200, 31: 463} {
		req, err := http.NewRequest(http.MethodGet, f.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Forwarded-For", strings.TrimSuffix(strings.Repeat("198.18.0.1, ", n), ", "))
		if a := f.do(req); a.status != want {
			t.Errorf("%d addresses: status %d, want %d", n, a.status, want)
		}
	}
}

func TestRefusedRequests(t *testing.T) {
	t.Parallel()
	target := startTarget(t, scripted.Echo)
	f := frontWith(t, []string{target.Address()}, nil)
	for request, want := range map[string]int{
		"GET / HTTP/1.1\r\n\r\n":                                                                              400,
		"GET / HTTP/1.1\r\nHost: x\r\nbad line\r\n\r\n":                                                       400,
		"GET / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 16<<10) + "\r\n\r\n":                         400,
		"GET / HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("X: "+strings.Repeat("x", 8<<10)+"\r\n", 9) + "\r\n": 400,
		"CONNECT example.com:80 HTTP/1.1\r\nHost: x\r\n\r\n":                                                  400,
		"TRACE / HTTP/1.1\r\nHost: x\r\n\r\n":                                                                 405,
		"GET /" + strings.Repeat("x", 16<<10) + " HTTP/1.1\r\nHost: x\r\n\r\n":                                414,
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n":                                       501,
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":                                                                    505,
		"GET / HTTP/3.0\r\nHost: x\r\n\r\n":                                                                   505,
	} {
		c := f.dial()
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatal(err)
		}
		status := make([]byte, len("HTTP/1.1 400"))
		if _, err := io.ReadFull(c, status); err != nil {
			t.Fatalf("%.40q: %v", request, err)
		}
		if got := string(status); got != fmt.Sprintf("HTTP/1.1 %d", want) {
			t.Errorf("%.40q: %s, want %d", request, got, want)
		}
	}
	if n := target.Requests.Load(); n != 0 {
		t.Errorf("target got %d requests, want 0", n)
	}
}

func TestBodyStalls(t *testing.T) {
	t.Parallel()
	target := startTarget(t, scripted.Echo)
	f := frontWith(t, []string{target.Address()}, func(w *world) { w.lim.Idle = 100 * time.Millisecond })
	got := f.raw("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhello")
	if !strings.HasPrefix(got, "HTTP/1.1 408 ") {
		t.Errorf("got %q", got)
	}
	wantLine(t, f.line(), 408, 0, accesslog.PhaseWait, accesslog.ErrorClientIdle)
}

func TestOwnBadGateway(t *testing.T) {
	t.Parallel()
	target := startTarget(t, scripted.Once("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 4\r\n\r\nmine"))
	f := frontWith(t, []string{target.Address()}, nil)
	if a := f.get("/"); a.status != 502 || a.body != "mine" {
		t.Errorf("status %d, body %q", a.status, a.body)
	}
	wantLine(t, f.line(), 502, 502, accesslog.PhaseDone, "")
}
