package proxy

//lint:file-ignore SA1019 http.Server takes listeners only; a connection whose ALPN has been settled here needs ServeConn.

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2"
)

// serveHTTP2 serves a connection on which ALPN has chosen HTTP/2. Requests on
// it are exchanges like others; targets are spoken to in HTTP/1.1.
func (c *client) serveHTTP2(t *tls.Conn) {
	lim := c.l.limits.Load()
	// Streams have timeouts of their own, and so has a connection without any.
	c.guard.begin(0)
	c.peer.http = "h2"
	// A server for one connection, so that a changed timeout is heeded and the
	// connection can be ended alone.
	hs := &http.Server{
		Handler:        http.HandlerFunc(c.serveStream),
		MaxHeaderBytes: 2 * maxRequestHead, // over our own limit, which answers 400
		ErrorLog:       log.New(io.Discard, "", 0),
	}
	h2 := &http2.Server{IdleTimeout: lim.Idle, WriteByteTimeout: lim.Idle}
	if err := http2.ConfigureServer(hs, h2); err != nil {
		return
	}
	c.http2.Store(hs)
	if c.l.closing.Load() {
		c.shutdown()
	}
	h2.ServeConn(t, &http2.ServeConnOpts{BaseConfig: hs, Context: context.Background()})
}

// shutdown ends the connection after the requests that have come.
func (c *client) shutdown() {
	if hs := c.http2.Load(); hs != nil {
		// It has no listener and knows no connection to wait for: GOAWAY is
		// sent, and that is all.
		_ = hs.Shutdown(context.Background())
		return
	}
	c.retire()
}

// exchanges are for requests of HTTP/2.
var exchanges = sync.Pool{New: func() any { return new(exchange) }}

// serveStream serves one request.
func (c *client) serveStream(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	s := &stream2{c: c, w: w, r: r, rc: http.NewResponseController(w), idle: c.l.limits.Load().Idle}
	x := exchanges.Get().(*exchange)
	*x = exchange{l: c.l, s: s, req: &s.req, head: x.head, trace: x.trace}
	refused := s.req.from2(&c.peer, r)
	x.last = c.l.closing.Load() || now.Sub(c.since) >= c.l.limits.Load().ClientKeepAlive
	x.run(now, s.req.size2(), refused)
	cut := x.cut
	x.s, x.req, x.relay, x.reply = nil, nil, relay{}, answerHead{}
	exchanges.Put(x)
	if cut {
		panic(http.ErrAbortHandler) // resets the stream
	}
}

// from2 takes the head of a request of HTTP/2, which the server has checked.
// It returns the status with which it is refused, 0 if it is not.
func (r *request) from2(p *peer, from *http.Request) int {
	*r = request{peer: p, method: from.Method, target: from.RequestURI, path: from.RequestURI, host: from.Host,
		proto: "HTTP/2.0", length: from.ContentLength}
	r.said = r.length == 0 && from.Header["Content-Length"] != nil
	for name, values := range from.Header {
		for _, v := range values {
			r.fields = append(r.fields, field{name, v, kindOf(name)})
		}
	}
	// AWS user guide, Troubleshooting: HTTP 464. Our target groups speak
	// HTTP/1.1, so gRPC is a mismatch.
	if strings.HasPrefix(find(r.fields, "Content-Type"), "application/grpc") {
		return statusWrongProtocol
	}
	// The HTTP/2 server takes any :method, which becomes part of a request line.
	if !httpguts.ValidHeaderFieldName(r.method) || !validTarget(r.target) || r.target[0] != '/' && r.target != "*" {
		return http.StatusBadRequest
	}
	return r.refusal()
}

// size2 is what the head would take in HTTP/1.1; its real size on the wire
// depends on what went before.
func (r *request) size2() int {
	n := len(r.method) + len(r.target) + len("  HTTP/2.0\r\nHost: \r\n\r\n") + len(r.host)
	for i := range r.fields {
		n += len(r.fields[i].name) + len(r.fields[i].value) + len(": \r\n")
	}
	return n
}

// stream2 is a request of HTTP/2. It implements stream.
type stream2 struct {
	c    *client
	w    http.ResponseWriter
	r    *http.Request
	rc   *http.ResponseController
	req  request
	idle time.Duration

	stopped sync.Mutex // held while a read deadline is set
	unread  bool
	stop    func() bool // ends what attach began
	total   int64
	waits   bool // something waits for flush
}

// body2 reads the request's body.
type body2 struct{ s *stream2 }

func (s *stream2) body() io.Reader { return body2{s} }

func (b body2) Read(p []byte) (int, error) {
	b.s.deadline(time.Now().Add(b.s.idle), false)
	return b.s.r.Body.Read(p)
}

// deadline sets the read deadline, unless reading has been stopped. It fails
// only for a stream that has ended, which Read says as well.
func (s *stream2) deadline(t time.Time, stop bool) {
	s.stopped.Lock()
	defer s.stopped.Unlock()
	if !s.unread {
		s.unread = stop
		_ = s.rc.SetReadDeadline(t)
	}
}

func (s *stream2) stopReading() { s.deadline(time.Unix(1, 0), true) }

func (s *stream2) arrived() []byte { return nil }

// skipBody has nothing to do: requests do not wait for each other.
func (s *stream2) skipBody() bool { return true }

// sendContinue is done by the server when the body is read.
func (s *stream2) sendContinue() error { return nil }

func (s *stream2) attach(t canceler) {
	s.stop = context.AfterFunc(s.r.Context(), func() { t.cancel(s.c.goneCause()) })
}

func (s *stream2) detach() bool { return s.stop() }

func (s *stream2) writeHead(a *answerHead) {
	h := s.w.Header()
	s.total += int64(len(":status: 200\r\n\r\n"))
	for i := range a.fields {
		if f := &a.fields[i]; f.passed() {
			h.Add(f.name, f.value)
			s.total += int64(len(f.name) + len(f.value) + len(": \r\n"))
		}
	}
	if h["Content-Type"] == nil {
		h["Content-Type"] = nil // or the server would guess one
	}
	for _, cookie := range a.cookies {
		h.Add("Set-Cookie", cookie)
	}
	if a.length >= 0 && a.status != http.StatusNoContent {
		h.Set("Content-Length", strconv.FormatInt(a.length, 10))
	}
	if a.last && s.c.keptTooLong() {
		h.Set("Connection", "close") // makes the server send GOAWAY
	}
	s.w.WriteHeader(a.status)
	s.waits = true
}

// keptTooLong says whether the connection is to end with this answer. An
// answer that ends a stream early is no reason.
func (c *client) keptTooLong() bool {
	return c.l.closing.Load() || time.Since(c.since) >= c.l.limits.Load().ClientKeepAlive
}

// limit bounds a write to a client that grants no window.
func (s *stream2) limit() {
	_ = s.rc.SetWriteDeadline(time.Now().Add(s.idle)) // fails only for a stream that has ended, as the write will
}

func (s *stream2) write(p []byte) error {
	s.limit()
	n, err := s.w.Write(p)
	s.total += int64(n)
	s.waits = true
	return err
}

func (s *stream2) flush() error {
	if !s.waits {
		return nil
	}
	s.waits = false
	s.limit()
	return s.rc.Flush()
}

// finish leaves the end of the stream to the server, which sends it with what
// waits.
func (s *stream2) finish() error { return nil }

func (s *stream2) sentTotal() int64 { return s.total }

// takeOver is not called: a request of HTTP/2 cannot offer an upgrade.
func (s *stream2) takeOver() (net.Conn, *guard, *bufio.Reader) {
	return s.c.net, s.c.guard, s.c.br
}
