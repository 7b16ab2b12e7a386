package conformance

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
)

// rawTarget is a target whose every byte a test decides on.
type rawTarget struct {
	net.Listener
	conns    atomic.Int64 // accepted so far
	requests atomic.Int64
	mu       sync.Mutex
	open     []net.Conn
}

// exchange is one connection as a target sees it.
type exchange struct {
	net.Conn
	target *rawTarget
	br     *bufio.Reader
	number int64 // of the connection, from 1
}

// startTarget runs serve for every connection, and closes it afterwards.
func startTarget(t *T, serve func(*exchange)) *rawTarget {
	return startTargetAt(t, "127.0.0.1:0", nil, serve)
}

// startTargetAt listens on an address, with TLS if a configuration is given.
func startTargetAt(t *T, addr string, config *tls.Config, serve func(*exchange)) *rawTarget {
	l, err := net.Listen("tcp", addr)
	t.must(err)
	target := &rawTarget{Listener: l}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			target.mu.Lock()
			target.open = append(target.open, c)
			target.mu.Unlock()
			if config != nil {
				c = tls.Server(c, config)
			}
			x := &exchange{Conn: c, target: target, br: bufio.NewReader(c), number: target.conns.Add(1)}
			running.Go(func() {
				defer c.Close()
				serve(x)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		target.closeConns()
		running.Wait()
	})
	return target
}

func (r *rawTarget) addr() string { return r.Addr().String() }

func (r *rawTarget) closeConns() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.open {
		c.Close()
	}
}

// request reads one request with its body, or returns nil at the end.
func (x *exchange) request() *http.Request {
	r, err := http.ReadRequest(x.br)
	if err != nil {
		return nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	x.target.requests.Add(1)
	return r
}

// say writes raw bytes; the load balancer may have gone away.
func (x *exchange) say(s string) { _, _ = io.WriteString(x, s) }

// reset closes with RST instead of FIN.
func (x *exchange) reset() {
	_ = x.Conn.(*net.TCPConn).SetLinger(0)
	x.Close()
}

// echo answers every request with 200 and its body, or "ok".
func echo(x *exchange) {
	for r := x.request(); r != nil; r = x.request() {
		body, _ := io.ReadAll(r.Body)
		if len(body) == 0 {
			body = []byte("ok")
		}
		fmt.Fprintf(x, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nX-Conn: %d\r\n\r\n%s", len(body), x.number, body)
	}
}

// once answers the first request with raw bytes and closes.
func once(answer string) func(*exchange) {
	return func(x *exchange) {
		if x.request() != nil {
			x.say(answer)
		}
	}
}

// named answers every request with 200 and a name.
func named(name string) func(*exchange) {
	return func(x *exchange) {
		for x.request() != nil {
			x.say(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(name), name))
		}
	}
}

// held is a target that answers when release is called.
func held(t *T) (target *rawTarget, release func()) {
	answer := make(chan struct{})
	release = sync.OnceFunc(func() { close(answer) })
	target = startTarget(t, func(x *exchange) {
		for x.request() != nil {
			hold(t, answer)
			x.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	t.Cleanup(release) // before the target's, which waits for its connections
	return target, release
}
