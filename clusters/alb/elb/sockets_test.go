package elb

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lameduck/clusters/alb/accesslog"
)

// wired makes checks and listeners real and quick.
func wired(o *worldOptions) {
	o.sockets = true
	o.group.HealthCheck.Interval, o.group.HealthCheck.Timeout = 10*time.Millisecond, 5*time.Second
	o.lb.Listeners = []Listener{{Protocol: HTTP}}
}

// served starts an HTTP server as a target.
func served(t *testing.T, h http.HandlerFunc) (*httptest.Server, netip.AddrPort) {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s, mustAddr(s.Listener.Addr().String())
}

func ok(http.ResponseWriter, *http.Request) {}

func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s", what)
		}
	}
}

func (w *world) waitHealth(target netip.AddrPort, want string) {
	w.t.Helper()
	eventually(w.t, want+" of "+target.String(), func() bool { return w.health(target) == want })
}

// logged collects the lines of a load balancer.
type logged struct {
	mu     sync.Mutex
	lines  []accesslog.Line
	states []StateChange
	force  []InForce
	closed bool
}

func (l *logged) Settings(line []byte) {
	var f InForce
	err := json.Unmarshal(line, &f)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		f.Applied = err.Error()
	}
	l.force = append(l.force, f)
}

func (l *logged) Target(line []byte) {
	var c StateChange
	err := json.Unmarshal(line, &c)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		c.Detail = err.Error()
	}
	l.states = append(l.states, c)
}

func (l *logged) Add(line *accesslog.Line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, *line)
}

func (l *logged) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return nil
}

func (l *logged) last(t *testing.T, n int) accesslog.Line {
	t.Helper()
	var line accesslog.Line
	eventually(t, "line in the log", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.lines) < n {
			return false
		}
		line = l.lines[n-1]
		return true
	})
	return line
}

func (l *logged) option(o *worldOptions) {
	o.outputs.Log = func(string) (Log, error) { return l, nil }
}

// get sends a request on a connection of its own to one node.
func (w *world) get(node int) (status int, body string, err error) {
	w.t.Helper()
	tr := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, "http://"+w.Addresses(lbName)[node].String()+"/", nil)
	w.must(err)
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

func TestUnspecifiedNode(t *testing.T) {
	_, target := served(t, ok)
	n := newNode(0, netip.IPv4Unspecified())
	c, err := n.dial(t.Context(), target.String(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// TestTrafficWhileDraining is what this package is for: requests of each node
// through its listener, while the deregistration is on its way, and then cut.
func TestTrafficWhileDraining(t *testing.T) {
	release := make(chan struct{})
	var mu sync.Mutex
	from := make(map[string]int)
	_, target := served(t, func(_ http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		mu.Lock()
		from[host]++
		mu.Unlock()
		if r.URL.Path != "/health" && r.Header.Get("X-Wait") != "" {
			<-release
		}
	})
	defer close(release)
	log := &logged{}
	w := newWorld(t, wired, log.option, func(o *worldOptions) {
		o.group.HealthCheck = HealthCheck{Disabled: true}
		o.group.DeregistrationLag = &Range{200 * time.Millisecond, 200 * time.Millisecond}
		o.group.DeregistrationDelay = 400 * time.Millisecond
	})
	w.register(target)
	inFlight := make(chan int)
	go func() {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+w.Addresses(lbName)[0].String()+"/", nil)
		req.Header.Set("X-Wait", "1")
		resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
		if err != nil {
			t.Error(err)
			inFlight <- 0
			return
		}
		resp.Body.Close()
		inFlight <- resp.StatusCode
	}()
	eventually(t, "request in flight", func() bool { mu.Lock(); defer mu.Unlock(); return from["127.0.0.1"] == 1 })
	start := time.Now()
	w.deregister(target)
	for node := range 2 {
		if status, _, err := w.get(node); status != 200 || err != nil {
			if time.Since(start) < 200*time.Millisecond {
				t.Errorf("node %d while the deregistration is on its way: %d, %v", node, status, err)
			}
			continue
		}
		if l := log.last(t, node+1); l.TargetState != "draining" || l.Target != target.String() {
			t.Errorf("log: %+v", l)
		}
	}
	eventually(t, "503", func() bool { status, _, err := w.get(1); return err == nil && status == 503 })
	if d := time.Since(start); d < 200*time.Millisecond {
		t.Errorf("no more requests after %s, which is before the lag", d)
	}
	if status := <-inFlight; status != 502 {
		t.Errorf("the request in flight got %d, want 502", status)
	}
	if d := time.Since(start); d < 400*time.Millisecond {
		t.Errorf("it was cut after %s, which is before the delay", d)
	}
	eventually(t, "line with "+accesslog.ErrorDeregistered, func() bool {
		log.mu.Lock()
		defer log.mu.Unlock()
		return slices.ContainsFunc(log.lines, func(l accesslog.Line) bool { return l.Status == 502 && l.Error == accesslog.ErrorDeregistered })
	})
	eventually(t, "end of the target in the log", func() bool { // its last change
		log.mu.Lock()
		defer log.mu.Unlock()
		last := log.states[len(log.states)-1]
		return last.Node == "" && last.State == StateUnused
	})
	log.mu.Lock()
	defer log.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(log.states) != len(w.changes) || !log.states[0].Time.Equal(w.changes[0].Time) || log.states[0].Target != target || log.states[0].State != w.changes[0].State {
		t.Errorf("states in the log: %+v, told: %+v", log.states, w.changes)
	}
	mu.Lock()
	defer mu.Unlock()
	if from["127.0.0.2"] == 0 {
		t.Errorf("connections from %v, want some from each node's address", from)
	}
}

// TestIdleConnections: closed when the node stops sending, or kept.
func TestIdleConnections(t *testing.T) {
	for _, closeIdle := range []bool{true, false} {
		_, target := served(t, ok)
		w := newWorld(t, wired, unchecked, func(o *worldOptions) { o.group.CloseIdle = &closeIdle; o.settings.KeepIdleAtDeregistration = closeIdle })
		w.register(target)
		if status, _, err := w.get(0); status != 200 {
			t.Fatal(status, err)
		}
		pool := w.pool(target, 0)
		eventually(t, "idle connection", func() bool { idle, _ := pool.Size(); return idle == 1 })
		w.deregister(target)
		if idle, _ := pool.Size(); (idle == 0) != closeIdle {
			t.Errorf("close idle %v: %d idle connections", closeIdle, idle)
		}
	}
}

func TestListeners(t *testing.T) {
	log := &logged{}
	w := newWorld(t, wired, unchecked, log.option)
	at := w.Addresses(lbName)
	if len(at) != 2 || at[0].Port() != at[1].Port() || at[0].Addr() == at[1].Addr() {
		t.Fatalf("listens on %v, want one port on two nodes", at)
	}
	// A port that is taken on one node only.
	taken, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := mustAddr(taken.Addr().String()).Port()
	lb := w.lb
	lb.Listeners = []Listener{{Protocol: HTTP}, {Port: port, Protocol: HTTP}}
	lb.Default = Action{}
	if err := w.PutLoadBalancer(t.Context(), lb); err == nil || !strings.Contains(err.Error(), "listen on 127.0.0.2 port") {
		t.Errorf("a taken port: %v", err)
	}
	if got := w.Addresses(lbName); !slices.Equal(got, at) {
		t.Errorf("then it listens on %v, before on %v", got, at)
	}
	if status, _, err := w.get(0); status != 503 {
		t.Errorf("status %d, %v: the rules have changed with the failed call", status, err)
	}
	if free, err := net.Listen("tcp", netip.AddrPortFrom(w.nodes[0].addr, port).String()); err != nil {
		t.Errorf("the failed call keeps a port: %v", err)
	} else {
		free.Close()
	}
	taken.Close()
	w.must(w.PutLoadBalancer(t.Context(), lb))
	if got := w.Addresses(lbName); len(got) != 4 || got[2].Port() != port || got[3].Port() != port {
		t.Errorf("listens on %v", got)
	}
	other := lb
	other.Name = "ns/other"
	other.Listeners = lb.Listeners[1:]
	if err := w.PutLoadBalancer(t.Context(), other); !errors.Is(err, ErrDuplicateListener) {
		t.Errorf("another load balancer's port: %v", err)
	}
	lb.Listeners = lb.Listeners[1:]
	lb.Listeners[0].Protocol = HTTPS
	if err := w.PutLoadBalancer(t.Context(), lb); !errors.Is(err, ErrInvalidConfiguration) {
		t.Errorf("another protocol for a port: %v", err)
	}
	lb.Listeners[0].Protocol = HTTP
	w.must(w.PutLoadBalancer(t.Context(), lb))
	if c, err := net.Dial("tcp", at[0].String()); err == nil {
		c.Close()
		t.Error("a removed listener accepts")
	}
	w.must(w.DeleteLoadBalancer(t.Context(), lbName))
	if c, err := net.Dial("tcp", netip.AddrPortFrom(w.nodes[0].addr, port).String()); err == nil {
		c.Close()
		t.Error("a deleted load balancer accepts")
	}
	if !log.closed || w.Addresses(lbName) != nil {
		t.Error("its log is open, or it is still there")
	}
}

func TestUnusableAddress(t *testing.T) {
	w := newWorld(t, wired, unchecked)
	own := w.Addresses(lbName)[1]
	w.register(own)
	w.wantHealth(own, "unused "+ReasonIPUnusable)
	if status, _, err := w.get(0); status != 503 {
		t.Errorf("status %d, %v", status, err)
	}
	w.deregister(own)
	w.wantHealth(own, draining)
}

func TestHTTPSListener(t *testing.T) {
	_, target := served(t, ok)
	w := newWorld(t, wired, unchecked, func(o *worldOptions) { o.lb.Listeners[0].Protocol = HTTPS })
	w.register(target)
	tr := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Get("https://" + w.Addresses(lbName)[1].String())
	w.must(err)
	resp.Body.Close()
	if resp.StatusCode != 200 || resp.ProtoMajor != 2 {
		t.Errorf("status %d, %s", resp.StatusCode, resp.Proto)
	}
}

// TestTargetTLS: a group whose targets speak HTTPS, with any certificate.
func TestTargetTLS(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(ok))
	defer s.Close()
	w := newWorld(t, wired, unchecked, func(o *worldOptions) { o.group.Protocol = HTTPS })
	w.register(mustAddr(s.Listener.Addr().String()))
	if status, _, err := w.get(0); status != 200 {
		t.Errorf("status %d, %v", status, err)
	}
}

// hold is a target whose requests wait.
func hold(t *testing.T) (target netip.AddrPort, arrived chan struct{}, release func()) {
	arrived, released := make(chan struct{}, 10), make(chan struct{})
	release = sync.OnceFunc(func() { close(released) })
	_, target = served(t, func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-released
	})
	t.Cleanup(release) // before the server's end, which waits
	return target, arrived, release
}

func TestDeleteLoadBalancerCuts(t *testing.T) {
	target, arrived, _ := hold(t)
	log := &logged{}
	w := newWorld(t, wired, unchecked, log.option)
	w.register(target)
	ended := make(chan error)
	go func() { _, _, err := w.get(0); ended <- err }()
	<-arrived
	w.must(w.DeleteLoadBalancer(t.Context(), lbName))
	if err := <-ended; err == nil {
		t.Error("the request in flight got an answer")
	}
	if l := log.last(t, 1); l.Error != accesslog.ErrorStopped {
		t.Errorf("log: %+v", l)
	}
	w.wantHealth(target, notInUse)
	w.must(w.PutLoadBalancer(t.Context(), w.lb)) // the group can be used again
	go w.get(0)
	<-arrived
}

func TestCloseLetsRequestsEnd(t *testing.T) {
	target, arrived, release := hold(t)
	w := newWorld(t, wired, unchecked)
	w.register(target)
	at := w.Addresses(lbName)[0].String()
	status := make(chan int)
	go func() { s, _, _ := w.get(0); status <- s }()
	<-arrived
	closed := make(chan error)
	go func() { closed <- w.Close(context.Background()) }()
	eventually(t, "closed port", func() bool {
		c, err := net.Dial("tcp", at)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	release()
	if s := <-status; s != 200 {
		t.Errorf("status %d, want 200", s)
	}
	w.must(<-closed)
}
