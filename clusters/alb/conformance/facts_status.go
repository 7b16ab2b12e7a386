package conformance

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"lameduck/clusters/alb/accesslog"
	"lameduck/clusters/alb/scripted"
)

func statusFacts() []Fact {
	return []Fact{
		{"3-unreachable", 3, Documented, guideTroubleshooting, "ICMP unreachable while connecting: 502", unreachable},
		{"3-malformed-answer", 3, Documented, guideTroubleshooting, "malformed answers: 502", malformedAnswers},
		{"3-answer-head", 3, Documented, guideTroubleshooting, "an answer's head over 32 KB: 502, under it: passed on", bigAnswerHead},
		{"3-short-body", 3, Documented, guideTroubleshooting, "a body shorter than its Content-Length: the client is cut, 504 in the log", shortBody},
		{"3-broken-body", 3, Inferred, guideTroubleshooting, "FIN or RST within a body: the client is cut, 502 in the log", brokenBody},
		{"3-own-shortage", 3, Inferred, notPublished, "no descriptor or port left: 500, so that our own shortage does not look like the target's", ownShortage},
	}
}

func unreachable(t *T) {
	f := newFront(t, []string{"198.18.0.99:80"}, func(o *frontOptions) {
		o.pool.Dial = func(context.Context, string, time.Duration) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EHOSTUNREACH)}
		}
	})
	if a := f.get("/"); a.status != http.StatusBadGateway {
		t.Errorf("status %d, want 502", a.status)
	}
	wantLine(t, f.line(), 502, 0, accesslog.PhaseConnect, "EHOSTUNREACH")
}

func ownShortage(t *T) {
	f := newFront(t, []string{"198.18.0.99:80"}, func(o *frontOptions) {
		o.pool.Dial = func(context.Context, string, time.Duration) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("socket", syscall.EMFILE)}
		}
	})
	if a := f.get("/"); a.status != http.StatusInternalServerError {
		t.Errorf("status %d, want 500", a.status)
	}
	wantLine(t, f.line(), 500, 0, accesslog.PhaseConnect, "EMFILE")
}

func malformedAnswers(t *T) {
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
		"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
		strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 20) + "HTTP/1.1 200 OK\r\n\r\n",
		"\x16\x03\x01\x02\x00\x01\n\n",
	} {
		target := startTarget(t, scripted.Once(bad))
		f := newFront(t, []string{target.Address()})
		if a := f.get("/"); a.status != http.StatusBadGateway {
			t.Errorf("%q: status %d, want 502", bad, a.status)
		}
		wantLine(t, f.line(), 502, 0, accesslog.PhaseWait, accesslog.ErrorMalformed)
	}
}

func bigAnswerHead(t *T) {
	head := func(size int) string {
		const start, end = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Big: ", "\r\n\r\n"
		return start + strings.Repeat("x", size-len(start)-len(end)) + end + "ok"
	}
	for size, want := range map[int]int{32 << 10: 200, 32<<10 + 1: 502} {
		target := startTarget(t, scripted.Once(head(size)))
		f := newFront(t, []string{target.Address()})
		if a := f.get("/"); a.status != want {
			t.Errorf("%d bytes: status %d, want %d", size, a.status, want)
		}
		if want == 502 {
			wantLine(t, f.line(), 502, 0, accesslog.PhaseWait, accesslog.ErrorHeaderTooLarge)
		}
	}
}

func shortBody(t *T) {
	target := startTarget(t, func(x *scripted.Exchange) {
		x.Request()
		x.Say("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
		x.Request() // until the load balancer closes
	})
	f := newFront(t, []string{target.Address()}, idleOf(shortIdle))
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

func brokenBody(t *T) {
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
		f := newFront(t, []string{target.Address()})
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
		hold(t, reset)
		x.Reset()
	})
	f := newFront(t, []string{target.Address()})
	resp, err := f.client.Do(newRequest(t, http.MethodGet, f.url, nil))
	t.must(err)
	defer resp.Body.Close()
	close(reset)
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("RST: body is complete")
	}
	wantLine(t, f.line(), 502, 200, accesslog.PhaseBody, "ECONNRESET")
}
