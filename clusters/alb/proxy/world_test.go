package proxy

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lameduck/clusters/alb/accesslog"
	"lameduck/clusters/alb/scripted"
)

// startTarget runs serve for every connection, and closes it afterwards.
func startTarget(t testing.TB, serve func(*scripted.Exchange)) *scripted.Target {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveTarget(t, l, serve)
}

func serveTarget(t testing.TB, l net.Listener, serve func(*scripted.Exchange)) *scripted.Target {
	target := scripted.Serve(l, nil, serve)
	t.Cleanup(target.Stop)
	return target
}

// fakeRouter has one group, whose targets take turns.
type fakeRouter struct {
	pools []*Pool
	next  atomic.Uint64
	route func(Request, *Route) // changes what is routed

	mu       sync.Mutex
	statuses []int // that Done got
}

func (f *fakeRouter) Route(r Request) Route {
	route := Route{Priority: 1, Action: "forward", Group: "ns/app:80", State: "healthy",
		Answer: Answer{Status: http.StatusServiceUnavailable, Error: accesslog.ErrorNoTarget}}
	if len(f.pools) > 0 {
		route.Target = fakeTarget{f, f.pools[(f.next.Add(1)-1)%uint64(len(f.pools))]}
	}
	if f.route != nil {
		f.route(r, &route)
	}
	return route
}

func (f *fakeRouter) done() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]int(nil), f.statuses...)
}

type fakeTarget struct {
	f *fakeRouter
	p *Pool
}

func (t fakeTarget) Pool() *Pool { return t.p }

func (t fakeTarget) Done(status int) {
	t.f.mu.Lock()
	defer t.f.mu.Unlock()
	t.f.statuses = append(t.f.statuses, status)
}

// lines is a Sink.
type lines struct {
	mu  sync.Mutex
	all []accesslog.Line
}

func (s *lines) Add(l *accesslog.Line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, *l)
}

// world is what a test may change before the start.
type world struct {
	lim    Limits
	pool   PoolOptions
	tls    *tls.Config
	router fakeRouter
	m      Metrics
}

// front is a load balancer node, listening on loopback.
type front struct {
	t   *testing.T
	l   *Listener
	w   *world
	h   *Hangups
	log *lines
	url string
	// client keeps no connection between requests unless a test asks for it.
	client *http.Client
}

// frontWith serves the targets on every path.
func frontWith(t testing.TB, targets []string, edit func(*world)) *front {
	t.Helper()
	h, err := NewHangups()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		lim:  Limits{Idle: 10 * time.Second, ClientKeepAlive: time.Hour},
		pool: PoolOptions{ConnectTimeout: 5 * time.Second, HandshakeTimeout: 5 * time.Second},
	}
	if edit != nil {
		edit(w)
	}
	f := &front{w: w, h: h, log: &lines{}}
	f.t, _ = t.(*testing.T)
	for _, addr := range targets {
		o := w.pool
		o.Addr, o.Idle, o.Hangups = addr, w.lim.Idle, h
		w.router.pools = append(w.router.pools, NewPool(o))
	}
	f.l, err = Listen(ListenerOptions{Address: netip.MustParseAddrPort("127.0.0.1:0"), TLS: w.tls, Sink: f.log, Metrics: w.m, Hangups: h})
	if err != nil {
		t.Fatal(err)
	}
	f.l.Start(&w.router, w.lim)
	tr := &http.Transport{DisableKeepAlives: true, DisableCompression: true}
	f.url = "http://" + f.addr()
	if w.tls != nil {
		f.url = "https://" + f.addr()
		tr.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
		tr.DisableKeepAlives = false
	}
	f.client = &http.Client{Transport: tr}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		for _, p := range w.router.pools {
			p.Close(CauseStopped)
		}
		f.l.Close()
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *front) addr() string { return f.l.Addr().String() }

func (f *front) pool() *Pool { return f.w.router.pools[0] }

// answer is what a client got.
type answer struct {
	status int
	header http.Header
	body   string
	err    error // while reading the body
}

func (f *front) get(path string) answer {
	f.t.Helper()
	return f.do(f.request(http.MethodGet, path, nil))
}

func (f *front) request(method, path string, body io.Reader) *http.Request {
	f.t.Helper()
	req, err := http.NewRequest(method, f.url+path, body)
	if err != nil {
		f.t.Fatal(err)
	}
	return req
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
	f.write(c, request)
	got, err := io.ReadAll(c)
	if err != nil && len(got) == 0 {
		f.t.Fatal(err)
	}
	return string(got)
}

func (f *front) write(c net.Conn, s string) {
	f.t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		f.t.Fatal(err)
	}
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
func (f *front) lines(n int) []accesslog.Line {
	f.t.Helper()
	var all []accesslog.Line
	eventually(f.t, fmt.Sprintf("%d log lines", n), func() bool {
		f.log.mu.Lock()
		defer f.log.mu.Unlock()
		all = append([]accesslog.Line(nil), f.log.all...)
		return len(all) >= n
	})
	return all
}

// line is the only line of the log.
func (f *front) line() accesslog.Line {
	f.t.Helper()
	all := f.lines(1)
	if len(all) != 1 {
		f.t.Fatalf("log has %d lines, want 1: %+v", len(all), all)
	}
	return all[0]
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

// wantLine compares what matters of a log line.
func wantLine(t *testing.T, l accesslog.Line, status, targetStatus int, phase accesslog.Phase, name string) {
	t.Helper()
	if l.Status != status || l.TargetStatus != targetStatus || l.Phase != phase || l.Error != name {
		t.Errorf("log: status %d, target status %d, phase %s, error %q; want %d, %d, %s, %q",
			l.Status, l.TargetStatus, l.Phase, l.Error, status, targetStatus, phase, name)
	}
}

// certificate is one for 127.0.0.1 that nobody trusts.
func certificate(t testing.TB) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}
