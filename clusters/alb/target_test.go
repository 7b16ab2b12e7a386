package alb

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// rawTarget is a target whose every byte a test decides on.
type rawTarget struct {
	net.Listener
	conns    atomic.Int64 // accepted so far
	requests atomic.Int64
	mu       sync.Mutex
	open     []net.Conn
}

// exchangeWith is one connection as a target sees it.
type exchangeWith struct {
	net.Conn
	t      *testing.T
	target *rawTarget
	br     *bufio.Reader
	number int64 // of the connection, from 1
}

// startTarget runs serve for every connection, and closes it afterwards.
func startTarget(t *testing.T, serve func(*exchangeWith)) *rawTarget {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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
			x := &exchangeWith{Conn: c, t: t, target: target, br: bufio.NewReader(c), number: target.conns.Add(1)}
			running.Go(func() {
				defer c.Close()
				serve(x)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		target.mu.Lock()
		for _, c := range target.open {
			c.Close()
		}
		target.mu.Unlock()
		running.Wait()
	})
	return target
}

func (r *rawTarget) addr() string { return r.Addr().String() }

// request reads one request with its body, or returns nil at the end.
func (x *exchangeWith) request() *http.Request {
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
func (x *exchangeWith) say(s string) { _, _ = io.WriteString(x, s) }

// reset closes with RST instead of FIN.
func (x *exchangeWith) reset() {
	_ = x.Conn.(*net.TCPConn).SetLinger(0)
	x.Close()
}

// echo answers every request with 200 and its body, or "ok".
func echo(x *exchangeWith) {
	for r := x.request(); r != nil; r = x.request() {
		body, _ := io.ReadAll(r.Body)
		if len(body) == 0 {
			body = []byte("ok")
		}
		fmt.Fprintf(x, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nX-Conn: %d\r\n\r\n%s", len(body), x.number, body)
	}
}

// once answers the first request with raw bytes and closes.
func once(answer string) func(*exchangeWith) {
	return func(x *exchangeWith) {
		if x.request() != nil {
			x.say(answer)
		}
	}
}

// front is a load balancer with one Ingress, listening on loopback.
type front struct {
	t   *testing.T
	b   *balancer
	url string
	log string
	// client keeps no connection between requests unless a test asks for it.
	client *http.Client
	model  model
}

// frontWith serves one group, "ns/app:80", with the given targets on every
// path. edit may change settings and model before the start.
func frontWith(t testing.TB, targets []string, edit func(*Settings, *model)) *front {
	t.Helper()
	m := model{
		ports:           []uint16{0},
		idleTimeout:     10 * time.Second,
		clientKeepAlive: time.Hour,
		rules:           []ruleModel{{paths: []string{"/*"}, group: "ns/app:80"}},
		groups:          map[string]groupModel{"ns/app:80": {targets: targets, deregistrationDelay: 10 * time.Second}},
	}
	s := Settings{ConnectTimeout: 5 * time.Second, LogFlush: time.Millisecond}
	if edit != nil {
		edit(&s, &m)
	}
	h, err := newHangups()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	env := &environment{address: "127.0.0.1", logDir: dir, settings: s.withDefaults(), hangups: h, messages: &lockedWriter{w: io.Discard}}
	b, err := newBalancer(env, "ns", "app")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.apply(m); err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{DisableKeepAlives: true, DisableCompression: true}
	f := &front{b: b, url: "http://" + b.listeners[0].tcp.Addr().String(), log: filepath.Join(dir, "ns", "app.jsonl"), model: m,
		client: &http.Client{Transport: tr}}
	f.t, _ = t.(*testing.T)
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		if err := b.close(0); err != nil {
			t.Error(err)
		}
		if err := h.close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *front) addr() string { return strings.TrimPrefix(f.url, "http://") }

func (f *front) group() *group { return f.b.groups["ns/app:80"] }

func (f *front) pool(addr string) *pool {
	g := f.group()
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.targets[addr].pool
}

// answer is what a client got.
type answer struct {
	status int
	header http.Header
	body   string
	err    error // while reading the body
}

// get sends a GET with an id of its own.
func (f *front) get(path string) answer {
	f.t.Helper()
	req, err := http.NewRequest(http.MethodGet, f.url+path, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	return f.do(req)
}

func (f *front) do(req *http.Request) answer {
	f.t.Helper()
	resp, err := f.client.Do(req)
	if err != nil {
		f.t.Errorf("%s %s: %v", req.Method, req.URL, err)
		return answer{header: http.Header{}, err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(body), err}
}

// raw sends bytes as a client and returns what comes back until the end.
func (f *front) raw(request string) string {
	f.t.Helper()
	c := f.dial()
	if _, err := io.WriteString(c, request); err != nil {
		f.t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if err != nil && len(got) == 0 {
		f.t.Fatal(err)
	}
	return string(got)
}

func (f *front) dial() *net.TCPConn {
	f.t.Helper()
	c, err := net.Dial("tcp", f.addr())
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

// lines waits until the log has n lines and returns them.
func (f *front) lines(n int) []LogLine {
	f.t.Helper()
	var lines []LogLine
	eventually(f.t, fmt.Sprintf("%d log lines", n), func() bool {
		lines = readLog(f.t, f.log)
		return len(lines) >= n
	})
	return lines
}

// line is the only line of the log.
func (f *front) line() LogLine {
	f.t.Helper()
	lines := f.lines(1)
	if len(lines) != 1 {
		f.t.Fatalf("log has %d lines, want 1: %+v", len(lines), lines)
	}
	return lines[0]
}

func readLog(t *testing.T, path string) []LogLine {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var lines []LogLine
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	for {
		var l LogLine
		if err := dec.Decode(&l); err == io.EOF {
			return lines
		} else if err != nil {
			t.Fatalf("log: %v\n%s", err, data)
		}
		lines = append(lines, l)
	}
}

// eventually polls until cond holds, or fails the test after a time that only
// a hang exceeds.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-ctx.Done():
			t.Fatalf("no %s within 30 s", what)
		case <-tick.C:
		}
	}
}

// want compares what matters of a log line.
func (l LogLine) want(t *testing.T, status, targetStatus int, phase Phase, name string) {
	t.Helper()
	if l.Status != status || l.TargetStatus != targetStatus || l.Phase != phase || l.Error != name {
		t.Errorf("log: status %d, target status %d, phase %s, error %q; want %d, %d, %s, %q",
			l.Status, l.TargetStatus, l.Phase, l.Error, status, targetStatus, phase, name)
	}
}
