package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"lameduck/clusters/alb/accesslog"
	"lameduck/clusters/alb/scripted"
)

// overHTTP2 makes the client speak HTTP/2.
func (f *front) overHTTP2() {
	tr := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	f.t.Cleanup(tr.CloseIdleConnections)
	f.client = &http.Client{Transport: tr}
}

func secure(w *world, t testing.TB) { w.tls = certificate(t) }

func TestHTTPSListener(t *testing.T) {
	t.Parallel()
	seen := make(chan http.Header, 2)
	target := startTarget(t, func(x *scripted.Exchange) {
		for r := x.Request(); r != nil; r = x.Request() {
			seen <- r.Header
			x.Say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok")
		}
	})
	f := frontWith(t, []string{target.Address()}, func(w *world) { secure(w, t) })
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
	target := startTarget(t, scripted.Echo)
	f := frontWith(t, []string{target.Address()}, func(w *world) { secure(w, t) })
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
	target := startTarget(t, scripted.Echo)
	f := frontWith(t, []string{target.Address()}, func(w *world) { secure(w, t) })
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
	target := startTarget(t, func(x *scripted.Exchange) {
		x.Request()
		close(arrived)
		x.Request()
		close(ended)
	})
	f := frontWith(t, []string{target.Address()}, func(w *world) { secure(w, t) })
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
	target := startTarget(t, scripted.Echo)
	f := frontWith(t, []string{target.Address()}, func(w *world) {
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

func TestHTTP2ClientThatDoesNotReadIsCut(t *testing.T) {
	t.Parallel()
	target := startTarget(t, func(x *scripted.Exchange) {
		x.Request()
		x.Say("HTTP/1.1 200 OK\r\n\r\n")
		chunk := strings.Repeat("x", 1<<20)
		for range 64 { // more than the client's window
			x.Say(chunk)
		}
	})
	f := frontWith(t, []string{target.Address()}, func(w *world) {
		secure(w, t)
		w.lim.Idle = 200 * time.Millisecond
	})
	f.overHTTP2()
	resp, err := f.client.Get(f.url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	wantLine(t, f.line(), 200, 200, accesslog.PhaseBody, accesslog.ErrorClientIdle)
}

func TestHTTP2BrokenAnswer(t *testing.T) {
	t.Parallel()
	target := startTarget(t, scripted.Once("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"))
	f := frontWith(t, []string{target.Address()}, func(w *world) { secure(w, t) })
	f.overHTTP2()
	if a := f.get("/"); a.status != 200 || a.err == nil {
		t.Errorf("status %d, body %q, %v; want a cut body", a.status, a.body, a.err)
	}
	wantLine(t, f.line(), 502, 200, accesslog.PhaseBody, accesslog.ErrorEOF)
}

func TestHTTP2ConnectionEnds(t *testing.T) {
	t.Parallel()
	target := startTarget(t, scripted.Echo)
	for name, end := range map[string]func(*front){
		"shutdown": func(f *front) { f.l.Shutdown(f.t.Context()) },
		"close":    func(f *front) { f.l.Close() },
	} {
		f := frontWith(t, []string{target.Address()}, func(w *world) { secure(w, t) })
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
func startTLSTarget(t *testing.T, serve func(*scripted.Exchange)) *scripted.Target {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", certificate(t))
	if err != nil {
		t.Fatal(err)
	}
	return serveTarget(t, l, serve)
}

func TestTLSTarget(t *testing.T) {
	t.Parallel()
	target := startTLSTarget(t, scripted.Echo)
	f := frontWith(t, []string{target.Address()}, func(w *world) { w.pool.TLS = &tls.Config{} })
	// A client that closes when it has the last byte may be noticed before the
	// exchange has ended, which costs the target's connection.
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	f.client = &http.Client{Transport: tr}
	for range 3 {
		if a := f.do(f.request(http.MethodPost, "/", strings.NewReader(strings.Repeat("x", 100<<10)))); a.status != 200 || len(a.body) != 100<<10 {
			t.Errorf("status %d, %d bytes", a.status, len(a.body))
		}
	}
	if n := target.Conns.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

func TestTLSTargetFails(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]func(*scripted.Exchange){
		"not TLS": func(x *scripted.Exchange) { x.Say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") },
		"closes":  func(x *scripted.Exchange) {},
		"silent":  func(x *scripted.Exchange) { _, _ = io.Copy(io.Discard, x) },
	} {
		target := startTarget(t, serve)
		f := frontWith(t, []string{target.Address()}, func(w *world) {
			w.pool.TLS, w.pool.HandshakeTimeout = &tls.Config{}, 200*time.Millisecond
		})
		if a := f.get("/"); a.status != 502 {
			t.Errorf("%s: status %d, want 502", name, a.status)
		}
		wantLine(t, f.line(), 502, 0, accesslog.PhaseConnect, accesslog.ErrorTLS)
	}
}
