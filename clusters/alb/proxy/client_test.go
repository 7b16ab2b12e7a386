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
	"lameduck/clusters/alb/scripted"
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
	target := startTarget(t, scripted.Echo)
	f := frontWith(t, []string{target.Address()}, nil)
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
	target := startTarget(t, scripted.Echo)
	f := frontWith(t, []string{target.Address()}, nil)
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

func TestHeadThatDoesNotComeTimesOut(t *testing.T) {
	t.Parallel()
	target := startTarget(t, scripted.Echo)
	f := frontWith(t, []string{target.Address()}, func(w *world) { w.lim.Idle = 200 * time.Millisecond })
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
	target := startTarget(t, func(x *scripted.Exchange) {
		x.Request()
		x.Say("HTTP/1.1 200 OK\r\n\r\n")
		chunk := strings.Repeat("x", 1<<20)
		for range 64 { // more than the buffers on the way hold
			x.Say(chunk)
		}
	})
	f := frontWith(t, []string{target.Address()}, func(w *world) { w.lim.Idle = 100 * time.Millisecond })
	c := f.dial()
	f.write(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	wantLine(t, f.line(), 200, 200, accesslog.PhaseBody, accesslog.ErrorClientIdle)
}

func TestBrokenAnswerToOldClientIsReset(t *testing.T) {
	t.Parallel()
	target := startTarget(t, scripted.Once("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"))
	f := frontWith(t, []string{target.Address()}, nil)
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
	target := startTarget(t, func(x *scripted.Exchange) {
		x.Request()
		x.Say("HTTP/1.1 418 I'm a teapot\r\nSet-Cookie: own=1\r\nContent-Length: 0\r\n\r\n")
	})
	for with, want := range map[string]string{"": "own=1 AWSALB=x; Path=/", "own": "own=1 AWSALB=x; Path=/", "other": "own=1"} {
		f := frontWith(t, []string{target.Address()}, func(w *world) {
			w.router.route = func(_ Request, r *Route) { r.Cookies, r.CookiesWith = []string{"AWSALB=x; Path=/"}, with }
		})
		if got := strings.Join(f.get("/").header["Set-Cookie"], " "); got != want {
			t.Errorf("with %q: Set-Cookie %q, want %q", with, got, want)
		}
		f.line()
		if got := f.w.router.done(); len(got) != 1 || got[0] != 418 {
			t.Errorf("with %q: Done got %v, want one 418", with, got)
		}
	}
}

// counts is Metrics.
type counts struct{ opened, closed, rejected atomic.Int64 }

func (c *counts) ConnectionOpened()   { c.opened.Add(1) }
func (c *counts) ConnectionClosed()   { c.closed.Add(1) }
func (c *counts) ConnectionRejected() { c.rejected.Add(1) }

func TestMetrics(t *testing.T) {
	t.Parallel()
	target := startTarget(t, scripted.Echo)
	var clients, targets counts
	f := frontWith(t, []string{target.Address()}, func(w *world) { w.m, w.pool.Metrics = &clients, &targets })
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
	target := startTarget(t, func(x *scripted.Exchange) {
		x.Request()
		close(arrived)
		<-finish
		x.Say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	})
	f := frontWith(t, []string{target.Address()}, nil)
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
	target := startTarget(t, func(x *scripted.Exchange) {
		x.Request()
		close(arrived)
		x.Request()
	})
	f := frontWith(t, []string{target.Address()}, nil)
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
	target := startTarget(t, scripted.Echo)
	var seen string
	f := frontWith(t, []string{target.Address()}, func(w *world) {
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
