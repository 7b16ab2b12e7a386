package load

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lameduck/harness"
)

// connState tells of connections that get into a state.
func connState(to chan<- string, state http.ConnState) func(net.Conn, http.ConnState) {
	return func(c net.Conn, s http.ConnState) {
		if s == state {
			to <- c.RemoteAddr().String()
		}
	}
}

// http2Server serves HTTP/2 over TLS, and sends the connections that it gets to
// the channel.
func http2Server(t *testing.T, h http.HandlerFunc) (url string, opened chan string) {
	t.Helper()
	opened = make(chan string, 1000)
	server := httptest.NewUnstartedServer(h)
	server.EnableHTTP2 = true
	server.Config.ConnState = connState(opened, http.StateNew)
	server.Config.ErrorLog = quiet
	// So that a handler can cut its connection.
	server.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, c)
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL, opened
}

type connKey struct{}

func http2Spec(url string, limit time.Duration) harness.AttackSpec {
	spec := attackSpec(url, limit)
	spec.Load.HTTP2 = true
	return spec
}

// TestHTTP2Connections wants as many connections as each kind has.
func TestHTTP2Connections(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		connections            harness.Connections
		nodes, longLived, want int
		reused                 bool
	}{
		{harness.ConnectionsPooled, 0, 0, 1, true},
		{harness.ConnectionsPooled, 2, 0, 2, true},
		{harness.ConnectionsLongLived, 0, 5, 5, true},
		{harness.ConnectionsNew, 0, 0, 80 + 8, false},
	} {
		url, opened := http2Server(t, func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if r.ProtoMajor != 2 || r.Method != http.MethodPost || r.ContentLength != 300 || err != nil || len(body) != 300 {
				t.Errorf("%s %s of %d bytes, %d came (%v): want a POST by HTTP/2 of 300", r.Proto, r.Method, r.ContentLength, len(body), err)
			}
			echo(w, r)
		})
		spec := http2Spec(url, 400*time.Millisecond)
		spec.Load.Connections, spec.Load.LongLived, spec.Load.BodySize = c.connections, c.longLived, 300
		spec.Load.ControlRate, spec.Target.ControlURL = 20, url+"/control"
		for range c.nodes {
			spec.Target.Nodes = append(spec.Target.Nodes, strings.TrimPrefix(url, "https://"))
		}
		requests, _ := attack(t, t.Context(), spec)
		if got := count(requests); got[harness.OutcomeOK] != 88 || len(opened) != c.want {
			t.Errorf("%s, %d nodes: %v on %d connections, want 88 ok on %d", c.connections, c.nodes, got, len(opened), c.want)
		}
		for _, r := range requests {
			if r.Reused != c.reused || r.Attempts != 1 {
				t.Errorf("%s: request %s reused %v, attempts %d", c.connections, r.ID, r.Reused, r.Attempts)
			}
		}
	}
}

func TestHTTP2Outcomes(t *testing.T) {
	t.Parallel()
	misdeeds := []struct {
		want harness.Outcome
		do   http.HandlerFunc
	}{
		{harness.OutcomeOK, echo},
		{harness.Outcome502, status(502)},
		{harness.Outcome4xx, status(404)},
		{harness.OutcomeReset, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
		{harness.OutcomeTruncated, func(w http.ResponseWriter, r *http.Request) {
			echo(w, r)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}},
		{harness.OutcomeTimeout, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
		{harness.OutcomeTimeout, func(w http.ResponseWriter, r *http.Request) {
			echo(w, r)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}},
	}
	url, _ := http2Server(t, func(w http.ResponseWriter, r *http.Request) {
		misdeeds[number(t, r.Header.Get(harness.RequestIDHeader))%len(misdeeds)].do(w, r)
	})
	spec := http2Spec(url, time.Duration(6*len(misdeeds))*5*time.Millisecond)
	spec.Load.Timeout = harness.Dur(3 * time.Second)
	requests, _ := attack(t, t.Context(), spec)
	for _, r := range requests {
		if want := misdeeds[number(t, r.ID)%len(misdeeds)].want; r.Outcome != want {
			t.Errorf("request %s: %s (%s), want %s", r.ID, r.Outcome, r.Error, want)
		}
	}
}

// TestHTTP2ConnectionLost cuts the shared connection: what was on it fails, and
// the rest goes on another.
func TestHTTP2ConnectionLost(t *testing.T) {
	t.Parallel()
	var come sync.Map
	url, opened := http2Server(t, func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(harness.RequestIDHeader)
		if _, twice := come.Swap(id, true); twice {
			t.Errorf("request %s came twice", id)
		}
		if id == "r50" {
			r.Context().Value(connKey{}).(net.Conn).Close()
			return
		}
		echo(w, r)
	})
	requests, _ := attack(t, t.Context(), http2Spec(url, 500*time.Millisecond))
	got := count(requests)
	if lost := got[harness.OutcomeEOF] + got[harness.OutcomeReset]; lost == 0 || lost+got[harness.OutcomeOK] != 100 || len(opened) != 2 {
		t.Errorf("%v on %d connections, want some of 100 lost and the rest ok, on 2", got, len(opened))
	}
}

// TestHTTP2OnlyHTTP1 wants a server without HTTP/2 not to be measured, whether it
// says so in the handshake or knows nothing of protocols (ALPN).
func TestHTTP2OnlyHTTP1(t *testing.T) {
	for _, protocols := range [][]string{{"http/1.1"}, nil} {
		l, err := tls.Listen("tcp", "127.0.0.1:0", serverTLS(protocols...))
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: http.HandlerFunc(echo), ErrorLog: quiet, TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}}
		go server.Serve(l)
		requests, _ := attack(t, t.Context(), http2Spec("https://"+l.Addr().String(), 50*time.Millisecond))
		server.Close()
		if got := count(requests); got[harness.OutcomeOther] != len(requests) {
			t.Errorf("protocols %v: %v, want none but other", protocols, got)
		}
	}
}

// serverTLS is the settings of a server that speaks these protocols.
func serverTLS(protocols ...string) *tls.Config {
	lender := httptest.NewTLSServer(nil) // of its certificate
	lender.Close()
	return &tls.Config{Certificates: lender.TLS.Certificates, NextProtos: protocols}
}

// TestHTTP2NoHiddenRetry has a server that takes no request, in the two ways that
// make net/http send it again.
func TestHTTP2NoHiddenRetry(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		say  func(stream uint32) []byte
		want harness.Outcome
	}{
		{"REFUSED_STREAM", func(stream uint32) []byte { return frame(frameRSTStream, stream, 7) }, harness.OutcomeReset},
		{"GOAWAY", func(uint32) []byte { return frame(frameGoAway, 0, 0, 0) }, harness.OutcomeEOF},
	} {
		url, got := refusing(t, c.say)
		// That this server does make net/http do so is half of the test.
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for limit := time.Now().Add(30 * time.Second); got.Load() < 2 && time.Now().Before(limit); {
				time.Sleep(time.Millisecond)
			}
			cancel()
		}()
		client := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
		plain, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.RoundTrip(plain); err == nil || got.Load() < 2 {
			t.Fatalf("%s: net/http sent a request %d times (%v), want at least 2", c.name, got.Load(), err)
		}
		client.CloseIdleConnections()
		for _, size := range []int{0, 100} {
			got.Store(0)
			spec := http2Spec(url, 100*time.Millisecond)
			spec.Load.BodySize = size
			requests, _ := attack(t, t.Context(), spec)
			if n := count(requests)[c.want]; n != 20 || got.Load() == 0 || got.Load() > 20 {
				t.Errorf("%s: %v of 20 requests, of which %d came: want each %s and sent once", c.name, count(requests), got.Load(), c.want)
			}
		}
	}
}

// Frames of HTTP/2 (RFC 9113, 6).
const (
	frameHeaders   = 1
	frameRSTStream = 3
	frameSettings  = 4
	frameGoAway    = 7
)

func frame(kind byte, stream uint32, payload ...uint32) []byte {
	b := []byte{0, 0, byte(4 * len(payload)), kind, 0}
	b = binary.BigEndian.AppendUint32(b, stream)
	for _, p := range payload {
		b = binary.BigEndian.AppendUint32(b, p)
	}
	return b
}

// refusing is a server of HTTP/2 that says the same on each request, and counts
// them.
func refusing(t *testing.T, say func(stream uint32) []byte) (url string, got *atomic.Int32) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", serverTLS("h2"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	got = new(atomic.Int32)
	serve := func(c net.Conn) error {
		defer c.Close()
		var head [9]byte
		if _, err := io.CopyN(io.Discard, c, int64(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))); err != nil {
			return err
		}
		if _, err := c.Write(frame(frameSettings, 0)); err != nil {
			return err
		}
		for {
			if _, err := io.ReadFull(c, head[:]); err != nil {
				return err
			}
			size := int64(head[0])<<16 | int64(head[1])<<8 | int64(head[2])
			if _, err := io.CopyN(io.Discard, c, size); err != nil {
				return err
			}
			if head[3] == frameHeaders {
				got.Add(1)
				if _, err := c.Write(say(binary.BigEndian.Uint32(head[5:]))); err != nil {
					return err
				}
			}
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	return fmt.Sprintf("https://%s/", l.Addr()), got
}
