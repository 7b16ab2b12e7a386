package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lameduck/clusters/alb/accesslog"
)

// answers reads n answers from a connection.
func answers(t *testing.T, br *bufio.Reader, n int) (all []answer) {
	t.Helper()
	for range n {
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatalf("answer %d of %d: %v", len(all)+1, n, err)
		}
		body, err := io.ReadAll(resp.Body)
		all = append(all, answer{resp.StatusCode, resp.Header, string(body), err})
	}
	return all
}

func TestPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	t.Parallel()
	target := startTarget(t, echo)
	f := frontWith(t, []string{target.addr()}, nil)
	c := f.dial()
	const n = 20
	var all strings.Builder
	for i := range n {
		body := fmt.Sprintf("body %d", i)
		switch i % 4 {
		case 0:
			fmt.Fprintf(&all, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		case 1:
			fmt.Fprintf(&all, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body)
		case 2:
			all.WriteString("\r\nTRACE / HTTP/1.1\r\nHost: x\r\n\r\n")
		default:
			all.WriteString("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		}
	}
	f.write(c, all.String())
	for i, a := range answers(t, bufio.NewReader(c), n) {
		status, body := 200, "ok"
		switch i % 4 {
		case 0, 1:
			body = fmt.Sprintf("body %d", i)
		case 2:
			status, body = 405, a.body
		}
		if a.status != status || a.body != body || a.err != nil {
			t.Errorf("answer %d: status %d, body %q, %v; want %d, %q", i, a.status, a.body, a.err, status, body)
		}
	}
}

func TestOldClientMayKeepItsConnection(t *testing.T) {
	t.Parallel()
	target := startTarget(t, echo)
	f := frontWith(t, []string{target.addr()}, nil)
	c := f.dial()
	br := bufio.NewReader(c)
	for range 2 {
		f.write(c, "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
		if a := answers(t, br, 1)[0]; a.status != 200 || a.header.Get("Connection") != "keep-alive" {
			t.Errorf("status %d, %v", a.status, a.header)
		}
	}
	f.write(c, "GET / HTTP/1.0\r\n\r\n")
	if got, err := io.ReadAll(br); err != nil || !strings.Contains(string(got), "Connection: close\r\n") {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestUnacceptableFraming has requests that two readers could take for
// different ones.
func TestUnacceptableFraming(t *testing.T) {
	t.Parallel()
	target := startTarget(t, echo)
	f := frontWith(t, []string{target.addr()}, nil)
	for request, want := range map[string]int{
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd":               400,
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3, 3\r\n\r\nabc":                                  400,
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +3\r\n\r\nabc":                                    400,
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0x3\r\n\r\nabc":                                   400,
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length:\r\n\r\nabc":                                       400,
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9223372036854775808\r\n\r\nabc":                   400,
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length : 3\r\n\r\nabc":                                    400,
		"POST / HTTP/1.1\r\nHost: x\r\n Content-Length: 3\r\n\r\nabc":                                    400,
		"POST / HTTP/1.1\r\nHost: x\r\nX: a\r\n folded\r\n\r\n":                                          400,
		"POST / HTTP/1.1\r\nHost: x\r\nX: a\rContent-Length: 3\r\n\r\nabc":                               400,
		"POST / HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n":                                                400,
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n": 400,
		"POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n":                      400,
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, chunked\r\n\r\n":                      501,
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n":                              501,
		"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n":                                                   400,
		"GET / HTTP/1.1\r\nHost: x y\r\n\r\n":                                                            400,
		"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n":                                                           400,
		"GET  / HTTP/1.1\r\nHost: x\r\n\r\n":                                                             400,
		"GET / HTTP/1.1 \r\nHost: x\r\n\r\n":                                                             400,
		"GET /\x01 HTTP/1.1\r\nHost: x\r\n\r\n":                                                          400,
		"GET x HTTP/1.1\r\nHost: x\r\n\r\n":                                                              400,
		"GET ftp://x/ HTTP/1.1\r\nHost: x\r\n\r\n":                                                       400,
		"GET\r\n\r\n":                  400,
		"\x16\x03\x01\x02\x00\x01\x00": 400,
	} {
		got := f.raw(request)
		if !strings.HasPrefix(got, fmt.Sprintf("HTTP/1.1 %d ", want)) || strings.Count(got, "HTTP/1.1 ") != 1 || !strings.Contains(got, "Connection: close\r\n") {
			t.Errorf("%q: got %q, want one answer, %d and close", request, got, want)
		}
	}
	if n := target.requests.Load(); n != 0 {
		t.Errorf("target got %d requests, want 0", n)
	}
}

// TestAmbiguousFraming has requests that are passed on with one framing, and
// end both connections.
func TestAmbiguousFraming(t *testing.T) {
	t.Parallel()
	for request, body := range map[string]string{
		"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n": "hello",
		"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabcGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n":                              "abc",
	} {
		var closed atomic.Int64
		target := startTarget(t, func(x *exchangeWith) {
			r := x.request()
			if r.Header.Get("Content-Length") != "" && len(r.TransferEncoding) > 0 {
				t.Errorf("target got two framings: %v", r.Header)
			}
			got, _ := io.ReadAll(r.Body)
			fmt.Fprintf(x, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(got), got)
			if x.request() == nil {
				closed.Add(1)
			}
		})
		f := frontWith(t, []string{target.addr()}, nil)
		got := f.raw("POST / HTTP/1.1\r\nHost: x\r\n" + request)
		if !strings.HasSuffix(got, "\r\n\r\n"+body) || !strings.Contains(got, "Connection: close\r\n") {
			t.Errorf("got %q, want %q and close", got, body)
		}
		eventually(t, "end of the target's connection", func() bool { return closed.Load() == 1 })
		if n := target.requests.Load(); n != 1 {
			t.Errorf("target got %d requests, want 1", n)
		}
	}
}

func TestBadChunkFromClient(t *testing.T) {
	t.Parallel()
	for _, chunk := range []string{"zz\r\n", "2\r\nabc\r\n0\r\n\r\n", "-1\r\n\r\n", "ffffffffffffffffff\r\n", "0\r\nbad trailer\r\n\r\n"} {
		target := startTarget(t, echo)
		f := frontWith(t, []string{target.addr()}, nil)
		got := f.raw("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk + "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n")
		if !strings.HasPrefix(got, "HTTP/1.1 400 ") || strings.Count(got, "HTTP/1.1 ") != 1 {
			t.Errorf("%q: got %q, want 400", chunk, got)
		}
		wantLine(t, f.line(), 400, 0, accesslog.PhaseWait, accesslog.ErrorClientBody)
		if n := target.requests.Load(); n != 0 {
			t.Errorf("%q: target got %d requests, want 0", chunk, n)
		}
	}
}

func TestHeadThatDoesNotComeTimesOut(t *testing.T) {
	t.Parallel()
	target := startTarget(t, echo)
	f := frontWith(t, []string{target.addr()}, func(w *world) { w.lim.Idle = 200 * time.Millisecond })
	c := f.dial()
	stop := make(chan struct{})
	go func() { // a byte now and then does not help
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for _, b := range "GET / HTTP/1.1\r\nHost: " + strings.Repeat("x", 10000) {
			if _, err := c.Write([]byte{byte(b)}); err != nil {
				return
			}
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	}()
	got := make([]byte, len("HTTP/1.1 408 "))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "HTTP/1.1 408 " {
		t.Errorf("got %q, %v, want 408", got, err)
	}
	close(stop)
	wantLine(t, f.line(), 408, 0, accesslog.PhaseRoute, accesslog.ErrorClientIdle)
}

func TestClientThatGoesEndsTheConnectionAttempt(t *testing.T) {
	t.Parallel()
	dialing := make(chan struct{})
	f := frontWith(t, []string{"198.18.0.99:80"}, func(w *world) {
		w.pool.Dial = func(ctx context.Context, _ string, _ time.Duration) (net.Conn, error) {
			close(dialing)
			<-ctx.Done()
			return nil, ctx.Err()
		}
	})
	c := f.dial()
	f.write(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	<-dialing
	c.Close()
	wantLine(t, f.line(), statusClientClosed, 0, accesslog.PhaseConnect, accesslog.ErrorClientClosed)
	if got := f.w.router.done(); len(got) != 1 || got[0] != 0 {
		t.Errorf("Done got %v, want one 0", got)
	}
}

func TestClientThatDoesNotReadIsCut(t *testing.T) {
	t.Parallel()
	target := startTarget(t, func(x *exchangeWith) {
		x.request()
		x.say("HTTP/1.1 200 OK\r\n\r\n")
		chunk := strings.Repeat("x", 1<<20)
		for range 64 { // more than the buffers on the way hold
			x.say(chunk)
		}
	})
	f := frontWith(t, []string{target.addr()}, func(w *world) { w.lim.Idle = 100 * time.Millisecond })
	c := f.dial()
	f.write(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	wantLine(t, f.line(), 200, 200, accesslog.PhaseBody, accesslog.ErrorClientIdle)
}

func TestBrokenAnswerToOldClientIsReset(t *testing.T) {
	t.Parallel()
	target := startTarget(t, once("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"))
	f := frontWith(t, []string{target.addr()}, nil)
	c := f.dial()
	f.write(c, "GET / HTTP/1.0\r\n\r\n")
	if got, err := io.ReadAll(c); err == nil {
		t.Errorf("got %q as a complete answer", got)
	}
	wantLine(t, f.line(), 502, 200, accesslog.PhaseBody, accesslog.ErrorEOF)
}

func TestOwnAnswers(t *testing.T) {
	t.Parallel()
	var own atomic.Pointer[Answer]
	f := frontWith(t, nil, func(w *world) {
		w.router.route = func(_ Request, r *Route) { r.Answer, r.Priority, r.Action = *own.Load(), 3, "fixed-response" }
	})
	f.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	own.Store(&Answer{Status: 201, ContentType: "text/plain", Body: "made", Fixed: true})
	if a := f.get("/"); a.status != 201 || a.body != "made" || a.header.Get("Content-Type") != "text/plain" || a.header.Get("Server") != "awselb/2.0" || a.header.Get("Date") == "" {
		t.Errorf("fixed response: %+v", a)
	}
	own.Store(&Answer{Status: 404, Fixed: true})
	if a := f.get("/"); a.status != 404 || a.body != "" {
		t.Errorf("empty fixed response: %+v", a)
	}
	own.Store(&Answer{Status: 301, Location: "https://x/"})
	if a := f.get("/"); a.status != 301 || a.header.Get("Location") != "https://x/" {
		t.Errorf("redirect: %+v", a)
	}
	own.Store(&Answer{Status: 503, Error: accesslog.ErrorNoTarget})
	if a := f.do(f.request(http.MethodHead, "/", nil)); a.status != 503 || a.body != "" || a.header.Get("Content-Length") == "0" {
		t.Errorf("HEAD: %+v", a)
	}
	all := f.lines(4)
	if l := all[0]; l.Rule != 3 || l.Action != "fixed-response" || l.Sent != 4 || l.SentTotal <= 4 || l.ReceivedTotal == 0 {
		t.Errorf("log: %+v", l)
	}
	if l := all[2]; l.RedirectURL != "https://x/" || l.Status != 301 {
		t.Errorf("log: %+v", l)
	}
	wantLine(t, all[3], 503, 0, accesslog.PhaseRoute, accesslog.ErrorNoTarget)
}

// An answer of the load balancer's own does not wait for a body, and yet
// reaches a client that sends all of it first.
func TestOwnAnswerBeforeTheBody(t *testing.T) {
	t.Parallel()
	f := frontWith(t, nil, nil)
	c := f.dial()
	f.write(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4194304\r\n\r\n")
	f.write(c, strings.Repeat("x", 4<<20))
	if got, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 503 ") {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestCookiesAndDone(t *testing.T) {
	t.Parallel()
	target := startTarget(t, func(x *exchangeWith) {
		x.request()
		x.say("HTTP/1.1 418 I'm a teapot\r\nSet-Cookie: own=1\r\nContent-Length: 0\r\n\r\n")
	})
	f := frontWith(t, []string{target.addr()}, func(w *world) {
		w.router.route = func(_ Request, r *Route) { r.Cookies = []string{"AWSALB=x; Path=/"} }
	})
	a := f.get("/")
	if got := a.header["Set-Cookie"]; len(got) != 2 || got[0] != "own=1" || got[1] != "AWSALB=x; Path=/" {
		t.Errorf("Set-Cookie %q", got)
	}
	f.line()
	if got := f.w.router.done(); len(got) != 1 || got[0] != 418 {
		t.Errorf("Done got %v, want one 418", got)
	}
}

// counts is Metrics.
type counts struct{ opened, closed, rejected atomic.Int64 }

func (c *counts) ConnectionOpened()   { c.opened.Add(1) }
func (c *counts) ConnectionClosed()   { c.closed.Add(1) }
func (c *counts) ConnectionRejected() { c.rejected.Add(1) }

func TestMetrics(t *testing.T) {
	t.Parallel()
	target := startTarget(t, echo)
	var clients, targets counts
	f := frontWith(t, []string{target.addr()}, func(w *world) { w.m, w.pool.Metrics = &clients, &targets })
	f.get("/")
	f.get("/")
	eventually(t, "end of two clients", func() bool { return clients.closed.Load() == 2 })
	if clients.opened.Load() != 2 || targets.opened.Load() != 1 || targets.closed.Load() != 0 {
		t.Errorf("%d clients' and %d targets' connections opened, %d targets' closed; want 2, 1, 0",
			clients.opened.Load(), targets.opened.Load(), targets.closed.Load())
	}
	f.pool().Close(CauseStopped)
	if targets.closed.Load() != 1 {
		t.Errorf("%d targets' connections closed, want 1", targets.closed.Load())
	}
}

func TestShutdownAnswersWhatHasCome(t *testing.T) {
	t.Parallel()
	arrived, finish := make(chan struct{}), make(chan struct{})
	target := startTarget(t, func(x *exchangeWith) {
		x.request()
		close(arrived)
		<-finish
		x.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	})
	f := frontWith(t, []string{target.addr()}, nil)
	idle, busy := f.dial(), f.dial()
	f.write(busy, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	<-arrived
	done := make(chan struct{})
	go func() {
		f.l.Shutdown(t.Context())
		close(done)
	}()
	if got, err := io.ReadAll(idle); err != nil || len(got) != 0 {
		t.Errorf("idle connection got %q, %v; want its end", got, err)
	}
	close(finish)
	got, err := io.ReadAll(busy)
	if err != nil || !strings.HasSuffix(string(got), "\r\n\r\nok") || !strings.Contains(string(got), "Connection: close\r\n") {
		t.Errorf("busy connection got %q, %v", got, err)
	}
	<-done
}

func TestCloseCutsClients(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{})
	target := startTarget(t, func(x *exchangeWith) {
		x.request()
		close(arrived)
		x.request()
	})
	f := frontWith(t, []string{target.addr()}, nil)
	c := f.dial()
	f.write(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	<-arrived
	f.l.Close()
	if got, _ := io.ReadAll(c); len(got) != 0 {
		t.Errorf("got %q, want nothing", got)
	}
	wantLine(t, f.line(), 0, 0, accesslog.PhaseWait, accesslog.ErrorStopped)
}

func TestRequestSeenByRouter(t *testing.T) {
	t.Parallel()
	target := startTarget(t, echo)
	var seen string
	f := frontWith(t, []string{target.addr()}, func(w *world) {
		w.router.route = func(r Request, _ *Route) {
			seen = strings.Join([]string{r.Method(), r.Host(), r.Target(), r.Header("X-One"), r.Header("User-Agent"), r.Header("None"), r.ClientIP(), r.Scheme()}, " ")
		}
	})
	f.raw("GET http://Shop/a?b HTTP/1.1\r\nHost: other\r\nx-one: 1\r\nX-One: 2\r\nUSER-AGENT: me\r\nConnection: close\r\n\r\n")
	if want := "GET Shop http://Shop/a?b 1 me  127.0.0.1 http"; seen != want {
		t.Errorf("router saw %q, want %q", seen, want)
	}
	if l := f.line(); l.Host != "Shop" || l.UserAgent != "me" || l.Type != "http" || l.Node != "127.0.0.1" || l.Proto != "HTTP/1.1" || l.TraceID == "" {
		t.Errorf("log: %+v", l)
	}
}
