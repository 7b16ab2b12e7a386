package load

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"lameduck/harness"
)

// connections choose the connection on which a request goes.
type connections interface {
	// send sends the request once, and notes in r what is known of its
	// connection. The answer's body must be closed.
	send(out *http.Request, r *harness.Request) (*http.Response, error)
	close()
}

// openConnections makes those that l asks for. Where their number is fixed they
// are open when it returns, but for those that could not be opened: the request
// whose turn it is tries again, so that what is wrong with them is recorded.
func openConnections(ctx context.Context, l harness.Load, target harness.Target) connections {
	transport := newTransport(l, target.Nodes)
	if !l.HTTP2 && l.Connections != harness.ConnectionsLongLived {
		transport.DisableKeepAlives = l.Connections == harness.ConnectionsNew
		transport.IdleConnTimeout = idleTimeout
		return pooled{transport}
	}
	n := 0
	switch l.Connections {
	case harness.ConnectionsLongLived:
		n = l.LongLived
	case harness.ConnectionsPooled:
		n = max(1, len(target.Nodes))
	}
	t := newTurns(transport, target.URL, n)
	ctx, cancel := context.WithTimeout(ctx, l.Timeout.Duration)
	defer cancel()
	t.openAll(ctx)
	return t
}

// idleTimeout is less than a load balancer's (60 s by default, AWS user guide,
// idle_timeout.timeout_seconds): a client that keeps connections for longer
// than their server does gets errors that nobody else is to blame for.
const idleTimeout = 30 * time.Second

// newTransport makes the clients' side of the connections. Nothing in it
// limits how many there are: a limit would close the open loop. Certificates are
// not verified: the load balancer's may be signed by nobody, and whether it is
// who it says is not what is measured.
func newTransport(l harness.Load, nodes []string) *http.Transport {
	var protocols http.Protocols
	protocols.SetHTTP1(!l.HTTP2)
	protocols.SetHTTP2(l.HTTP2)
	// A dial is not ended by its request's context, so it has a timeout as well.
	dialer := &net.Dialer{Timeout: l.Timeout.Duration}
	return &http.Transport{
		DialContext:         inTurn(dialer, nodes),
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true},
		TLSHandshakeTimeout: l.Timeout.Duration,
		MaxIdleConnsPerHost: 1 << 20, // 0 would be 2
		DisableCompression:  true,
		Protocols:           &protocols,
	}
}

// inTurn dials the nodes one after the other, whatever address is asked for.
func inTurn(d *net.Dialer, nodes []string) func(ctx context.Context, network, address string) (net.Conn, error) {
	if len(nodes) == 0 {
		return d.DialContext
	}
	var next atomic.Uint64
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		node := nodes[(next.Add(1)-1)%uint64(len(nodes))]
		return d.DialContext(ctx, network, node)
	}
}

// pooled are the connections of HTTP/1.1 that net/http keeps, or makes for each
// request.
type pooled struct{ *http.Transport }

func (p pooled) close() { p.CloseIdleConnections() }

func (p pooled) send(out *http.Request, r *harness.Request) (*http.Response, error) {
	out = out.WithContext(httptrace.WithClientTrace(out.Context(), &httptrace.ClientTrace{
		GotConn: func(c httptrace.GotConnInfo) {
			r.Attempts++
			r.Reused = c.Reused
		},
	}))
	if out.Body == http.NoBody {
		sendOnce(out)
	}
	return p.RoundTrip(out)
}

// sendOnce keeps net/http from sending a request without a body again, which it
// does unasked when it had a reused connection that turned out to be dead. It
// can not when there is a body that can not be had again (http.Transport's docs,
// on idempotent requests): one that is neither nil nor http.NoBody, without a
// GetBody. This one is empty. The transfer encoding keeps net/http from trying
// whether it is, which it does in a goroutine, and after 200 ms of a busy
// machine with the wrong result. Nothing of this is to be seen in what is sent.
func sendOnce(r *http.Request) {
	r.Body, r.GetBody = emptyBody{}, nil
	r.ContentLength = -1
	r.TransferEncoding = []string{"identity"}
}

type emptyBody struct{}

func (emptyBody) Read([]byte) (int, error) { return 0, io.EOF }
func (emptyBody) Close() error             { return nil }
