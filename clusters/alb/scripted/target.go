// Package scripted has targets of which a test decides every byte. The unit
// tests of the data plane and the conformance suite, which also runs outside of
// go test, share it.
package scripted

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Target listens and counts.
type Target struct {
	net.Listener
	Conns    atomic.Int64 // accepted so far
	Requests atomic.Int64 // read by Exchange.Request

	running sync.WaitGroup
	mu      sync.Mutex
	open    []net.Conn
	closed  bool
}

// Exchange is one connection as a target sees it.
type Exchange struct {
	net.Conn
	Reader *bufio.Reader
	Number int64 // of the connection, from 1
	Target *Target
}

// Serve runs serve for every connection, and closes that afterwards, until
// Stop. wrap, if not nil, is what is spoken below HTTP.
func Serve(l net.Listener, wrap func(net.Conn) net.Conn, serve func(*Exchange)) *Target {
	t := &Target{Listener: l}
	t.running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.keep(c)
			if wrap != nil {
				c = wrap(c)
			}
			x := &Exchange{Conn: c, Target: t, Reader: bufio.NewReader(c), Number: t.Conns.Add(1)}
			t.running.Go(func() {
				defer c.Close()
				serve(x)
			})
		}
	})
	return t
}

// keep notes a connection for CloseConns. One that was accepted as Stop came is
// closed at once.
func (t *Target) keep(c net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open = append(t.open, c)
	if t.closed {
		c.Close()
	}
}

// Address is where the target listens.
func (t *Target) Address() string { return t.Addr().String() }

// CloseConns closes all connections so far.
func (t *Target) CloseConns() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.open {
		c.Close()
	}
}

// Stop closes everything and waits until nothing runs.
func (t *Target) Stop() {
	t.Close()
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.CloseConns()
	t.running.Wait()
}

// Request reads one request with its body, or returns nil at the end.
func (x *Exchange) Request() *http.Request {
	r, err := http.ReadRequest(x.Reader)
	if err != nil {
		return nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	x.Target.Requests.Add(1)
	return r
}

// Say writes raw bytes; the load balancer may have gone away.
func (x *Exchange) Say(s string) { _, _ = io.WriteString(x, s) }

// Reset closes with RST instead of FIN. It is not for TLS.
func (x *Exchange) Reset() {
	_ = x.Conn.(*net.TCPConn).SetLinger(0)
	x.Close()
}

// Echo answers every request with 200 and its body, or "ok".
func Echo(x *Exchange) {
	for r := x.Request(); r != nil; r = x.Request() {
		body, _ := io.ReadAll(r.Body)
		if len(body) == 0 {
			body = []byte("ok")
		}
		fmt.Fprintf(x, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nX-Conn: %d\r\n\r\n%s", len(body), x.Number, body)
	}
}

// Once answers the first request with raw bytes and closes.
func Once(answer string) func(*Exchange) {
	return func(x *Exchange) {
		if x.Request() != nil {
			x.Say(answer)
		}
	}
}

// FullBacklog listens on loopback and answers no further SYN: the backlog of one
// is taken. It holds until stop is called, also after an error.
func FullBacklog() (addr string, stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, f := range stops {
			f()
		}
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return "", stop, err
	}
	stops = append(stops, func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return "", stop, err
	}
	if err := unix.Listen(fd, 0); err != nil {
		return "", stop, err
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return "", stop, err
	}
	addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(sa.(*unix.SockaddrInet4).Port))
	for range 8 {
		c, err := net.DialTimeout("tcp", addr, 200*time.Millisecond)
		if err != nil {
			return addr, stop, nil
		}
		stops = append(stops, func() { c.Close() })
	}
	return "", stop, fmt.Errorf("the backlog of %s does not fill", addr)
}
