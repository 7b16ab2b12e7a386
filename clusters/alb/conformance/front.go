package conformance

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"lameduck/clusters/alb/accesslog"
	"lameduck/clusters/alb/proxy"
	"lameduck/clusters/alb/scripted"
)

// front is one load balancer node's data plane: one listener on loopback and a
// router that sends every request to the next of its targets.
type front struct {
	*lines
	t        *T
	listener *proxy.Listener
	url      string
	// client keeps no connection between requests.
	client *http.Client
	router *nextTarget
}

// frontOptions are what a test may change before the start.
type frontOptions struct {
	limits   proxy.Limits
	listener proxy.ListenerOptions
	pool     proxy.PoolOptions
}

// nextTarget implements proxy.Router.
type nextTarget struct {
	targets []*frontTarget
	n       atomic.Int64
	answer  atomic.Pointer[proxy.Answer] // instead of a target
}

// frontTarget implements proxy.Target.
type frontTarget struct {
	pool   *proxy.Pool
	done   atomic.Int64 // calls of Done
	status atomic.Int64 // the last one's
}

func (f *frontTarget) Pool() *proxy.Pool { return f.pool }

func (f *frontTarget) Done(status int) {
	f.status.Store(int64(status))
	f.done.Add(1)
}

// frontGroup is the name of the group of a front's targets.
const frontGroup = "ns/app:80"

func (r *nextTarget) Route(proxy.Request) proxy.Route {
	route := proxy.Route{Priority: 1, Action: "forward", Group: frontGroup}
	switch a := r.answer.Load(); {
	case a != nil:
		route.Answer = *a
	case len(r.targets) == 0:
		route.Answer = proxy.Answer{Status: http.StatusServiceUnavailable, Error: accesslog.ErrorNoTarget}
	default:
		route.Target = r.targets[(r.n.Add(1)-1)%int64(len(r.targets))]
		route.State = "healthy"
	}
	return route
}

// newFront listens and serves.
func newFront(t *T, targets []string, edits ...func(*frontOptions)) *front {
	hangups, err := proxy.NewHangups()
	t.must(err)
	t.Cleanup(func() { hangups.Close() })
	sink := &lines{}
	o := frontOptions{
		limits:   proxy.Limits{Idle: 10 * time.Second, ClientKeepAlive: time.Hour},
		listener: proxy.ListenerOptions{Address: netip.MustParseAddrPort("127.0.0.1:0"), Sink: sink, Hangups: hangups, Messages: io.Discard},
		pool:     proxy.PoolOptions{ConnectTimeout: 5 * time.Second, Hangups: hangups, Dial: dialTarget},
	}
	for _, edit := range edits {
		edit(&o)
	}
	f := &front{lines: sink, t: t, router: &nextTarget{}}
	for _, addr := range targets {
		po := o.pool
		po.Addr, po.Idle = addr, o.limits.Idle
		target := &frontTarget{pool: proxy.NewPool(po)}
		t.Cleanup(func() { target.pool.Close(proxy.CauseStopped) })
		f.router.targets = append(f.router.targets, target)
	}
	f.listener, err = proxy.Listen(o.listener)
	t.must(err)
	f.listener.Start(f.router, o.limits)
	t.Cleanup(func() { f.listener.Close() })
	scheme := "http://"
	if o.listener.TLS != nil {
		scheme = "https://"
	}
	f.url = scheme + f.listener.Addr().String()
	f.client = newClient(t, false)
	return f
}

// dialTarget is how a node connects.
func dialTarget(ctx context.Context, addr string, timeout time.Duration) (net.Conn, error) {
	return (&net.Dialer{Timeout: timeout, KeepAlive: -1}).DialContext(ctx, "tcp", addr)
}

// newClient does not follow redirects or check certificates.
func newClient(t *T, http2 bool) *http.Client {
	tr := &http.Transport{DisableKeepAlives: !http2, DisableCompression: true, ForceAttemptHTTP2: http2, TLSClientConfig: anyCertificate()}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func idleOf(d time.Duration) func(*frontOptions) {
	return func(o *frontOptions) { o.limits.Idle = d }
}

func (f *front) addr() string { return f.listener.Addr().String() }

// pool is the first target's.
func (f *front) pool() *proxy.Pool { return f.router.targets[0].pool }

func (f *front) get(path string) answer { return get(f.t, f.client, f.url+path) }

func (f *front) do(req *http.Request) answer { return do(f.t, f.client, req) }

func (f *front) line() accesslog.Line { return f.only(f.t) }

// begin sends a GET and returns when the target has it.
func (f *front) begin(target *scripted.Target) <-chan answer {
	return begin(f.t, f.client, f.url, target)
}

// send writes bytes.
func send(t *T, w io.Writer, text string) {
	_, err := io.WriteString(w, text)
	t.must(err)
}

// raw sends bytes as a client and returns what comes back until the end.
func (f *front) raw(request string) string {
	c := f.dial()
	send(f.t, c, request)
	got, err := io.ReadAll(c)
	if err != nil && len(got) == 0 {
		f.t.Fatalf("read answer: %v", err)
	}
	return string(got)
}

func (f *front) dial() *net.TCPConn { return dial(f.t, f.addr()) }

// dial connects; the connection's time is the test's.
func dial(t *T, addr string) *net.TCPConn {
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
	t.must(err)
	t.Cleanup(func() { c.Close() })
	if end, ok := t.Context().Deadline(); ok {
		t.must(c.SetDeadline(end))
	}
	return c.(*net.TCPConn)
}

// answer is what a client got.
type answer struct {
	status int
	header http.Header
	body   string
	err    error // while reading the body
}

func newRequest(t *T, method, url string, body io.Reader) *http.Request {
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	t.must(err)
	return req
}

func get(t *T, client *http.Client, url string) answer {
	return do(t, client, newRequest(t, http.MethodGet, url, nil))
}

func do(t *T, client *http.Client, req *http.Request) answer {
	resp, err := client.Do(req)
	if err != nil {
		t.Errorf("%s %s: %v", req.Method, req.URL, err)
		return answer{header: http.Header{}, err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(body), err}
}

// begin sends a GET and returns when the target has it.
func begin(t *T, client *http.Client, url string, target *scripted.Target) <-chan answer {
	result := make(chan answer, 1)
	before := target.Requests.Load()
	req := newRequest(t, http.MethodGet, url, nil)
	go func() { result <- do(t, client, req) }()
	t.eventually("request in flight", func() bool { return target.Requests.Load() > before })
	return result
}

// wantStatus compares the status a client got.
func wantStatus(t *T, what string, a answer, want int) {
	if a.status != want {
		t.Errorf("%s: status %d, want %d", strings.TrimSpace(what), a.status, want)
	}
}
