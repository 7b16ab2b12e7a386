package alb

import (
	"context"
	"net"
	"time"
)

// Settings are the numbers and choices of the data plane that no annotation
// sets. A zero field takes its default.
type Settings struct {
	// ConnectTimeout bounds the connection to a target; then 504.
	// Default 10 s (AWS user guide, Troubleshooting: HTTP 504).
	ConnectTimeout time.Duration
	// PoolOrder is which idle connection to a target is used next. AWS does not
	// publish it. Default PoolLIFO.
	PoolOrder PoolOrder
	// KeepIdleAtDeregistration leaves idle pooled connections to a
	// deregistered target open until their idle timeout. By default they are
	// closed at once. AWS does not publish which it is.
	KeepIdleAtDeregistration bool
	// DrainTimeout bounds how long Run waits for requests in flight after its
	// context has ended. Default 5 s.
	DrainTimeout time.Duration
	// LogFlush is the longest time a log line waits in memory. Default 100 ms.
	LogFlush time.Duration

	// dial opens a connection to a target. It is a field so that tests can
	// produce errors that loopback cannot.
	dial func(ctx context.Context, address string, timeout time.Duration) (net.Conn, error)
}

// PoolOrder is the order in which idle connections to a target are reused.
type PoolOrder string

// The pool orders.
const (
	PoolLIFO PoolOrder = "lifo" // the one used last; the others grow old
	PoolFIFO PoolOrder = "fifo" // the one idle longest; all stay young
)

// What AWS documents as defaults of attributes, and as limits that no
// attribute changes (user guide for Application Load Balancers: Load balancer
// attributes, Target group attributes, Troubleshooting, Quotas).
const (
	defaultIdleTimeout         = 60 * time.Second
	defaultClientKeepAlive     = 3600 * time.Second
	defaultDeregistrationDelay = 300 * time.Second

	maxRequestLine     = 16 << 10
	maxRequestField    = 16 << 10
	maxRequestHead     = 64 << 10
	maxResponseHead    = 32 << 10
	maxForwardedFor    = 30
	maxInterimAnswers  = 8 // 1xx before the final one; our bound, AWS names none
	maxTrailerBytes    = maxResponseHead
	serverMaxHeadBytes = 4 * maxRequestHead // http.Server's own limit answers 431, which an ALB never does
)

func (s Settings) withDefaults() Settings {
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	set(&s.ConnectTimeout, 10*time.Second)
	set(&s.DrainTimeout, 5*time.Second)
	set(&s.LogFlush, 100*time.Millisecond)
	if s.PoolOrder == "" {
		s.PoolOrder = PoolLIFO
	}
	if s.dial == nil {
		s.dial = func(ctx context.Context, address string, timeout time.Duration) (net.Conn, error) {
			d := net.Dialer{Timeout: timeout, KeepAlive: -1}
			return d.DialContext(ctx, "tcp", address)
		}
	}
	return s
}
