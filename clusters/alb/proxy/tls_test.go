package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"lameduck/clusters/alb/accesslog"
)

// overHTTP2 makes the client speak HTTP/2.
func (f *front) overHTTP2() {
	tr := &http2.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	f.t.Cleanup(tr.CloseIdleConnections)
	f.client = &http.Client{Transport: tr}
}

func secure(w *world, t testing.TB) { w.tls = certificate(t) }

func TestHTTPSListener(t *testing.T) {
	t.Parallel()
	seen := make(chan http.Header, 2)
	target := startTarget(t, func(x *exchangeWith) {
		for r := x.request(); r != nil; r = x.request() {
			seen <- r.Header
			x.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok")
		}
	})
	f := frontWith(t, []string{target.addr()}, func(w *world) { secure(w, t) })
	if a := f.get("/"); a.status != 200 || a.body != "ok" {
		t.Errorf("HTTP/1.1: %+v", a)
	}
	f.overHTTP2()
	if a := f.get("/"); a.status != 200 || a.body != "ok" || a.header.Get("Connection") != "" {
		t.Errorf("HTTP/2: %+v", a)
	}
	for range 2 {
		if h := <-seen; h.Get("X-Forwarded-Proto") != "https" || h.Get("X-Amzn-Trace-Id") == "" || h.Get("X-Forwarded-For") != "127.0.0.1" {
			t.Errorf("target got %v", h)
		}
	}
	all := f.lines(2)
	for i, want := range []struct{ kind, proto string }{{"https", "HTTP/1.1"}, {"h2", "HTTP/2.0"}} {
		l := all[i]
		wantLine(t, l, 200, 200, accesslog.PhaseDone, "")
		if l.Type != want.kind || l.Proto != want.proto || l.Scheme != "https" || l.TLSProtocol != "TLSv1.3" || !strings.HasPrefix(l.TLSCipher, "TLS_AES_") {
			t.Errorf("log: %+v", l)
		}
		if l.Sent != 2 || l.SentTotal <= 2 || l.ReceivedTotal == 0 || l.Host != f.addr() {
			t.Errorf("log: sent %d of %d, received %d, host %q", l.Sent, l.SentTotal, l.ReceivedTotal, l.Host)
		}
	}
}

func TestCipherNames(t *testing.T) {
	for id, want := range map[uint16]string{
		tls.TLS_AES_128_GCM_SHA256:                      "TLS_AES_128_GCM_SHA256",
		tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256:       "ECDHE-RSA-AES128-GCM-SHA256",
		tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384:     "ECDHE-ECDSA-AES256-GCM-SHA384",
		tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA:          "ECDHE-RSA-AES128-SHA",
		tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256: "ECDHE-RSA-CHACHA20-POLY1305",
	} {
		if got := cipherName(id); got != want {
			t.Errorf("%s: %s, want %s", tls.CipherSuiteName(id), got, want)
		}
	}
}

func TestPlainRequestToHTTPS(t *testing.T) {
	t.Parallel()
	f := frontWith(t, nil, func(w *world) { secure(w, t) })
	if got := f.raw("GET / HTTP/1.1\r\nHost: x\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 400 ") {
		t.Errorf("got %q, want 400", got)
	}
}

func TestProtocolMismatch(t *testing.T) {
	t.Parallel()
	target := startTarget(t, echo)
	f := frontWith(t, []string{target.addr()}, func(w *world) { secure(w, t) })
	f.overHTTP2()
	req := f.request(http.MethodPost, "/pkg.Service/Method", strings.NewReader("x"))
	req.Header.Set("Content-Type", "application/grpc+proto")
	if a := f.do(req); a.status != 464 {
		t.Errorf("status %d, want 464", a.status)
	}
	wantLine(t, f.line(), 464, 0, accesslog.PhaseRoute, accesslog.ErrorRefused)
	for method, want := range map[string]int{http.MethodTrace: 405, http.MethodGet: 200} {
		if a := f.do(f.request(method, "/", nil)); a.status != want {
			t.Errorf("%s: status %d, want %d", method, a.status, want)
		}
	}
}

func TestHTTP2Bodies(t *testing.T) {
	t.Parallel()
	target := startTarget(t, echo)
	f := frontWith(t, []string{target.addr()}, func(w *world) { secure(w, t) })
	f.overHTTP2()
	body := bytes.Repeat([]byte("0123456789abcdef"), 100<<10)
	for _, length := range []int64{int64(len(body)), -1} {
		req := f.request(http.MethodPost, "/", bytes.NewReader(body))
		req.ContentLength = length
		if a := f.do(req); a.status != 200 || a.body != string(body) || a.err != nil {
			t.Errorf("length %d: status %d, %d bytes, %v", length, a.status, len(a.body), a.err)
		}
	}
	for _, l := range f.lines(2) {
		if l.Received != int64(len(body)) || l.Sent != int64(len(body)) {
			t.Errorf("log: received %d, sent %d, want %d", l.Received, l.Sent, len(body))
		}
	}
}

func TestHTTP2ClientGoes(t *testing.T) {
	t.Parallel()
	arrived, ended := make(chan struct{}), make(chan struct{})
	target := startTarget(t, func(x *exchangeWith) {
		x.request()
		close(arrived)
		x.request()
		close(ended)
	})
	f := frontWith(t, []string{target.addr()}, func(w *world) { secure(w, t) })
	f.overHTTP2()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	if _, err := f.client.Do(f.request(http.MethodGet, "/", nil).WithContext(ctx)); !errors.Is(err, context.Canceled) {
		t.Errorf("client got %v", err)
	}
	<-ended
	wantLine(t, f.line(), statusClientClosed, 0, accesslog.PhaseWait, accesslog.ErrorClientClosed)
}

func TestHTTP2BodyStalls(t *testing.T) {
	t.Parallel()
	target := startTarget(t, echo)
	f := frontWith(t, []string{target.addr()}, func(w *world) {
		secure(w, t)
		w.lim.Idle = 100 * time.Millisecond
	})
	f.overHTTP2()
	body, in := io.Pipe()
	defer in.Close()
	go func() { _, _ = in.Write([]byte("some")) }()
	if a := f.do(f.request(http.MethodPost, "/", body)); a.status != 408 {
		t.Errorf("status %d, want 408", a.status)
	}
	wantLine(t, f.line(), 408, 0, accesslog.PhaseWait, accesslog.ErrorClientIdle)
}

func TestHTTP2BrokenAnswer(t *testing.T) {
	t.Parallel()
	target := startTarget(t, once("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"))
	f := frontWith(t, []string{target.addr()}, func(w *world) { secure(w, t) })
	f.overHTTP2()
	if a := f.get("/"); a.status != 200 || a.err == nil {
		t.Errorf("status %d, body %q, %v; want a cut body", a.status, a.body, a.err)
	}
	wantLine(t, f.line(), 502, 200, accesslog.PhaseBody, accesslog.ErrorEOF)
}

func TestHTTP2ConnectionEnds(t *testing.T) {
	t.Parallel()
	target := startTarget(t, echo)
	for name, end := range map[string]func(*front){
		"shutdown": func(f *front) { f.l.Shutdown(f.t.Context()) },
		"close":    func(f *front) { f.l.Close() },
	} {
		f := frontWith(t, []string{target.addr()}, func(w *world) { secure(w, t) })
		f.overHTTP2()
		f.get("/")
		end(f) // returns when no client is left
		f.l.mu.Lock()
		if n := len(f.l.clients); n != 0 {
			t.Errorf("%s: %d clients left", name, n)
		}
		f.l.mu.Unlock()
	}
}

// startTLSTarget serves behind TLS.
func startTLSTarget(t *testing.T, serve func(*exchangeWith)) *rawTarget {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", certificate(t))
	if err != nil {
		t.Fatal(err)
	}
	return serveTarget(t, l, serve)
}

func TestTLSTarget(t *testing.T) {
	t.Parallel()
	target := startTLSTarget(t, echo)
	f := frontWith(t, []string{target.addr()}, func(w *world) { w.pool.TLS = &tls.Config{} })
	for range 3 {
		if a := f.do(f.request(http.MethodPost, "/", strings.NewReader(strings.Repeat("x", 100<<10)))); a.status != 200 || len(a.body) != 100<<10 {
			t.Errorf("status %d, %d bytes", a.status, len(a.body))
		}
	}
	if n := target.conns.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

func TestTLSTargetFails(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]func(*exchangeWith){
		"not TLS": func(x *exchangeWith) { x.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") },
		"closes":  func(x *exchangeWith) {},
		"silent":  func(x *exchangeWith) { _, _ = io.Copy(io.Discard, x) },
	} {
		target := startTarget(t, serve)
		f := frontWith(t, []string{target.addr()}, func(w *world) {
			w.pool.TLS, w.pool.HandshakeTimeout = &tls.Config{}, 200*time.Millisecond
		})
		if a := f.get("/"); a.status != 502 {
			t.Errorf("%s: status %d, want 502", name, a.status)
		}
		wantLine(t, f.line(), 502, 0, accesslog.PhaseConnect, accesslog.ErrorTLS)
	}
}

const upgradeRequest = "GET /chat HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\n"

// upgrading answers 101 and the first bytes at once, and then every line.
func upgrading(x *exchangeWith) {
	r := x.request()
	if r == nil || r.Header.Get("Upgrade") != "websocket" || !strings.EqualFold(r.Header.Get("Connection"), "upgrade") || r.Header.Get("Sec-Websocket-Key") != "k" {
		x.say("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
		return
	}
	x.say("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: a\r\n\r\nhello\n")
	for {
		line, err := x.br.ReadString('\n')
		if err != nil {
			x.say("bye\n") // after the client's FIN
			return
		}
		x.say("echo " + line)
	}
}

func TestWebSocket(t *testing.T) {
	t.Parallel()
	for _, encrypted := range []bool{false, true} {
		start, kind := startTarget0, "ws"
		if encrypted {
			start, kind = startTLSTarget, "wss"
		}
		target := start(t, upgrading)
		f := frontWith(t, []string{target.addr()}, func(w *world) {
			if encrypted {
				secure(w, t)
				w.pool.TLS = &tls.Config{}
			}
		})
		var c interface {
			io.ReadWriter
			CloseWrite() error
		} = f.dial()
		if encrypted {
			tc, err := tls.Dial("tcp", f.addr(), &tls.Config{InsecureSkipVerify: true})
			if err != nil {
				t.Fatal(err)
			}
			defer tc.Close()
			c = tc
		}
		// What the client sends early is not lost.
		if _, err := io.WriteString(c, upgradeRequest+"early\n"); err != nil {
			t.Fatal(err)
		}
		br := bufio.NewReader(c)
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != 101 || resp.Header.Get("Upgrade") != "websocket" || resp.Header.Get("Connection") != "Upgrade" || resp.Header.Get("Sec-Websocket-Accept") != "a" {
			t.Errorf("%s: answer %d, %v", kind, resp.StatusCode, resp.Header)
		}
		for _, step := range []struct{ say, hear string }{{"", "hello\n"}, {"", "echo early\n"}, {"one\n", "echo one\n"}} {
			if _, err := io.WriteString(c, step.say); err != nil {
				t.Fatal(err)
			}
			if got, err := br.ReadString('\n'); got != step.hear {
				t.Errorf("%s: got %q, %v; want %q", kind, got, err, step.hear)
			}
		}
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(br); string(got) != "bye\n" || err != nil {
			t.Errorf("%s: got %q, %v; want bye", kind, got, err)
		}
		l := f.line()
		wantLine(t, l, 101, 101, accesslog.PhaseDone, "")
		if l.Type != kind || l.Received != int64(len("early\none\n")) || l.Sent != int64(len("hello\necho early\necho one\nbye\n")) {
			t.Errorf("log: type %s, received %d, sent %d", l.Type, l.Received, l.Sent)
		}
	}
}

func startTarget0(t *testing.T, serve func(*exchangeWith)) *rawTarget { return startTarget(t, serve) }

func TestTunnelEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		idle time.Duration
		end  func(*front)
		want string
	}{
		"idle":         {100 * time.Millisecond, func(*front) {}, "ETIMEDOUT"},
		"deregistered": {10 * time.Second, func(f *front) { f.pool().Close(CauseDeregistered) }, accesslog.ErrorDeregistered},
		"stopped":      {10 * time.Second, func(f *front) { f.l.Close() }, accesslog.ErrorStopped},
	} {
		target := startTarget(t, upgrading)
		f := frontWith(t, []string{target.addr()}, func(w *world) { w.lim.Idle = c.idle })
		conn := f.dial()
		f.write(conn, upgradeRequest)
		br := bufio.NewReader(conn)
		if _, err := http.ReadResponse(br, nil); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got, err := br.ReadString('\n'); err != nil {
			t.Fatalf("%s: got %q, %v", name, got, err)
		}
		c.end(f)
		if _, err := io.ReadAll(br); err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("%s: %v", name, err)
		}
		l := f.line()
		wantLine(t, l, 101, 101, accesslog.PhaseBody, c.want)
		if got := f.w.router.done(); len(got) != 1 || got[0] != 101 {
			t.Errorf("%s: Done got %v, want one 101", name, got)
		}
	}
}

func TestTunnelIdleIsResetByEitherSide(t *testing.T) {
	t.Parallel()
	target := startTarget(t, func(x *exchangeWith) {
		x.request()
		x.say("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(io.Discard, x.br)
		x.say("end")
	})
	f := frontWith(t, []string{target.addr()}, func(w *world) { w.lim.Idle = resetIdle })
	c := f.dial()
	f.write(c, upgradeRequest)
	br := bufio.NewReader(c)
	if _, err := http.ReadResponse(br, nil); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(resetGap)
	defer tick.Stop()
	for range resetN { // only the client speaks
		<-tick.C
		f.write(c, "x")
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(br); string(got) != "end" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if l := f.line(); l.Received != resetN {
		t.Errorf("log: received %d, want %d", l.Received, resetN)
	}
}

func TestUpgradeThatIsNotTaken(t *testing.T) {
	t.Parallel()
	target := startTarget(t, echo)
	f := frontWith(t, []string{target.addr()}, nil)
	c := f.dial()
	br := bufio.NewReader(c)
	for range 2 { // the connection stays usable
		f.write(c, upgradeRequest)
		if a := answers(t, br, 1)[0]; a.status != 200 || a.body != "ok" {
			t.Errorf("status %d, body %q", a.status, a.body)
		}
	}
	if l := f.lines(2)[1]; l.Type != "http" || !l.Reused {
		t.Errorf("log: type %s, reused %v", l.Type, l.Reused)
	}
}

func TestHTTP2IsNotOfferedToTargets(t *testing.T) {
	t.Parallel()
	r := headOf(t, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n")
	for _, name := range []string{"Upgrade", "Connection", "Http2-Settings"} {
		if r.Header[name] != nil {
			t.Errorf("target got %s: %q", name, r.Header[name])
		}
	}
}
