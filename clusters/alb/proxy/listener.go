package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"lameduck/clusters/alb/accesslog"
)

// Limits are the attributes of a load balancer.
type Limits struct {
	Idle            time.Duration // idle_timeout.timeout_seconds
	ClientKeepAlive time.Duration // client_keep_alive.seconds
}

// Metrics counts clients' connections.
type Metrics interface {
	ConnectionOpened()
	ConnectionClosed()
}

// ListenerOptions describe a listener.
type ListenerOptions struct {
	Address netip.AddrPort // port 0: any that is free
	// TLS has the certificates of an HTTPS listener, which speaks HTTP/2 and
	// HTTP/1.1; nil: an HTTP listener, which speaks HTTP/1.1.
	TLS     *tls.Config
	Sink    accesslog.Sink
	Metrics Metrics // nil: none
	// Messages is for people, a line each. Safe for concurrent use.
	Messages io.Writer
}

// Listener is one port of one load balancer node.
type Listener struct {
	tcp     *net.TCPListener
	tls     *tls.Config
	addr    netip.AddrPort
	node    string
	port    string
	scheme  string
	sink    accesslog.Sink
	metrics Metrics
	errors  *log.Logger
	router  atomic.Pointer[Router]
	limits  atomic.Pointer[Limits]

	mu      sync.Mutex
	servers []*http.Server // the last one accepts
	serving sync.WaitGroup // accept loops

	// gate is held for reading by every request; closing waits for them.
	gate   sync.RWMutex
	closed bool
}

// clientConn is what is known of a client's connection.
type clientConn struct {
	ip    string
	local string // the load balancer's end
	since time.Time
	tls   *clientTLS // nil before the first request, and without TLS
}

type clientTLS struct{ cipher, protocol, serverName string }

type clientConnKey struct{}

// Listen takes the port; Start begins to serve it.
func Listen(o ListenerOptions) (*Listener, error) {
	tcp, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(o.Address))
	if err != nil {
		return nil, err
	}
	addr := netip.AddrPortFrom(o.Address.Addr(), uint16(tcp.Addr().(*net.TCPAddr).Port))
	l := &Listener{
		tcp: tcp, tls: o.TLS, addr: addr, node: addr.Addr().String(), port: strconv.Itoa(int(addr.Port())), scheme: "http",
		sink: o.Sink, metrics: o.Metrics, errors: log.New(o.Messages, "", log.LstdFlags),
	}
	if o.TLS != nil {
		l.scheme = "https"
	}
	return l, nil
}

// Addr is where it listens.
func (l *Listener) Addr() netip.AddrPort { return l.addr }

// Start begins to serve.
func (l *Listener) Start(r Router, lim Limits) {
	l.SetRouter(r)
	l.limits.Store(&lim)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.serve(lim)
}

// SetRouter applies to requests from now on.
func (l *Listener) SetRouter(r Router) { l.router.Store(&r) }

// serve starts a server on the socket. Callers hold mu.
func (l *Listener) serve(lim Limits) {
	s := &http.Server{
		Handler:  l,
		ErrorLog: l.errors,
		// The idle timeout also bounds a head that does not come.
		IdleTimeout:       lim.Idle,
		ReadHeaderTimeout: lim.Idle,
		MaxHeaderBytes:    serverMaxHeadBytes,
		ConnState:         l.connState,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			ip, _, _ := net.SplitHostPort(c.RemoteAddr().String()) // a TCP address always splits
			return context.WithValue(ctx, clientConnKey{}, &clientConn{ip: ip, local: c.LocalAddr().String(), since: time.Now()})
		},
	}
	l.servers = append(l.servers, s)
	l.serving.Go(func() {
		var err error
		if l.tls != nil {
			s.TLSConfig = l.tls.Clone()
			err = s.ServeTLS(lent{l.tcp}, "", "")
		} else {
			err = s.Serve(lent{l.tcp})
		}
		// Serve ends when the socket is lent to another server, or closed.
		if !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, errTakenBack) && !errors.Is(err, net.ErrClosed) {
			l.errors.Printf("listener on port %s stopped: %v", l.port, err)
		}
	})
}

func (l *Listener) connState(_ net.Conn, s http.ConnState) {
	if l.metrics == nil {
		return
	}
	switch s {
	case http.StateNew:
		l.metrics.ConnectionOpened()
	case http.StateClosed, http.StateHijacked: // a tunnel counts as a connection until it is one
		l.metrics.ConnectionClosed()
	}
}

// SetLimits applies changed attributes. http.Server's timeouts are fixed, so a
// new one takes the socket over; connections that exist keep what they have.
func (l *Listener) SetLimits(lim Limits) error {
	old := l.limits.Swap(&lim)
	if old.Idle == lim.Idle {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.tcp.SetDeadline(time.Unix(1, 0)); err != nil {
		return err
	}
	l.serving.Wait()
	if err := l.tcp.SetDeadline(time.Time{}); err != nil {
		return err
	}
	l.serve(lim)
	return nil
}

var errTakenBack = errors.New("socket lent to another server")

// lent is a socket that outlives the server that accepts from it.
type lent struct{ *net.TCPListener }

func (l lent) Accept() (net.Conn, error) {
	c, err := l.AcceptTCP()
	if err != nil {
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			return nil, errTakenBack
		}
		return nil, err
	}
	return c, nil
}

func (l lent) Close() error { return nil }

// ServeHTTP implements http.Handler.
func (l *Listener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	l.gate.RLock()
	defer l.gate.RUnlock()
	if l.closed {
		panic(http.ErrAbortHandler)
	}
	x := exchanges.Get().(*exchange)
	x.l, x.w, x.r, x.cut = l, w.(responseWriter), r, false
	x.client = clientOf(r)
	x.run(now)
	cut := x.cut
	x.w, x.r, x.client, x.cookies, x.relay = nil, nil, nil, nil, relay{}
	exchanges.Put(x)
	if cut {
		panic(http.ErrAbortHandler) // the only way to tell http.Server
	}
}

// clientOf is the connection that a request came on. Requests of one HTTP/2
// connection run side by side, so what TLS agreed on is not kept.
func clientOf(r *http.Request) *clientConn {
	c := r.Context().Value(clientConnKey{}).(*clientConn)
	if r.TLS == nil {
		return c
	}
	withTLS := *c
	withTLS.tls = &clientTLS{
		cipher: tls.CipherSuiteName(r.TLS.CipherSuite), protocol: protocolName(r.TLS.Version), serverName: r.TLS.ServerName,
	}
	return &withTLS
}

// protocolName is a version of TLS as access logs name it: TLSv1.2.
func protocolName(version uint16) string {
	switch version {
	case tls.VersionTLS13:
		return "TLSv1.3"
	case tls.VersionTLS12:
		return "TLSv1.2"
	}
	return tls.VersionName(version)
}

// Shutdown stops accepting and waits for requests in flight until ctx ends.
func (l *Listener) Shutdown(ctx context.Context) {
	l.mu.Lock()
	servers := l.servers
	l.mu.Unlock()
	l.Stop()
	for _, s := range servers {
		if err := s.Shutdown(ctx); err != nil {
			return // ctx ended; Close follows
		}
	}
}

// Stop stops accepting.
func (l *Listener) Stop() {
	_ = l.tcp.Close() // closing twice is harmless
}

// Close drops every connection and returns when the last request has ended.
// The connections to targets must have been closed before, or it waits for
// their answers.
func (l *Listener) Close() {
	l.Stop()
	l.mu.Lock()
	for _, s := range l.servers {
		_ = s.Close() // of connections that are gone already
	}
	l.mu.Unlock()
	l.serving.Wait()
	l.gate.Lock()
	l.closed = true
	l.gate.Unlock()
}
