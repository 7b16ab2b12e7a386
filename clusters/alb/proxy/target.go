package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"net"
	"time"
)

// targetConn is one connection to a target. One exchange at a time owns it;
// what the pool needs to know of it is guarded by the pool's mutex.
type targetConn struct {
	*guard
	net   net.Conn      // the guard, or TLS on it
	br    *bufio.Reader // reads from net
	local string
	pool  *Pool
	key   uint64 // in Hangups

	// Guarded by pool.mu.
	prev, next *targetConn
	list       *connList // idle, busy or nil (closed)
	gone       bool      // the target has closed it
	idleSince  time.Time

	out []byte // the request's head is built here
}

const connBuffer = 4 << 10

func newTargetConn(c net.Conn, p *Pool, idle time.Duration) (*targetConn, error) {
	g, err := newGuard(c, idle)
	if err != nil {
		return nil, err
	}
	tc := &targetConn{guard: g, net: g, local: c.LocalAddr().String(), pool: p}
	tc.br = bufio.NewReaderSize(g, connBuffer)
	if tc.key, err = p.o.Hangups.watch(g.raw, tc); err != nil {
		return nil, err
	}
	p.o.Metrics.ConnectionOpened()
	return tc, nil
}

func (c *targetConn) handshake(ctx context.Context, config *tls.Config) error {
	t := tls.Client(c.guard, config)
	if err := t.HandshakeContext(ctx); err != nil {
		return err
	}
	c.net = t
	c.br.Reset(t)
	return nil
}

// Write shadows the guard's.
func (c *targetConn) Write(p []byte) (int, error) { return c.net.Write(p) }

// quiet says whether the connection is open and has nothing to read. Anything
// else between two exchanges (FIN, RST, or bytes that nobody asked for) means
// that it cannot be used.
func (c *targetConn) quiet() bool { return c.br.Buffered() == 0 && c.guard.quiet() }

// hungUp implements hangupWatcher.
func (c *targetConn) hungUp() { c.pool.hungUp(c) }

// close closes the socket.
func (c *targetConn) close() {
	c.pool.o.Hangups.forget(c.key)
	// Nothing is left to be flushed and nobody could use the error. TLS would
	// wait for its last alert to be sent, to a target that may be gone.
	_ = c.guard.Close()
	c.pool.o.Metrics.ConnectionClosed()
}
