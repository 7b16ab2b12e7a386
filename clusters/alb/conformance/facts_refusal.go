package conformance

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"lameduck/clusters/alb/accesslog"
	"lameduck/clusters/alb/scripted"
)

func refusalFacts() []Fact {
	return []Fact{
		{"3-460", 3, Documented, guideTroubleshooting, "the client goes away while its request is handled: 460", clientGoes},
		{"3-460-sending", 3, Documented, guideTroubleshooting, "the client goes away while it sends the body: 460", clientGoesSending},
		{"3-463", 3, Documented, guideTroubleshooting, "more than 30 addresses in X-Forwarded-For: 463", tooManyForwarded},
		{"3-464", 3, Documented, guideTroubleshooting, "gRPC to a target group of HTTP/1.1: 464", wrongProtocol},
		{"3-refused", 3, Documented, guideTroubleshooting, "requests that are not acceptable: 400, 405, 414, 501, 505", refusedRequests},
		{"3-408", 3, Documented, guideTroubleshooting, "a client that stops sending its body: 408", bodyStalls},
	}
}

func clientGoes(t *T) {
	ended := make(chan struct{})
	target := startTarget(t, func(x *scripted.Exchange) {
		x.Request()
		x.Request() // the load balancer gives the connection up
		close(ended)
	})
	f := newFront(t, []string{target.Address()})
	c := f.dial()
	send(t, c, "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
	t.eventually("request", func() bool { return target.Requests.Load() == 1 })
	c.Close()
	wait(t, "end of the connection", ended)
	wantLine(t, f.line(), 460, 0, accesslog.PhaseWait, accesslog.ErrorClientClosed)
}

func clientGoesSending(t *T) {
	got := make(chan struct{})
	target := startTarget(t, func(x *scripted.Exchange) {
		if _, err := x.Reader.ReadString('x'); err == nil { // the body's first byte
			close(got)
		}
		_, _ = io.Copy(io.Discard, x.Reader)
	})
	f := newFront(t, []string{target.Address()})
	c := f.dial()
	send(t, c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nx")
	wait(t, "body at the target", got)
	c.Close()
	l := f.line()
	wantLine(t, l, 460, 0, accesslog.PhaseWait, accesslog.ErrorClientClosed)
	if l.Received != 1 {
		t.Errorf("log: received %d, want 1", l.Received)
	}
}

func tooManyForwarded(t *T) {
	target := startTarget(t, scripted.Echo)
	f := newFront(t, []string{target.Address()})
	for n, want := range map[int]int{30: 200, 31: 463} {
		req := newRequest(t, http.MethodGet, f.url, nil)
		req.Header.Set("X-Forwarded-For", strings.TrimSuffix(strings.Repeat("198.18.0.1, ", n), ", "))
		if a := f.do(req); a.status != want {
			t.Errorf("%d addresses: status %d, want %d", n, a.status, want)
		}
	}
}

func wrongProtocol(t *T) {
	target := startTarget(t, scripted.Echo)
	f := newFront(t, []string{target.Address()}, listenTLS(t))
	f.client = newClient(t, true)
	req := newRequest(t, http.MethodPost, f.url, strings.NewReader("x"))
	req.Header.Set("Content-Type", "application/grpc")
	wantStatus(t, "gRPC to a target group of HTTP/1.1", f.do(req), 464)
	if n := target.Requests.Load(); n != 0 {
		t.Errorf("the target got %d requests, want 0", n)
	}
}

func refusedRequests(t *T) {
	target := startTarget(t, scripted.Echo)
	f := newFront(t, []string{target.Address()})
	for request, want := range map[string]int{
		"GET / HTTP/1.1\r\n\r\n":                                                                              400,
		"GET / HTTP/1.1\r\nHost: x\r\nbad line\r\n\r\n":                                                       400,
		"GET / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 16<<10) + "\r\n\r\n":                         400,
		"GET / HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("X: "+strings.Repeat("x", 8<<10)+"\r\n", 9) + "\r\n": 400,
		"CONNECT example.com:80 HTTP/1.1\r\nHost: x\r\n\r\n":                                                  400,
		"TRACE / HTTP/1.1\r\nHost: x\r\n\r\n":                                                                 405,
		"GET /" + strings.Repeat("x", 16<<10) + " HTTP/1.1\r\nHost: x\r\n\r\n":                                414,
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n":                                       501,
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":                                                                    505, // only HTTPS listeners speak HTTP/2
		"GET / HTTP/3.0\r\nHost: x\r\n\r\n":                                                                   505,
	} {
		c := f.dial()
		send(t, c, request)
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

func bodyStalls(t *T) {
	target := startTarget(t, scripted.Echo)
	f := newFront(t, []string{target.Address()}, idleOf(shortIdle))
	got := f.raw("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhello")
	if !strings.HasPrefix(got, "HTTP/1.1 408 ") {
		t.Errorf("got %q", got)
	}
	wantLine(t, f.line(), 408, 0, accesslog.PhaseWait, accesslog.ErrorClientIdle)
}
