package proxy

import (
	"bufio"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// targetConn is one connection to a target. One exchange at a time owns it;
// what the pool needs to know of it is guarded by the pool's mutex.
type targetConn struct {
	net    net.Conn
	isTLS  bool
	raw    syscall.RawConn
	br     *bufio.Reader // reads through Read below
	local  string
	pool   *Pool
	hangup uint64 // key in hangups

	// Guarded by pool.mu.
	prev, next *targetConn
	list       *connList // idle, busy or nil (closed)
	hungUp     bool
	idleSince  time.Time

	// idle is the timeout that any byte, in either direction, starts anew.
	// The kernel-side deadline is set only when it runs out: arming a timer
	// per byte would cost more than all else here. last is on the clock base.
	idle time.Duration
	last atomic.Int64
	// cause is why the exchange was cancelled, nil if it was not.
	cause atomic.Pointer[causeError]

	// clientGone is cancel(errClientGone), made once for context.AfterFunc.
	clientGone func()
	out        []byte // the request's head is built here
	peek       func(fd uintptr)
	peekErr    error
	peekByte   [1]byte
}

// base is where targetConn.last counts from.
var base = time.Now()

const connBuffer = 4 << 10

func newTargetConn(c net.Conn, p *Pool, idle time.Duration) (*targetConn, error) {
	tc := &targetConn{net: c, local: c.LocalAddr().String(), pool: p, idle: idle}
	tc.br = bufio.NewReaderSize(tc, connBuffer)
	tc.clientGone = func() { tc.cancel(errClientGone) }
	if t, ok := c.(*tls.Conn); ok {
		c, tc.isTLS = t.NetConn(), true
	}
	sc, ok := c.(syscall.Conn)
	if !ok {
		return nil, errors.New("connection to target has no descriptor")
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil, err
	}
	tc.raw = raw
	tc.peek = func(fd uintptr) {
		_, _, tc.peekErr = unix.Recvfrom(int(fd), tc.peekByte[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	}
	tc.last.Store(int64(time.Since(base)))
	return tc, tc.net.SetDeadline(time.Now().Add(idle))
}

// begin prepares the connection for one more exchange.
func (c *targetConn) begin(idle time.Duration) {
	c.touch()
	if c.idle != idle {
		c.idle = idle
		// The deadline that is set may be far beyond the new timeout. Failure
		// means that the connection is closed; the first write will say so.
		_ = c.net.SetDeadline(time.Now().Add(idle))
	}
}

// quiet says whether the connection is open and has nothing to read. Anything
// else between two exchanges (FIN, RST, or bytes that nobody asked for) means
// that it cannot be used.
func (c *targetConn) quiet() bool {
	if c.br.Buffered() > 0 {
		return false
	}
	if c.isTLS {
		// Unread bytes may be a session ticket. A close is noticed by hangups, if
		// a little later than here.
		return true
	}
	if err := c.raw.Control(c.peek); err != nil {
		return false
	}
	return errors.Is(c.peekErr, unix.EAGAIN)
}

func (c *targetConn) touch() { c.last.Store(int64(time.Since(base))) }

// cancel ends the exchange with cause, also from another goroutine. The
// connection cannot be used afterwards. The first cause stays.
func (c *targetConn) cancel(cause *causeError) {
	c.cause.CompareAndSwap(nil, cause)
	// An error means that the connection is closed already.
	_ = c.net.SetDeadline(time.Unix(1, 0))
}

// Read reads, and gives up when neither direction has moved a byte for the
// idle timeout.
func (c *targetConn) Read(p []byte) (int, error) {
	for {
		n, err := c.net.Read(p)
		if n > 0 {
			c.touch()
			return n, nil // a failure will show again
		}
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return 0, c.explain(err)
		}
		if err := c.rearm(c.net.SetReadDeadline); err != nil {
			return 0, err
		}
	}
}

// Write writes all of p, with the same rule for giving up as Read.
func (c *targetConn) Write(p []byte) (int, error) {
	done := 0
	for {
		n, err := c.net.Write(p[done:])
		done += n
		if n > 0 {
			c.touch()
		}
		if err == nil {
			return done, nil
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return done, c.explain(err)
		}
		if err := c.rearm(c.net.SetWriteDeadline); err != nil {
			return done, err
		}
	}
}

// rearm sets a deadline anew after it was exceeded, or says why not.
func (c *targetConn) rearm(set func(time.Time) error) error {
	if cause := c.cause.Load(); cause != nil {
		return cause
	}
	left := c.idle - (time.Since(base) - time.Duration(c.last.Load()))
	if left <= 0 {
		return errIdle
	}
	if err := set(time.Now().Add(left)); err != nil {
		return err
	}
	// cancel stores its cause before it sets the deadline; if it did both
	// since we looked, we have just undone the second.
	if cause := c.cause.Load(); cause != nil {
		return cause
	}
	return nil
}

// explain prefers the reason for which the connection was cancelled.
func (c *targetConn) explain(err error) error {
	if cause := c.cause.Load(); cause != nil {
		return cause
	}
	return err
}

// close closes the socket.
func (c *targetConn) close() {
	c.pool.hangups.forget(c.hangup)
	// Nothing is left to be flushed and nobody could use the error.
	_ = c.net.Close()
}
