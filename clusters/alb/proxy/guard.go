package proxy

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// guard is a TCP connection, a client's or a target's, that gives up when
// neither direction has moved a byte for the idle timeout, and that another
// goroutine can cancel with a cause. TLS goes on top of it.
//
// The kernel-side deadline is set only when it runs out: arming a timer per
// byte would cost more than all else here.
type guard struct {
	net.Conn
	raw syscall.RawConn

	// idle is the timeout, 0 for none. It changes between exchanges only.
	idle time.Duration
	// last is when a byte moved, on the clock base.
	last atomic.Int64
	// cause is why the connection was cancelled, nil if it was not.
	cause atomic.Pointer[causeError]
	// held is set while bytes that are read do not start the timeout anew.
	held bool
	// unread is set while the reader is to be woken up, and not to go on.
	unread atomic.Bool

	peeker
}

// base is where guard.last counts from.
var base = time.Now()

func newGuard(c net.Conn, idle time.Duration) (*guard, error) {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return nil, errors.New("connection has no descriptor")
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil, err
	}
	g := &guard{Conn: c, raw: raw}
	g.peeker.init()
	g.begin(idle)
	return g, nil
}

// begin starts the timeout anew, with another length if it has changed.
func (g *guard) begin(idle time.Duration) {
	g.touch()
	if g.idle == idle {
		return
	}
	g.idle = idle
	var deadline time.Time
	if idle > 0 {
		deadline = time.Now().Add(idle)
	}
	// The deadline that is set may be far beyond the new timeout. Failure means
	// that the connection is closed; the next read or write will say so.
	_ = g.Conn.SetDeadline(deadline)
}

func (g *guard) touch() { g.last.Store(int64(time.Since(base))) }

// cancel ends whatever uses the connection with cause, also from another
// goroutine. The connection cannot be used afterwards. The first cause stays.
func (g *guard) cancel(cause *causeError) {
	g.cause.CompareAndSwap(nil, cause)
	// An error means that the connection is closed already.
	_ = g.Conn.SetDeadline(time.Unix(1, 0))
}

// stopReading makes reads fail with os.ErrDeadlineExceeded until resumeReading.
func (g *guard) stopReading() {
	g.unread.Store(true)
	_ = g.Conn.SetReadDeadline(time.Unix(1, 0)) // fails only if there is no one to read from
}

func (g *guard) resumeReading() {
	g.unread.Store(false)
	g.touch()
}

// Read reads, and gives up as described above. The time before it does not
// count: nobody looked whether there was a byte.
func (g *guard) Read(p []byte) (int, error) {
	if !g.held {
		g.touch()
	}
	for {
		n, err := g.Conn.Read(p)
		if n > 0 {
			if !g.held {
				g.touch()
			}
			return n, nil // a failure will show again
		}
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return 0, g.explain(err)
		}
		if g.unread.Load() {
			return 0, err
		}
		if err := g.rearm(g.Conn.SetReadDeadline); err != nil {
			return 0, err
		}
		if g.unread.Load() { // stopReading's deadline has just been undone
			return 0, os.ErrDeadlineExceeded
		}
	}
}

// Write writes all of p, with the same rule for giving up as Read. The time
// before it does not count.
func (g *guard) Write(p []byte) (int, error) {
	g.touch()
	done := 0
	for {
		n, err := g.Conn.Write(p[done:])
		done += n
		if n > 0 && err != nil {
			g.touch()
		}
		if err == nil {
			return done, nil
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return done, g.explain(err)
		}
		if err := g.rearm(g.Conn.SetWriteDeadline); err != nil {
			return done, err
		}
	}
}

// rearm sets a deadline anew after it was exceeded, or says why not.
func (g *guard) rearm(set func(time.Time) error) error {
	if cause := g.cause.Load(); cause != nil {
		return cause
	}
	if g.idle == 0 {
		return os.ErrDeadlineExceeded // set by who uses the connection
	}
	left := g.idle - (time.Since(base) - time.Duration(g.last.Load()))
	if left <= 0 {
		return errIdle
	}
	if err := set(time.Now().Add(left)); err != nil {
		return g.explain(err)
	}
	// cancel stores its cause before it sets the deadline; if it did both
	// since we looked, we have just undone the second.
	if cause := g.cause.Load(); cause != nil {
		return cause
	}
	return nil
}

// explain prefers the reason for which the connection was cancelled.
func (g *guard) explain(err error) error {
	if cause := g.cause.Load(); cause != nil {
		return cause
	}
	return err
}

// quiet says whether the connection is open and has nothing to read.
func (g *guard) quiet() bool { return g.peeker.quiet(g.raw) }

// peeker looks at what can be read from a connection. One is for one goroutine
// at a time; it is kept because a closure made for each look would be on the
// heap.
type peeker struct {
	look func(fd uintptr)
	err  error
	b    [1]byte
}

func (p *peeker) init() {
	p.look = func(fd uintptr) {
		_, _, p.err = unix.Recvfrom(int(fd), p.b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	}
}

func (p *peeker) quiet(raw syscall.RawConn) bool {
	return raw.Control(p.look) == nil && errors.Is(p.err, unix.EAGAIN)
}

// CloseWrite sends FIN.
func (g *guard) CloseWrite() error {
	if c, ok := g.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}

// reset makes Close send RST instead of FIN.
func (g *guard) reset() {
	if c, ok := g.Conn.(interface{ SetLinger(int) error }); ok {
		_ = c.SetLinger(0) // fails only on a closed connection
	}
}
