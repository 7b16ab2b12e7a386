package proxy

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// Pool keeps one load balancer node's connections to one target. It is shared
// by all clients: client and target connections are not paired (AWS user
// guide, What is an Application Load Balancer: request routing).
type Pool struct {
	o PoolOptions

	mu       sync.Mutex
	idleTime time.Duration // the load balancer's idle timeout
	idle     connList      // oldest first
	busy     connList
	timer    *time.Timer // runs while idle is not empty
	draining bool        // nothing returns to idle
	closed   *causeError // nothing can be got any more

	life context.Context // ends with Close
	end  context.CancelFunc
}

// NewPool makes an empty pool.
func NewPool(o PoolOptions) *Pool {
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	set(&o.Idle, defaultIdle)
	set(&o.ConnectTimeout, defaultConnectTimeout)
	set(&o.HandshakeTimeout, defaultHandshakeTimeout)
	if o.Dial == nil {
		o.Dial = func(ctx context.Context, addr string, timeout time.Duration) (net.Conn, error) {
			d := net.Dialer{Timeout: timeout, KeepAlive: -1}
			return d.DialContext(ctx, "tcp", addr)
		}
	}
	if o.Metrics == nil {
		o.Metrics = noMetrics{}
	}
	if o.TLS != nil {
		o.TLS = o.TLS.Clone()
		o.TLS.InsecureSkipVerify = true
		o.TLS.NextProtos = nil // HTTP/1.1 is all that is spoken
	}
	p := &Pool{o: o, idleTime: o.Idle}
	p.life, p.end = context.WithCancel(context.Background())
	return p
}

// Addr is the target's address and port.
func (p *Pool) Addr() string { return p.o.Addr }

// take takes an idle connection. Without one c is nil, and open is next.
//
// An idle connection that the target has closed is not handed out when the
// kernel has reported the close. A close that is still on its way cannot be
// seen: then the request is sent, and the client gets a 502. An ALB has the
// same race (AWS user guide, Troubleshooting: HTTP 502, keep-alive of the
// target shorter than the idle timeout).
func (p *Pool) take() (c *targetConn, err error) {
	for {
		p.mu.Lock()
		if p.closed != nil {
			p.mu.Unlock()
			return nil, p.closed
		}
		idle := p.idleTime
		if p.o.Order == PoolFIFO {
			c = p.idle.first
		} else {
			c = p.idle.last
		}
		if c == nil {
			p.mu.Unlock()
			return nil, nil
		}
		p.idle.remove(c)
		p.busy.add(c)
		p.mu.Unlock()
		if c.quiet() {
			c.begin(idle)
			return c, nil
		}
		p.drop(c)
	}
}

// open connects. Both the end of ctx, whose cause is returned, and the pool's
// end the attempt.
func (p *Pool) open(ctx context.Context) (*targetConn, error) {
	attempt, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.life, cancel)()
	c, err := p.connect(attempt)
	p.mu.Lock()
	closed := p.closed
	if closed == nil && err == nil {
		p.busy.add(c)
	}
	p.mu.Unlock()
	var cause *causeError
	switch {
	case closed != nil:
		if err == nil {
			c.close()
		}
		return nil, closed
	case err != nil && errors.As(context.Cause(ctx), &cause):
		return nil, cause
	case err != nil && ctx.Err() != nil:
		return nil, errClientGone
	}
	return c, err
}

// connect makes a connection that is in no list yet.
func (p *Pool) connect(ctx context.Context) (*targetConn, error) {
	nc, err := p.o.Dial(ctx, p.o.Addr, p.o.ConnectTimeout)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	idle := p.idleTime
	p.mu.Unlock()
	c, err := newTargetConn(nc, p, idle)
	if err != nil {
		_ = nc.Close() // err says what matters
		return nil, err
	}
	if p.o.TLS == nil {
		return c, nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.o.HandshakeTimeout)
	defer cancel()
	if err := c.handshake(ctx, p.o.TLS); err != nil {
		c.close()
		return nil, errTLS // whatever it was, the log has one name for it
	}
	return c, nil
}

// put returns a connection after a complete exchange.
func (p *Pool) put(c *targetConn) {
	p.mu.Lock()
	if c.list == nil { // closed meanwhile
		p.mu.Unlock()
		return
	}
	p.busy.remove(c)
	if c.gone || c.cause.Load() != nil || p.draining || p.closed != nil {
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
	c.gone = true
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

// Drain is for a target that gets no new requests. With closeIdle its idle
// connections are closed at once and nothing is kept for reuse any more;
// otherwise they stay until their idle timeout. AWS does not publish which it
// is.
func (p *Pool) Drain(closeIdle bool) {
	p.mu.Lock()
	var idle []*targetConn
	if closeIdle {
		p.draining = true
		idle = p.idle.removeAll()
	}
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

// Close ends every exchange with the cause and closes every connection.
func (p *Pool) Close(c Cause) {
	cause := c.err
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

// Size is the number of idle and of busy connections; a busy one is a request
// in flight.
func (p *Pool) Size() (idle, busy int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.idle.len, p.busy.len
}
