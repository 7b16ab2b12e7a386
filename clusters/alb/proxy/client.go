package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"
)

// client is one connection of a client. Until ALPN chooses HTTP/2 it is served
// by one goroutine that reads a request, has it answered, and reads the next.
type client struct {
	peer
	l     *Listener
	guard *guard
	net   net.Conn // the guard, or TLS on it
	br    *bufio.Reader
	since time.Time
	key   uint64 // in Hangups
	state atomic.Int32
	http2 atomic.Pointer[http.Server]

	mu      sync.Mutex
	gone    *causeError // why nobody waits for an answer any more
	current canceler    // what waits for a target

	heads headReader
	req   request
	x     exchange
	http1
}

// States of a client's connection.
const (
	stateActive int32 = iota // a request is read or answered
	stateIdle                // waits for the first byte of a request
	stateClosed
)

// readers are for the time of one connection.
var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, connBuffer) }}

func newClient(l *Listener, nc net.Conn) (*client, error) {
	g, err := newGuard(nc, l.limits.Load().Idle)
	if err != nil {
		return nil, err
	}
	c := &client{l: l, guard: g, net: g, since: time.Now()}
	c.peer = peer{addr: nc.RemoteAddr().String(), local: nc.LocalAddr().String(), port: l.port, scheme: "http", http: "http", ws: "ws"}
	c.ip, _, _ = net.SplitHostPort(c.addr) // a TCP address always splits
	c.node, _, _ = net.SplitHostPort(c.local)
	c.req.peer = &c.peer
	c.x = exchange{l: l, s: c, req: &c.req}
	if c.key, err = l.o.Hangups.watch(g.raw, c); err != nil {
		return nil, err
	}
	return c, nil
}

// serve returns when the connection has been closed.
func (c *client) serve() {
	defer c.close()
	c.br = readers.Get().(*bufio.Reader)
	c.br.Reset(c.guard)
	defer func() {
		c.br.Reset(nil)
		readers.Put(c.br)
	}()
	if c.l.tls != nil && !c.handshake() {
		return
	}
	for c.await() && c.one() {
	}
}

func (c *client) close() {
	c.l.o.Hangups.forget(c.key)
	c.state.Store(stateClosed)
	_ = c.net.Close() // nobody could use the error
}

// handshake is TLS's. It is false if nothing more is to be done.
func (c *client) handshake() bool {
	c.guard.held = true
	t := tls.Server(c.guard, c.l.tls)
	err := t.HandshakeContext(context.Background())
	c.guard.held = false
	var plain tls.RecordHeaderError
	if errors.As(err, &plain) && plain.Conn != nil && httpguts.ValidHeaderFieldName(string(plain.RecordHeader[:3])) {
		// HTTP on an HTTPS port. An ALB says so in HTTP.
		c.req.reset()
		c.answerRefused(time.Now(), 0, http.StatusBadRequest)
		return false
	}
	if err != nil {
		return false
	}
	c.net = t
	c.br.Reset(t)
	state := t.ConnectionState()
	c.peer.scheme, c.peer.http, c.peer.ws = "https", "https", "wss"
	c.peer.cipher = cipherName(state.CipherSuite)
	c.peer.tlsVersion = strings.Replace(tls.VersionName(state.Version), "TLS ", "TLSv", 1)
	c.peer.serverName = state.ServerName
	if state.NegotiatedProtocol == "h2" {
		c.serveHTTP2(t)
		return false
	}
	return true
}

// cipherName is a cipher suite under the name that access logs have, which is
// OpenSSL's up to TLS 1.2.
func cipherName(id uint16) string {
	name := tls.CipherSuiteName(id)
	kx, cipher, ok := strings.Cut(strings.TrimPrefix(name, "TLS_"), "_WITH_")
	if !ok {
		return name
	}
	cipher = strings.TrimSuffix(strings.NewReplacer("AES_", "AES", "CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305", "_CBC_", "-").Replace(cipher), "_")
	return strings.ReplaceAll(kx+"-"+cipher, "_", "-")
}

// await waits for the first byte of a request.
func (c *client) await() bool {
	c.guard.begin(c.l.limits.Load().Idle)
	if c.br.Buffered() > 0 {
		return true
	}
	if !c.state.CompareAndSwap(stateActive, stateIdle) {
		return false
	}
	if c.l.closing.Load() && c.retire() {
		return false
	}
	if _, err := c.br.Peek(1); err != nil {
		return false
	}
	return c.state.CompareAndSwap(stateIdle, stateActive)
}

// retire closes the connection if it waits for a request of which nothing has
// come.
func (c *client) retire() bool {
	var p peeker // beside the goroutine that serves the connection
	p.init()
	if !p.quiet(c.guard.raw) || !c.state.CompareAndSwap(stateIdle, stateClosed) {
		return false
	}
	c.guard.cancel(errStopped)
	return true
}

// one serves one request, and says whether there may be another.
func (c *client) one() bool {
	// A head must be complete within the idle timeout: one byte now and then
	// does not hold a connection for ever.
	c.guard.held = true
	head, status, ok := c.readHead()
	c.guard.held = false
	if !ok {
		return false
	}
	now := time.Now()
	if status == 0 {
		status = c.req.parse(head)
	} else {
		c.req.reset()
	}
	if status != 0 {
		return c.answerRefused(now, len(head), status)
	}
	lim := c.l.limits.Load()
	c.x.last = c.req.last || c.l.closing.Load() || now.Sub(c.since) >= lim.ClientKeepAlive
	c.request(&c.req)
	c.x.run(now, len(head)+len("\r\n"), 0)
	return c.next(false)
}

// readHead returns a head, or the status with which it is refused. It is not
// ok if there is nobody to answer.
func (c *client) readHead() (head string, status int, ok bool) {
	if first, err := c.br.Peek(1); err != nil {
		return "", 0, false
	} else if b := first[0]; b != '\r' && b != '\n' && !httpguts.IsTokenRune(rune(b)) {
		return "", http.StatusBadRequest, true // a ClientHello would not have an end of a line
	}
	for range maxEmptyLines {
		head, err := c.heads.read(c.br, maxRequestHead)
		switch {
		case err == nil && head == "": // RFC 9112, 2.2: an empty line in front is ignored
			continue
		case err == nil:
			return head, 0, true
		case errors.Is(err, errHeadLimit):
			if line := bytes.IndexByte(c.heads.scratch, '\n'); line < 0 || line > maxRequestLine {
				return "", http.StatusRequestURITooLong, true
			}
			return "", http.StatusBadRequest, true
		case errors.Is(err, errIdle):
			return "", http.StatusRequestTimeout, true
		}
		return "", 0, false
	}
	return "", http.StatusBadRequest, true
}

// maxEmptyLines is our bound on empty lines in front of a request.
const maxEmptyLines = 4

// answerRefused answers a request that is not acceptable.
func (c *client) answerRefused(now time.Time, size, status int) bool {
	known := endKnown(status)
	if !known {
		c.req.length = 0
	}
	c.request(&c.req)
	c.x.last = c.req.last || c.l.closing.Load()
	c.x.run(now, size, status)
	return c.next(!known)
}

// next says whether the connection can be used again. If not, and something
// may still come from the client, that is read and dropped for a while: closing
// would send RST, which can overtake the answer.
func (c *client) next(unknown bool) bool {
	if c.x.cut {
		if c.untilClose() {
			c.guard.reset() // FIN would mean that the answer is complete
		}
		return false
	}
	unread := !c.skipBody() || unknown
	if !c.x.last && !unread {
		return true
	}
	if unread || c.br.Buffered() > 0 {
		c.linger()
	}
	return false
}

func (c *client) linger() {
	if !c.state.CompareAndSwap(stateActive, stateIdle) {
		return
	}
	if w, ok := c.net.(interface{ CloseWrite() error }); !ok || w.CloseWrite() != nil {
		return
	}
	c.guard.resumeReading()
	c.guard.begin(lingerTime)
	c.guard.held = true
	_, _ = io.Copy(io.Discard, c.br) // until it ends, however it does
}

// hungUp implements hangupWatcher. A client that only says that it will send no
// more counts as gone, as it does for net/http: FIN looks the same.
func (c *client) hungUp() { c.leave(errClientGone) }

// leave ends the exchange.
func (c *client) leave(cause *causeError) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone == nil {
		c.gone = cause
	}
	if c.current != nil {
		c.current.cancel(c.gone)
	}
}

// kill cuts the connection, whatever happens on it.
func (c *client) kill() {
	c.leave(errStopped)
	c.guard.cancel(errStopped)
}

// goneCause is why nobody waits for an answer any more.
func (c *client) goneCause() *causeError {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone == nil {
		return errClientGone // of one stream
	}
	return c.gone
}

func (c *client) attach(t canceler) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current = t
	if c.gone != nil {
		t.cancel(c.gone)
	}
}

func (c *client) detach() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current = nil
	return c.gone == nil
}
