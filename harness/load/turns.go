package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"

	"lameduck/harness"
)

// turns are a fixed number of connections that requests take in turn. net/http
// has no such pool, but gives single connections (http.ClientConn), which send a
// request once and never on another connection.
//
// With HTTP/1.1 a connection has one request at a time, and the next one that is
// free is taken. If none is, the request gets a connection of its own, which is
// closed after it: to wait would close the open loop. Without any connections,
// each request has its own.
//
// With HTTP/2 a connection has many requests. One that takes no more (it has been
// told to go away, or is at its limit of streams) is replaced at its turn, and
// closed when its last request is done.
type turns struct {
	transport    *http.Transport
	scheme, addr string
	multiplexed  bool

	mu    sync.Mutex
	next  int // whose turn it is
	slots []slot
}

// slot is the place of one connection.
type slot struct {
	conn    *http.ClientConn // nil: none yet
	opening chan struct{}    // not nil while a request opens it; closed then
}

// newTurns prepares n connections to the host of a URL, which check has seen.
func newTurns(transport *http.Transport, target string, n int) *turns {
	u, err := url.Parse(target)
	if err != nil {
		panic(err)
	}
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	return &turns{
		transport: transport, scheme: u.Scheme, addr: net.JoinHostPort(u.Hostname(), port),
		multiplexed: transport.Protocols.HTTP2(), slots: make([]slot, n),
	}
}

// openAll opens what is not open.
func (t *turns) openAll(ctx context.Context) {
	var all sync.WaitGroup
	for i := range t.slots {
		all.Go(func() { t.slots[i].conn, _ = t.open(ctx) })
	}
	all.Wait()
}

func (t *turns) open(ctx context.Context) (*http.ClientConn, error) {
	return t.transport.NewClientConn(ctx, t.scheme, t.addr)
}

// close ends the connections; no request is under way.
func (t *turns) close() {
	for _, s := range t.slots {
		if s.conn != nil {
			s.conn.Close()
		}
	}
}

func (t *turns) send(out *http.Request, r *harness.Request) (*http.Response, error) {
	conn, kept, err := t.take(out.Context(), r)
	if err != nil {
		return nil, err
	}
	r.Attempts = 1
	answer, err := conn.RoundTrip(out)
	if err == nil && t.multiplexed && answer.ProtoMajor != 2 {
		answer.Body.Close()
		conn.Close()
		return nil, fmt.Errorf("answer by %s: want HTTP/2", answer.Proto)
	}
	if kept {
		return answer, err
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	answer.Body = lastBody{answer.Body, conn}
	return answer, nil
}

// lastBody is that of an answer with which a connection ends.
type lastBody struct {
	io.ReadCloser
	conn *http.ClientConn
}

func (b lastBody) Close() error { return errors.Join(b.ReadCloser.Close(), b.conn.Close()) }

// take returns a connection with room for one request, and whether it is kept
// after that.
func (t *turns) take(ctx context.Context, r *harness.Request) (conn *http.ClientConn, kept bool, err error) {
	for {
		t.mu.Lock()
		conn, vacant, wait := t.choose()
		t.mu.Unlock()
		switch {
		case conn != nil:
			r.Reused = true
			return conn, true, nil
		case vacant != nil:
			conn, err := t.fill(ctx, vacant)
			return conn, true, err
		case wait == nil:
			conn, err := t.open(ctx)
			return conn, false, err
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
}

// choose finds the connection whose turn it is: one with room, on which a
// request's place is reserved; or one to be opened, which is the caller's to
// fill; or one to wait for; or none of all. t.mu is held.
func (t *turns) choose() (conn *http.ClientConn, vacant *slot, wait <-chan struct{}) {
	first := t.next
	t.next++
	for i := range t.slots {
		s := &t.slots[(first+i)%len(t.slots)]
		switch {
		case s.opening != nil:
			if t.multiplexed && wait == nil {
				wait = s.opening
			}
		case s.conn != nil && s.conn.Reserve() == nil:
			return s.conn, nil, nil
		case s.conn == nil || s.conn.Err() != nil || t.multiplexed:
			s.opening = make(chan struct{})
			return nil, s, nil
		}
	}
	return nil, nil, wait
}

// fill opens a connection in its place, for the caller's request first.
func (t *turns) fill(ctx context.Context, s *slot) (*http.ClientConn, error) {
	conn, err := t.open(ctx)
	if err == nil {
		_ = conn.Reserve() // if it has gone already, RoundTrip says why
	}
	t.mu.Lock()
	old := s.conn
	s.conn = conn
	close(s.opening)
	s.opening = nil
	t.mu.Unlock()
	if old != nil {
		closeWhenDone(old)
	}
	return conn, err
}

// closeWhenDone closes a connection after the requests that it has.
func closeWhenDone(conn *http.ClientConn) {
	done := func(c *http.ClientConn) {
		if c.InFlight() == 0 {
			c.Close()
		}
	}
	conn.SetStateHook(done)
	done(conn)
}
