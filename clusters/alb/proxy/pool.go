package proxy

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"
)

// PoolOrder is the order in which idle connections to a target are reused.
type PoolOrder string

// The pool orders. AWS does not publish which one an ALB has.
const (
	PoolLIFO PoolOrder = "lifo" // the one used last; the others grow old
	PoolFIFO PoolOrder = "fifo" // the one idle longest; all stay young
)

// Cause is why a pool is closed.
type Cause struct{ err *causeError }

// The causes.
var (
	CauseDeregistered = Cause{errDeregistered} // requests in flight get a 502
	CauseStopped      = Cause{errStopped}      // their clients are cut
)

// PoolOptions say how connections to one target are made and kept.
type PoolOptions struct {
	Addr string // host:port
	Idle time.Duration
	// Order in which idle connections are reused; default PoolLIFO.
	Order PoolOrder
	// ConnectTimeout bounds a connection without its TLS handshake; then 504.
	ConnectTimeout time.Duration
	// TLS, if set, is spoken to the target; its certificate is not validated.
	TLS     bool
	Hangups *Hangups
	// Dial opens the connection.
	Dial func(ctx context.Context, addr string, timeout time.Duration) (net.Conn, error)
}

// Pool keeps the connections of one load balancer node to one target. It is
// shared by all clients: client and target connections are not paired (AWS user
// guide, What is an Application Load Balancer: request routing).
type Pool struct {
	options PoolOptions
	hangups *Hangups

	mu       sync.Mutex
	idleTime time.Duration // the load balancer's idle timeout
	idle     connList      // oldest first
	busy     connList
	timer    *time.Timer // runs while idle is not empty
	draining bool        // nothing returns to idle
	closed   *causeError // nothing can be got any more

	life context.Context // ends with close
	end  context.CancelFunc
}

// NewPool makes an empty pool.
func NewPool(o PoolOptions) *Pool {
	p := &Pool{options: o, hangups: o.Hangups, idleTime: o.Idle}
	p.life, p.end = context.WithCancel(context.Background())
	return p
}

// get takes an idle connection or opens one. ctx is the client's request: if
// it ends while connecting, so does the attempt.
//
// An idle connection that the target has closed is not handed out when the
// kernel has reported the close. A close that is still on its way cannot be
// seen: then the request is sent, and the client gets a 502. An ALB has the
// same race (AWS user guide, Troubleshooting: HTTP 502, keep-alive of the
// target shorter than the idle timeout).
func (p *Pool) get(ctx context.Context) (c *targetConn, reused bool, err error) {
	for {
		p.mu.Lock()
		if p.closed != nil {
			p.mu.Unlock()
			return nil, false, p.closed
		}
		idle := p.idleTime
		if p.options.Order == PoolFIFO {
			c = p.idle.first
		} else {
			c = p.idle.last
		}
		if c != nil {
			p.idle.remove(c)
			p.busy.add(c)
		}
		p.mu.Unlock()
		if c == nil {
			c, err := p.open(ctx, idle)
			return c, false, err
		}
		if c.quiet() {
			c.begin(idle)
			return c, true, nil
		}
		p.drop(c)
	}
}

// open connects. Both the end of ctx and the pool's end the attempt.
func (p *Pool) open(ctx context.Context, idle time.Duration) (*targetConn, error) {
	attempt, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.life, cancel)()
	nc, err := p.connect(attempt)
	if err != nil {
		p.mu.Lock()
		closed := p.closed
		p.mu.Unlock()
		switch {
		case closed != nil:
			return nil, closed
		case ctx.Err() != nil:
			return nil, errClientGone
		}
		return nil, err
	}
	c, err := newTargetConn(nc, p, idle)
	if err == nil {
		err = p.hangups.watch(c)
	}
	if err != nil {
		_ = nc.Close() // err says what matters
		return nil, err
	}
	p.mu.Lock()
	closed := p.closed
	if closed == nil {
		p.busy.add(c)
	}
	p.mu.Unlock()
	if closed != nil {
		c.close()
		return nil, closed
	}
	return c, nil
}

// tlsTimeout bounds the TLS handshake with a target; then 502 (AWS user guide,
// Troubleshooting: HTTP 502, TLS handshake).
const tlsTimeout = 10 * time.Second

// connect dials and, if the target speaks TLS, shakes hands. Certificates of
// targets are not validated (AWS user guide, Target groups: protocol HTTPS).
func (p *Pool) connect(ctx context.Context) (net.Conn, error) {
	nc, err := p.options.Dial(ctx, p.options.Addr, p.options.ConnectTimeout)
	if err != nil || !p.options.TLS {
		return nc, err
	}
	ctx, cancel := context.WithTimeout(ctx, tlsTimeout)
	defer cancel()
	tc := tls.Client(nc, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	if err := tc.HandshakeContext(ctx); err != nil {
		_ = nc.Close() // err says what matters
		return nil, errTLS
	}
	return tc, nil
}

// put returns a connection after a complete exchange.
func (p *Pool) put(c *targetConn) {
	p.mu.Lock()
	if c.list == nil { // closed meanwhile
		p.mu.Unlock()
		return
	}
	p.busy.remove(c)
	if c.hungUp || c.cause.Load() != nil || p.draining || p.closed != nil {
		p.mu.Unlock()
		c.close()
		return
	}
	c.idleSince = time.Now()
	p.idle.add(c)
	if p.idle.first == c {
		p.arm(p.idleTime)
	}
	p.mu.Unlock()
}

// drop closes a connection that cannot be used again.
func (p *Pool) drop(c *targetConn) {
	p.mu.Lock()
	open := c.list != nil
	if open {
		c.list.remove(c)
	}
	p.mu.Unlock()
	if open {
		c.close()
	}
}

// hungUp is told that the target has closed c. In an exchange the reader sees
// it itself.
func (p *Pool) hungUp(c *targetConn) {
	p.mu.Lock()
	c.hungUp = true
	wasIdle := c.list == &p.idle
	if wasIdle {
		p.idle.remove(c)
	}
	p.mu.Unlock()
	if wasIdle {
		c.close()
	}
}

// arm starts the idle timer. Callers hold mu.
func (p *Pool) arm(d time.Duration) {
	if p.timer == nil {
		p.timer = time.AfterFunc(d, p.expire)
	} else {
		p.timer.Reset(d)
	}
}

// expire closes the connections whose idle timeout is over.
func (p *Pool) expire() {
	p.mu.Lock()
	var over []*targetConn
	for c := p.idle.first; c != nil; c = p.idle.first {
		if left := p.idleTime - time.Since(c.idleSince); left > 0 {
			p.arm(left)
			break
		}
		p.idle.remove(c)
		over = append(over, c)
	}
	p.mu.Unlock()
	for _, c := range over {
		c.close()
	}
}

// SetIdleTimeout applies to connections that are idle now, too.
func (p *Pool) SetIdleTimeout(d time.Duration) {
	p.mu.Lock()
	changed := p.idleTime != d
	p.idleTime = d
	p.mu.Unlock()
	if changed {
		p.expire()
	}
}

// Drain is for a target that gets no new requests. With closeIdle nothing is
// kept for reuse and idle connections are closed; else they stay until their
// idle timeout. AWS does not publish which an ALB does.
func (p *Pool) Drain(closeIdle bool) {
	if !closeIdle {
		return
	}
	p.mu.Lock()
	p.draining = true
	idle := p.idle.removeAll()
	p.mu.Unlock()
	for _, c := range idle {
		c.close()
	}
}

// Resume is for a draining target that is registered again.
func (p *Pool) Resume() {
	p.mu.Lock()
	p.draining = false
	p.mu.Unlock()
}

// Close ends every exchange with cause and closes every connection.
func (p *Pool) Close(why Cause) {
	cause := why.err
	p.mu.Lock()
	if p.closed == nil {
		p.closed = cause
	}
	if p.timer != nil {
		p.timer.Stop()
	}
	idle := p.idle.removeAll()
	for c := p.busy.first; c != nil; c = c.next {
		c.cancel(cause) // its exchange will drop it
	}
	p.mu.Unlock()
	p.end()
	for _, c := range idle {
		c.close()
	}
}

// Size is the number of idle and of busy connections.
func (p *Pool) Size() (idle, busy int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.idle.len, p.busy.len
}

// connList is a doubly linked list through the connections themselves: moving
// one between idle and busy allocates nothing.
type connList struct {
	first, last *targetConn
	len         int
}

func (l *connList) add(c *targetConn) {
	c.list, c.prev, c.next = l, l.last, nil
	if l.last != nil {
		l.last.next = c
	} else {
		l.first = c
	}
	l.last = c
	l.len++
}

func (l *connList) remove(c *targetConn) {
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		l.first = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	} else {
		l.last = c.prev
	}
	c.list, c.prev, c.next = nil, nil, nil
	l.len--
}

func (l *connList) removeAll() []*targetConn {
	all := make([]*targetConn, 0, l.len)
	for c := l.first; c != nil; c = l.first {
		l.remove(c)
		all = append(all, c)
	}
	return all
}
