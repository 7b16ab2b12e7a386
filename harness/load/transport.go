package load

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"lameduck/harness"
)

// idleTimeout is less than a load balancer's (60 s by default, AWS user guide,
// idle_timeout.timeout_seconds): a client that keeps connections for longer
// than their server does gets errors that nobody else is to blame for.
const idleTimeout = 30 * time.Second

// newTransport makes the clients' side of the connections. Nothing in it
// limits how many there are: a limit would close the open loop.
func newTransport(l harness.Load, nodes []string) *http.Transport {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	// A dial is not ended by its request's context, so it has a timeout as well.
	dialer := &net.Dialer{Timeout: l.Timeout.Duration}
	return &http.Transport{
		DialContext:         inTurn(dialer, nodes),
		DisableKeepAlives:   l.Connections == harness.ConnectionsNew,
		MaxIdleConnsPerHost: 1 << 20, // 0 would be 2
		IdleConnTimeout:     idleTimeout,
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

// recorder is the http.RoundTripper of one stream. It makes the record of each
// request and sends it to requests.
type recorder struct {
	schedule
	clock     harness.Clock
	transport *http.Transport
	timeout   time.Duration // of one request, body included
	prefix    string        // of ids
	control   bool
	requests  chan<- harness.Request
}

// seqHeader is where vegeta tells a request's number.
const seqHeader = "X-Vegeta-Seq"

// RoundTrip sends one request of vegeta's, reads the whole answer and records
// how it went. The answer that it returns has no body.
func (t *recorder) RoundTrip(in *http.Request) (*http.Response, error) {
	sent := time.Now()
	seq, err := strconv.ParseUint(in.Header.Get(seqHeader), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("header %s: %w", seqHeader, err)
	}
	r := harness.Request{
		ID: t.prefix + strconv.FormatUint(seq, 10), Control: t.control,
		Planned: t.clock.At(t.due(seq)), Sent: t.clock.At(sent),
	}
	ctx, cancel := context.WithTimeout(in.Context(), t.timeout)
	defer cancel()
	out := in.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(c httptrace.GotConnInfo) {
			r.Attempts++
			r.Reused = c.Reused
		},
	}))
	out.Header = http.Header{harness.RequestIDHeader: {r.ID}, "User-Agent": {"lameduck"}}
	sendOnce(out)
	answer, err := t.transport.RoundTrip(out)
	failure := err
	if err != nil {
		r.Outcome = classify(err, false)
	} else {
		r.Status = answer.StatusCode
		r.Pod = answer.Header.Get(harness.PodHeader)
		r.Outcome, failure = judge(answer, r.ID)
		answer.Body = http.NoBody
	}
	if failure != nil {
		r.Error = failure.Error()
	}
	r.Latency = time.Since(sent)
	t.requests <- r
	return answer, err
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

// heads are buffers for the first bytes of bodies.
var heads = sync.Pool{New: func() any { return new([512]byte) }}

// judge reads the answer's body to its end and says how the request ended. The
// status counts more than the body: that of an error page is not looked at.
func judge(answer *http.Response, id string) (harness.Outcome, error) {
	buf := heads.Get().(*[512]byte)
	defer heads.Put(buf)
	head, err := readBody(answer.Body, buf[:])
	answer.Body.Close()
	switch s := answer.StatusCode; {
	case s == http.StatusBadGateway:
		return harness.Outcome502, nil
	case s == http.StatusServiceUnavailable:
		return harness.Outcome503, nil
	case s == http.StatusGatewayTimeout:
		return harness.Outcome504, nil
	case s >= 500:
		return harness.Outcome5xx, nil
	case s >= 400:
		return harness.Outcome4xx, nil
	case err != nil:
		return classify(err, true), err
	}
	// Only the built-in application, which gives its pod's name, is known to
	// begin its body with the request's id; a user's own need not.
	if answer.Header.Get(harness.PodHeader) != "" {
		if line, _, _ := bytes.Cut(head, []byte("\n")); string(line) != id {
			return harness.OutcomeWrongBody, fmt.Errorf("body is for request %.40q", line)
		}
	}
	return harness.OutcomeOK, nil
}

// readBody reads to the end and returns the first bytes, as many as fit in buf.
func readBody(body io.Reader, buf []byte) (head []byte, err error) {
	n := 0
	for n < len(buf) {
		m, err := body.Read(buf[n:])
		n += m
		if err == io.EOF {
			return buf[:n], nil
		}
		if err != nil {
			return buf[:n], err
		}
	}
	_, err = io.Copy(io.Discard, body)
	return buf, err
}
