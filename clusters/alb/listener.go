package alb

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// limits are the attributes of a load balancer.
type limits struct {
	idle            time.Duration
	clientKeepAlive time.Duration
}

// listener is one port of one Ingress.
type listener struct {
	tcp        *net.TCPListener
	portString string
	log        *accessLog
	errors     *log.Logger
	routes     atomic.Pointer[routes]
	limits     atomic.Pointer[limits]

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
}

type clientConnKey struct{}

// listen takes the port; start begins to serve it.
func listen(address string, port uint16, al *accessLog, messages io.Writer) (*listener, error) {
	nl, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(int(port))))
	if err != nil {
		return nil, err
	}
	tcp := nl.(*net.TCPListener)
	_, portString, err := net.SplitHostPort(tcp.Addr().String())
	if err != nil {
		return nil, errors.Join(err, tcp.Close())
	}
	return &listener{tcp: tcp, portString: portString, log: al, errors: log.New(messages, "", log.LstdFlags)}, nil
}

func (l *listener) start(lim limits, r *routes) {
	l.routes.Store(r)
	l.limits.Store(&lim)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.serve(lim)
}

// serve starts a server on the socket. Callers hold mu.
func (l *listener) serve(lim limits) {
	s := &http.Server{
		Handler:  l,
		ErrorLog: l.errors,
		// The idle timeout also bounds a head that does not come.
		IdleTimeout:       lim.idle,
		ReadHeaderTimeout: lim.idle,
		MaxHeaderBytes:    serverMaxHeadBytes,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			ip, _, _ := net.SplitHostPort(c.RemoteAddr().String()) // a TCP address always splits
			return context.WithValue(ctx, clientConnKey{}, &clientConn{ip: ip, local: c.LocalAddr().String(), since: time.Now()})
		},
	}
	l.servers = append(l.servers, s)
	l.serving.Go(func() {
		// Serve ends when the socket is lent to another server, or closed.
		if err := s.Serve(lent{l.tcp}); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, errTakenBack) && !errors.Is(err, net.ErrClosed) {
			l.errors.Printf("listener on port %s stopped: %v", l.portString, err)
		}
	})
}

// setLimits applies changed attributes. http.Server's timeouts are fixed, so a
// new one takes the socket over; connections that exist keep what they have.
func (l *listener) setLimits(lim limits) error {
	old := l.limits.Swap(&lim)
	if old.idle == lim.idle {
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
func (l *listener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	l.gate.RLock()
	defer l.gate.RUnlock()
	if l.closed {
		panic(http.ErrAbortHandler)
	}
	x := exchanges.Get().(*exchange)
	x.l, x.w, x.r, x.cut = l, w.(responseWriter), r, false
	x.run(now, r.Context().Value(clientConnKey{}).(*clientConn))
	cut := x.cut
	x.w, x.r, x.relay = nil, nil, relay{}
	exchanges.Put(x)
	if cut {
		panic(http.ErrAbortHandler) // the only way to tell http.Server
	}
}

// shutdown stops accepting and waits for requests in flight until ctx ends.
func (l *listener) shutdown(ctx context.Context) {
	l.mu.Lock()
	servers := l.servers
	l.mu.Unlock()
	l.stop()
	for _, s := range servers {
		if err := s.Shutdown(ctx); err != nil {
			return // ctx ended; close follows
		}
	}
}

// stop stops accepting.
func (l *listener) stop() {
	_ = l.tcp.Close() // closing twice is harmless
}

// close drops every connection and returns when the last request has ended.
// The connections to targets must have been closed before, or it waits for
// their answers.
func (l *listener) close() {
	l.stop()
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
