package conformance

import (
	"bufio"
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"time"

	"lameduck/clusters/alb/accesslog"
	"lameduck/clusters/alb/scripted"
)

func protocolFacts() []Fact {
	return []Fact{
		{"2-tls-target", 2, Documented, guideTargetGroups, "HTTPS to targets does not validate their certificates", targetCertificate},
		{"2-tls-timeout", 2, Documented, guideTroubleshooting, "a target that does not finish the TLS handshake in time: 502", targetHandshakeTimeout},
		{"3-tls-error", 3, Documented, guideTroubleshooting, "a target whose TLS handshake fails: 502", targetHandshakeFails},
		{"1-https", 1, Documented, guideListeners, "HTTPS listeners speak HTTP/1.1, X-Forwarded-Proto tells the target", httpsListener},
		{"1-http2", 1, Documented, guideListeners, "HTTPS listeners speak HTTP/2 in parallel, HTTP/1.1 to the target", http2Listener},
		{"1-http2-failure", 1, Documented, guideTroubleshooting, "a failure of one HTTP/2 request leaves the others of the connection alone", http2Failure},
		{"1-websocket", 1, Documented, guideListeners, "an Upgrade to WebSocket connects client and target until one of them closes", webSocket},
		{"1-websocket-refused", 1, Documented, rfcWebSocket, "a target that does not switch protocols answers as usual", webSocketRefused},
		{"2-websocket-idle", 2, Documented, guideListeners, "the idle timeout ends a silent WebSocket connection", webSocketIdle},
		{"6-websocket", 6, Documented, guideAccessLogs, "a WebSocket connection is logged when it is closed, as ws, with 101", webSocketLog},
	}
}

// toTLS makes the front speak TLS to its targets.
func toTLS(o *frontOptions) { o.pool.TLS = &tls.Config{InsecureSkipVerify: true} }

// listenTLS makes it speak TLS to its clients.
func listenTLS(t *T) func(*frontOptions) {
	config := ownCertificate(t)
	return func(o *frontOptions) { o.listener.TLS = config }
}

func targetCertificate(t *T) {
	target := startTargetAt(t, "127.0.0.1:0", ownCertificate(t), scripted.Echo) // expired, signed by nobody
	f := newFront(t, []string{target.Address()}, toTLS)
	for range 2 {
		wantStatus(t, "TLS target", f.get("/"), http.StatusOK)
	}
	if n := target.Conns.Load(); n != 1 {
		t.Errorf("%d connections, want 1: they are kept", n)
	}
}

func targetHandshakeTimeout(t *T) {
	target := startTarget(t, func(x *scripted.Exchange) { _, _ = io.Copy(io.Discard, x) })
	f := newFront(t, []string{target.Address()}, toTLS, func(o *frontOptions) { o.pool.HandshakeTimeout = 100 * time.Millisecond })
	wantStatus(t, "silent TLS target", f.get("/"), http.StatusBadGateway)
	wantLine(t, f.line(), 502, 0, accesslog.PhaseConnect, accesslog.ErrorTLS)
}

func targetHandshakeFails(t *T) {
	target := startTarget(t, func(x *scripted.Exchange) {
		if _, err := x.Reader.ReadByte(); err == nil {
			x.Say("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n") // speaks no TLS
		}
	})
	f := newFront(t, []string{target.Address()}, toTLS)
	wantStatus(t, "plain target", f.get("/"), http.StatusBadGateway)
	wantLine(t, f.line(), 502, 0, accesslog.PhaseConnect, accesslog.ErrorTLS)
}

// seenHeaders answers with what a request had.
func seenHeaders(x *scripted.Exchange) {
	for r := x.Request(); r != nil; r = x.Request() {
		x.Say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Seen: " + r.Proto + " " + r.Host + " " + r.Header.Get("X-Forwarded-Proto") +
			" " + r.Header.Get("X-Forwarded-For") + "\r\n\r\n")
	}
}

func httpsListener(t *T) {
	target := startTarget(t, seenHeaders)
	f := newFront(t, []string{target.Address()}, listenTLS(t))
	a := f.get("/")
	if got, want := a.header.Get("X-Seen"), "HTTP/1.1 "+f.addr()+" https 127.0.0.1"; a.status != 200 || got != want {
		t.Errorf("status %d, target saw %q, want %q", a.status, got, want)
	}
	l := f.line()
	wantLine(t, l, 200, 200, accesslog.PhaseDone, "")
	if l.Type != "https" || l.Scheme != "https" || l.TLSProtocol != "TLSv1.3" || l.TLSCipher == "" {
		t.Errorf("log: type %q, scheme %q, protocol %q, cipher %q", l.Type, l.Scheme, l.TLSProtocol, l.TLSCipher)
	}
}

func http2Listener(t *T) {
	const parallel = 10
	answers := make(chan struct{})
	target := startTarget(t, func(x *scripted.Exchange) {
		r := x.Request()
		if r == nil {
			return
		}
		body, _ := io.ReadAll(r.Body)
		hold(t, answers)
		x.Say("HTTP/1.1 200 OK\r\nConnection: close\r\nX-Proto: " + r.Proto + "\r\n\r\n" + string(body))
	})
	f := newFront(t, []string{target.Address()}, listenTLS(t))
	client := newClient(t, true)
	got := make(chan answer, parallel)
	for range parallel {
		req := newRequest(t, http.MethodPost, f.url, strings.NewReader("hello"))
		go func() { got <- do(t, client, req) }()
	}
	t.eventually("all requests at the target", func() bool { return target.Requests.Load() == parallel })
	close(answers)
	for range parallel {
		if a := wait(t, "answer", got); a.status != 200 || a.body != "hello" || a.header.Get("X-Proto") != "HTTP/1.1" {
			t.Errorf("status %d, body %q, target saw %q", a.status, a.body, a.header.Get("X-Proto"))
		}
	}
	clients := map[string]bool{}
	for _, l := range f.wait(t, parallel) {
		clients[l.Client] = true
		if l.Type != "h2" || l.Proto != "HTTP/2.0" {
			t.Errorf("log: type %q, protocol %q", l.Type, l.Proto)
		}
	}
	if len(clients) != 1 {
		t.Errorf("%d connections from the client, want 1", len(clients))
	}
}

func http2Failure(t *T) {
	good, release := held(t)
	dead := startTarget(t, scripted.Echo)
	dead.Close()
	f := newFront(t, []string{good.Address(), dead.Address()}, listenTLS(t))
	client := newClient(t, true)
	inFlight := begin(t, client, f.url, good)
	wantStatus(t, "refused", get(t, client, f.url), http.StatusBadGateway)
	release()
	wantStatus(t, "in flight meanwhile", wait(t, "answer", inFlight), http.StatusOK)
}

const upgrade = "GET /socket HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
	"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"

// switches takes an Upgrade and sends back what comes then, in one piece.
func switches(x *scripted.Exchange) {
	r, err := http.ReadRequest(x.Reader)
	if err != nil || !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") || r.Header.Get("Sec-Websocket-Key") == "" {
		x.Say("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
		return
	}
	x.Target.Requests.Add(1)
	x.Say("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\nearly")
	buf := make([]byte, 100)
	for {
		n, err := x.Reader.Read(buf)
		if err != nil {
			return
		}
		x.Say(string(buf[:n]))
	}
}

// openSocket upgrades a connection and reads the target's first bytes.
func openSocket(t *T, f *front) (io.ReadWriteCloser, *bufio.Reader) {
	c := f.dial()
	send(t, c, upgrade)
	br := bufio.NewReader(c)
	resp, err := http.ReadResponse(br, nil)
	t.must(err)
	if resp.StatusCode != http.StatusSwitchingProtocols || !strings.EqualFold(resp.Header.Get("Upgrade"), "websocket") ||
		!strings.EqualFold(resp.Header.Get("Connection"), "upgrade") || resp.Header.Get("Sec-Websocket-Accept") != "x" {
		t.Fatalf("status %d, headers %v", resp.StatusCode, resp.Header)
	}
	wantRead(t, br, "early")
	return c, br
}

func wantRead(t *T, r io.Reader, want string) {
	got := make([]byte, len(want))
	if n, err := io.ReadFull(r, got); err != nil || string(got) != want {
		t.Fatalf("read %q, %v; want %q", got[:n], err, want)
	}
}

func webSocket(t *T) {
	target := startTarget(t, switches)
	f := newFront(t, []string{target.Address()}, idleOf(never)) // which would end it too
	c, br := openSocket(t, f)
	for _, text := range []string{"a", "hello", strings.Repeat("x", 90)} {
		send(t, c, text)
		wantRead(t, br, text)
	}
	target.CloseConns()
	if rest, err := io.ReadAll(br); len(rest) > 0 {
		t.Errorf("after the target's end: %q, %v", rest, err)
	}
	c.Close() // as a client does then: RFC 6455, 7.1.1
	c, _ = openSocket(t, f)
	c.Close()
	t.eventually("no connection to the target", func() bool { idle, busy := f.pool().Size(); return idle+busy == 0 })
}

func webSocketRefused(t *T) {
	target := startTarget(t, scripted.Echo)
	f := newFront(t, []string{target.Address()})
	c := f.dial()
	send(t, c, upgrade)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	t.must(err)
	if body, err := io.ReadAll(resp.Body); resp.StatusCode != 200 || string(body) != "ok" {
		t.Errorf("status %d, body %q, %v", resp.StatusCode, body, err)
	}
	if l := f.line(); l.Type != "http" {
		t.Errorf("log: type %q, want http", l.Type)
	}
}

func webSocketIdle(t *T) {
	target := startTarget(t, switches)
	f := newFront(t, []string{target.Address()}, idleOf(shortIdle))
	_, br := openSocket(t, f)
	if rest, _ := io.ReadAll(br); len(rest) > 0 {
		t.Errorf("read %q", rest)
	}
}

func webSocketLog(t *T) {
	target := startTarget(t, switches)
	f := newFront(t, []string{target.Address()})
	c, br := openSocket(t, f)
	send(t, c, "hello")
	wantRead(t, br, "hello")
	if got := f.copy(); len(got) != 0 {
		t.Errorf("log has %d lines while the connection is open", len(got))
	}
	c.Close()
	l := f.line()
	if l.Type != "ws" || l.Status != 101 || l.TargetStatus != 101 || l.Target != target.Address() {
		t.Errorf("log: type %q, status %d, target status %d, target %q", l.Type, l.Status, l.TargetStatus, l.Target)
	}
	if l.ReceivedTotal < int64(len(upgrade)+len("hello")) || l.SentTotal < int64(len("earlyhello")) {
		t.Errorf("log: %d bytes received, %d sent", l.ReceivedTotal, l.SentTotal)
	}
}
