package alb

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
)

func statusFacts() []fact {
	return []fact{
		{"3", gradeDocumented, guideTroubleshooting, "ICMP unreachable while connecting: 502", unreachable},
		{"3", gradeDocumented, guideTroubleshooting, "malformed answers: 502", malformedAnswers},
		{"3", gradeDocumented, guideTroubleshooting, "an answer's head over 32 KB: 502, under it: passed on", bigAnswerHead},
		{"3", gradeDocumented, guideTroubleshooting, "no registered target: 503", noTarget},
		{"3", gradeSource, controllerSource, "a rule without a Service: 503", noService},
		{"3", gradeDocumented, guideTroubleshooting, "a body shorter than its Content-Length: the client is cut, 504 in the log", shortBody},
		{"3", gradeInferred, guideTroubleshooting, "FIN or RST within a body: the client is cut, 502 in the log", brokenBody},
		{"3", gradeDocumented, guideTroubleshooting, "the client goes away while its request is handled: 460", clientGoes},
		{"3", gradeDocumented, guideTroubleshooting, "the client goes away while it sends the body: 460", clientGoesSending},
		{"3", gradeDocumented, guideTroubleshooting, "more than 30 addresses in X-Forwarded-For: 463", tooManyForwarded},
		{"3", gradeDocumented, guideTroubleshooting, "requests that are not acceptable: 400, 405, 414, 501, 505", refusedRequests},
		{"3", gradeDocumented, guideTroubleshooting, "a client that stops sending its body: 408", bodyStalls},
		{"6", gradeDocumented, guideAccessLogs, "the target's own 502 is passed on and told apart in the log", ownBadGateway},
		{"3", gradeInferred, "our own shortage must not look like the target's", "no descriptor or port left: 500", ownShortage},
	}
}

func unreachable(t *testing.T) {
	f := frontWith(t, []string{"198.18.0.99:80"}, func(s *Settings, _ *model) {
		s.dial = func(context.Context, string, time.Duration) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EHOSTUNREACH)}
		}
	})
	if a := f.get("/"); a.status != http.StatusBadGateway {
		t.Errorf("status %d, want 502", a.status)
	}
	f.line().want(t, 502, 0, PhaseConnect, "EHOSTUNREACH")
}

func ownShortage(t *testing.T) {
	f := frontWith(t, []string{"198.18.0.99:80"}, func(s *Settings, _ *model) {
		s.dial = func(context.Context, string, time.Duration) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("socket", syscall.EMFILE)}
		}
	})
	if a := f.get("/"); a.status != http.StatusInternalServerError {
		t.Errorf("status %d, want 500", a.status)
	}
	f.line().want(t, 500, 0, PhaseConnect, "EMFILE")
}

func malformedAnswers(t *testing.T) {
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
		target := startTarget(t, once(bad))
		f := frontWith(t, []string{target.addr()}, nil)
		if a := f.get("/"); a.status != http.StatusBadGateway {
			t.Errorf("%q: status %d, want 502", bad, a.status)
		}
		f.line().want(t, 502, 0, PhaseWait, ErrorMalformed)
	}
}

func bigAnswerHead(t *testing.T) {
	head := func(size int) string {
		const start, end = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Big: ", "\r\n\r\n"
		return start + strings.Repeat("x", size-len(start)-len(end)) + end + "ok"
	}
	for size, want := range map[int]int{32 << 10: 200, 32<<10 + 1: 502} {
		target := startTarget(t, once(head(size)))
		f := frontWith(t, []string{target.addr()}, nil)
		if a := f.get("/"); a.status != want {
			t.Errorf("%d bytes: status %d, want %d", size, a.status, want)
		}
		if want == 502 {
			f.line().want(t, 502, 0, PhaseWait, ErrorHeaderTooLarge)
		}
	}
}

func noTarget(t *testing.T) {
	f := frontWith(t, nil, nil)
	a := f.get("/")
	if a.status != http.StatusServiceUnavailable || a.header.Get("Server") != "awselb/2.0" {
		t.Errorf("status %d from %s, want 503 from awselb/2.0", a.status, a.header.Get("Server"))
	}
	l := f.line()
	l.want(t, 503, 0, PhaseRoute, ErrorNoTarget)
	if l.Group != "ns/app:80" {
		t.Errorf("log: group %q", l.Group)
	}
}

func noService(t *testing.T) {
	f := frontWith(t, nil, func(_ *Settings, m *model) { m.rules[0].group = "" })
	if a := f.get("/"); a.status != http.StatusServiceUnavailable {
		t.Errorf("status %d, want 503", a.status)
	}
}

func shortBody(t *testing.T) {
	target := startTarget(t, func(x *exchangeWith) {
		x.request()
		x.say("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
		x.request() // until the load balancer closes
	})
	f := frontWith(t, []string{target.addr()}, func(_ *Settings, m *model) { m.idleTimeout = 50 * time.Millisecond })
	a := f.get("/")
	if a.status != 200 || a.body != "hello" || !errors.Is(a.err, io.ErrUnexpectedEOF) {
		t.Errorf("client saw status %d, body %q, error %v; want 200, hello, unexpected EOF", a.status, a.body, a.err)
	}
	l := f.line()
	l.want(t, 504, 200, PhaseBody, "ETIMEDOUT")
	if l.Sent != 5 {
		t.Errorf("log: sent %d, want 5", l.Sent)
	}
}

func brokenBody(t *testing.T) {
	for name, c := range map[string]struct {
		head string
		end  func(*exchangeWith)
		want string
	}{
		"FIN, length":  {"Content-Length: 10\r\n\r\nhello", func(x *exchangeWith) { x.Close() }, ErrorEOF},
		"FIN, chunked": {"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", func(x *exchangeWith) { x.Close() }, ErrorEOF},
		"bad chunk":    {"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n", func(x *exchangeWith) { x.Close() }, ErrorMalformed},
		"long, FIN":    {"Content-Length: 100000\r\n\r\nhello", func(x *exchangeWith) { x.Close() }, ErrorEOF},
	} {
		target := startTarget(t, func(x *exchangeWith) {
			x.request()
			x.say("HTTP/1.1 200 OK\r\n" + c.head)
			c.end(x)
		})
		f := frontWith(t, []string{target.addr()}, nil)
		if a := f.get("/"); a.status != 200 || a.body != "hello" || a.err == nil {
			t.Errorf("%s: client saw status %d, body %q, error %v", name, a.status, a.body, a.err)
		}
		f.line().want(t, 502, 200, PhaseBody, c.want)
	}
	// RST may overtake the body in the kernel, so only the log is certain.
	reset := make(chan struct{})
	target := startTarget(t, func(x *exchangeWith) {
		x.request()
		x.say("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
		<-reset
		x.reset()
	})
	f := frontWith(t, []string{target.addr()}, nil)
	resp, err := f.client.Get(f.url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	close(reset)
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("RST: body is complete")
	}
	f.line().want(t, 502, 200, PhaseBody, "ECONNRESET")
}

func clientGoes(t *testing.T) {
	ended := make(chan struct{})
	target := startTarget(t, func(x *exchangeWith) {
		x.request()
		x.request() // the load balancer gives the connection up
		close(ended)
	})
	f := frontWith(t, []string{target.addr()}, nil)
	c := f.dial()
	if _, err := io.WriteString(c, "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "request", func() bool { return target.requests.Load() == 1 })
	c.Close()
	<-ended
	f.line().want(t, statusClientClosed, 0, PhaseWait, ErrorClientClosed)
}

func clientGoesSending(t *testing.T) {
	got := make(chan struct{})
	target := startTarget(t, func(x *exchangeWith) {
		if _, err := x.br.ReadString('x'); err == nil { // the body's first byte
			close(got)
		}
		_, _ = io.Copy(io.Discard, x.br)
	})
	f := frontWith(t, []string{target.addr()}, nil)
	c := f.dial()
	if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nx"); err != nil {
		t.Fatal(err)
	}
	<-got
	c.Close()
	l := f.line()
	l.want(t, statusClientClosed, 0, PhaseWait, ErrorClientClosed)
	if l.Received != 1 {
		t.Errorf("log: received %d, want 1", l.Received)
	}
}

func tooManyForwarded(t *testing.T) {
	target := startTarget(t, echo)
	f := frontWith(t, []string{target.addr()}, nil)
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

func refusedRequests(t *testing.T) {
	target := startTarget(t, echo)
	f := frontWith(t, []string{target.addr()}, nil)
	for request, want := range map[string]int{
		"GET / HTTP/1.1\r\n\r\n":                                                                              400,
		"GET / HTTP/1.1\r\nHost: x\r\nbad line\r\n\r\n":                                                       400,
		"GET / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 16<<10) + "\r\n\r\n":                         400,
		"GET / HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("X: "+strings.Repeat("x", 8<<10)+"\r\n", 9) + "\r\n": 400,
		"CONNECT example.com:80 HTTP/1.1\r\nHost: x\r\n\r\n":                                                  400,
		"TRACE / HTTP/1.1\r\nHost: x\r\n\r\n":                                                                 405,
		"GET /" + strings.Repeat("x", 16<<10) + " HTTP/1.1\r\nHost: x\r\n\r\n":                                414,
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n":                                       501,
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
	if n := target.requests.Load(); n != 0 {
		t.Errorf("target got %d requests, want 0", n)
	}
}

func bodyStalls(t *testing.T) {
	target := startTarget(t, echo)
	f := frontWith(t, []string{target.addr()}, func(_ *Settings, m *model) { m.idleTimeout = 100 * time.Millisecond })
	got := f.raw("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhello")
	if !strings.HasPrefix(got, "HTTP/1.1 408 ") {
		t.Errorf("got %q", got)
	}
	f.line().want(t, 408, 0, PhaseWait, ErrorClientIdle)
}

func ownBadGateway(t *testing.T) {
	target := startTarget(t, once("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 4\r\n\r\nmine"))
	f := frontWith(t, []string{target.addr()}, nil)
	if a := f.get("/"); a.status != 502 || a.body != "mine" {
		t.Errorf("status %d, body %q", a.status, a.body)
	}
	f.line().want(t, 502, 502, PhaseDone, "")
}
