package proxy

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"time"

	"lameduck/clusters/alb/accesslog"
)

// Limits are the attributes of a load balancer that concern its connections
// (AWS user guide for Application Load Balancers, Load balancer attributes).
// A change applies to a client's connection from its next request on.
type Limits struct {
	// Idle is how long a connection, a client's or a target's, may go without
	// a byte in either direction. Default 60 s.
	Idle time.Duration
	// ClientKeepAlive is how old a client's connection gets before an answer
	// says that it is the last one. Default 3600 s.
	ClientKeepAlive time.Duration
}

// What AWS documents as defaults of attributes, and as limits that no
// attribute changes (user guide for Application Load Balancers: Load balancer
// attributes, Troubleshooting, Quotas).
const (
	defaultIdle             = 60 * time.Second
	defaultClientKeepAlive  = 3600 * time.Second
	defaultConnectTimeout   = 10 * time.Second
	defaultHandshakeTimeout = 10 * time.Second

	maxRequestLine  = 16 << 10
	maxRequestField = 16 << 10
	maxRequestHead  = 64 << 10
	maxResponseHead = 32 << 10
	maxForwardedFor = 30
)

// Bounds of ours, where AWS names none.
const (
	maxInterimAnswers = 8 // 1xx before the final one
	maxTrailerBytes   = maxResponseHead
	// lingerTime is how long what a client still sends is read and dropped
	// after an answer that did not wait for it.
	lingerTime = 5 * time.Second
)

func (l Limits) withDefaults() *Limits {
	if l.Idle == 0 {
		l.Idle = defaultIdle
	}
	if l.ClientKeepAlive == 0 {
		l.ClientKeepAlive = defaultClientKeepAlive
	}
	return &l
}

// Metrics counts connections. Its methods are called from any goroutine.
type Metrics interface {
	// ConnectionOpened and ConnectionClosed come in pairs, for connections of
	// clients and, if its pool has Metrics, of targets.
	ConnectionOpened()
	ConnectionClosed()
	// ConnectionRejected is a client that could not be accepted for want of
	// descriptors or memory.
	ConnectionRejected()
}

type noMetrics struct{}

func (noMetrics) ConnectionOpened()   {}
func (noMetrics) ConnectionClosed()   {}
func (noMetrics) ConnectionRejected() {}

// ListenerOptions are what a listener keeps for life.
type ListenerOptions struct {
	// Address is where it listens; port 0 is any that is free.
	Address netip.AddrPort
	// TLS makes it an HTTPS listener, with HTTP/2 for clients that ask for it.
	TLS *tls.Config
	// Sink gets a line per request. nil: nobody does.
	Sink accesslog.Sink
	// Metrics may be nil.
	Metrics Metrics
	// Hangups notices clients that go away. Listeners and pools share one.
	Hangups *Hangups
	// Messages gets what an operator should know. It is safe for concurrent
	// use; nil: nobody does.
	Messages io.Writer
}

// PoolOrder is the order in which idle connections to a target are reused. AWS
// does not publish which it is.
type PoolOrder string

// The pool orders.
const (
	PoolLIFO PoolOrder = "lifo" // the one used last; the others grow old
	PoolFIFO PoolOrder = "fifo" // the one idle longest; all stay young
)

// PoolOptions are what a pool keeps for life. A zero field takes its default.
type PoolOptions struct {
	// Addr is the target's address and port.
	Addr string
	// Idle is the load balancer's idle timeout. Default 60 s.
	Idle time.Duration
	// Order is which idle connection is used next. Default PoolLIFO.
	Order PoolOrder
	// ConnectTimeout bounds a connection attempt; then 504. Default 10 s (AWS
	// user guide, Troubleshooting: HTTP 504).
	ConnectTimeout time.Duration
	// TLS encrypts; the target's certificate is not validated (AWS user guide,
	// Target groups: routing configuration). nil: plain.
	TLS *tls.Config
	// HandshakeTimeout bounds the TLS handshake; then 502. Default 10 s (AWS
	// user guide, Troubleshooting: HTTP 502).
	HandshakeTimeout time.Duration
	// Hangups notices targets that close idle connections.
	Hangups *Hangups
	// Metrics counts the connections. May be nil.
	Metrics Metrics
	// Dial opens a TCP connection. Default: a net.Dialer's.
	Dial func(ctx context.Context, addr string, timeout time.Duration) (net.Conn, error)
}
