package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Listener is one port of one load balancer node.
type Listener struct {
	o    ListenerOptions
	tcp  *net.TCPListener
	tls  *tls.Config
	addr netip.AddrPort
	port string

	router  atomic.Pointer[Router]
	limits  atomic.Pointer[Limits]
	closing atomic.Bool // answers are the last ones on their connections

	mu      sync.Mutex
	clients map[*client]struct{} // nil after Close
	serving sync.WaitGroup       // the accept loop and the clients
}

// Listen takes the port; Start begins to serve it.
func Listen(o ListenerOptions) (*Listener, error) {
	if o.Hangups == nil {
		return nil, errors.New("listen: Hangups is not set")
	}
	tcp, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(o.Address))
	if err != nil {
		return nil, err
	}
	if o.Metrics == nil {
		o.Metrics = noMetrics{}
	}
	if o.Messages == nil {
		o.Messages = io.Discard
	}
	l := &Listener{o: o, tcp: tcp, clients: make(map[*client]struct{})}
	l.addr = tcp.Addr().(*net.TCPAddr).AddrPort()
	l.addr = netip.AddrPortFrom(l.addr.Addr().Unmap(), l.addr.Port())
	l.port = strconv.Itoa(int(l.addr.Port()))
	if o.TLS != nil {
		l.tls = o.TLS.Clone()
		l.tls.NextProtos = []string{"h2", "http/1.1"}
	}
	return l, nil
}

// Addr is where it listens.
func (l *Listener) Addr() netip.AddrPort { return l.addr }

// Start begins to serve.
func (l *Listener) Start(r Router, lim Limits) {
	l.SetRouter(r)
	l.SetLimits(lim)
	l.serving.Go(l.accept)
}

// SetRouter changes what the next requests are routed by.
func (l *Listener) SetRouter(r Router) { l.router.Store(&r) }

// SetLimits changes the limits from the next request of a connection on.
func (l *Listener) SetLimits(lim Limits) { l.limits.Store(lim.withDefaults()) }

// Bounds of the pause after a connection that could not be accepted.
const (
	minAcceptPause = 5 * time.Millisecond
	maxAcceptPause = time.Second
)

func (l *Listener) accept() {
	pause := minAcceptPause
	for {
		nc, err := l.tcp.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, most likely
			l.reject(err)
			time.Sleep(pause)
			pause = min(2*pause, maxAcceptPause)
			continue
		}
		pause = minAcceptPause
		c, err := newClient(l, nc)
		if err != nil {
			l.reject(err)
			_ = nc.Close() // err says what matters
			continue
		}
		if !l.add(c) {
			c.close()
			return
		}
		l.o.Metrics.ConnectionOpened()
		l.serving.Go(func() {
			defer l.remove(c)
			c.serve()
		})
	}
}

func (l *Listener) reject(err error) {
	l.o.Metrics.ConnectionRejected()
	fmt.Fprintf(l.o.Messages, "accept on %s: %v\n", l.addr, err)
}

func (l *Listener) add(c *client) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.clients == nil {
		return false
	}
	l.clients[c] = struct{}{}
	return true
}

func (l *Listener) remove(c *client) {
	l.mu.Lock()
	delete(l.clients, c)
	l.mu.Unlock()
	l.o.Metrics.ConnectionClosed()
}

// Stop stops accepting.
func (l *Listener) Stop() {
	_ = l.tcp.Close() // closing twice is harmless
}

// Shutdown stops accepting, closes connections without a request, and waits
// for the others to answer theirs, until ctx ends. Close must follow.
func (l *Listener) Shutdown(ctx context.Context) {
	l.Stop()
	l.closing.Store(true)
	l.mu.Lock()
	for c := range l.clients {
		c.shutdown()
	}
	l.mu.Unlock()
	done := make(chan struct{})
	go func() { // ends with Close at the latest
		l.serving.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// Close drops every connection and returns when the last request has ended.
func (l *Listener) Close() {
	l.Stop()
	l.mu.Lock()
	for c := range l.clients {
		c.kill()
	}
	l.clients = nil
	l.mu.Unlock()
	l.serving.Wait()
}
