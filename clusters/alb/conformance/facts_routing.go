package conformance

import (
	"net/http"

	"lameduck/clusters/alb/accesslog"
	"lameduck/clusters/alb/proxy"
	"lameduck/clusters/alb/scripted"
)

func routingFacts() []Fact {
	return []Fact{
		{"1-refused-no-retry", 1, Documented, guideTroubleshooting, "a request whose connection is refused is not tried on another target", noRetryOnOtherTarget},
		{"1-reused-no-retry", 1, Documented, guideTroubleshooting, "a request on a reused connection that dies before the first byte is not sent again, whatever its method", noRetryOnReusedConnection},
		{"1-shared", 1, Documented, guideIntroduction, "connections to a target are shared by all clients", connectionsAreShared},
		{"1-pool-order", 1, Unknown, notPublished, "pool order is a setting: lifo reuses the connection used last, fifo the one idle longest", poolOrder},
		{"1-done", 1, Inferred, guideTargetGroups, "a request is outstanding until its exchange has ended, with the target's status", doneOnce},
	}
}

func noRetryOnOtherTarget(t *T) {
	good := startTarget(t, scripted.Echo)
	dead := startTarget(t, scripted.Echo)
	dead.Close()
	f := newFront(t, []string{dead.Address(), good.Address()})
	if a := f.get("/"); a.status != http.StatusBadGateway {
		t.Errorf("status %d, want 502", a.status)
	}
	if n := good.Conns.Load(); n != 0 {
		t.Errorf("the other target got %d connections, want 0", n)
	}
	wantLine(t, f.line(), 502, 0, accesslog.PhaseConnect, "ECONNREFUSED")
}

func noRetryOnReusedConnection(t *T) {
	for _, method := range []string{"GET", "HEAD", "PUT", "DELETE", "POST"} {
		target := startTarget(t, func(x *scripted.Exchange) {
			x.Request()
			x.Say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			x.Request() // and close without an answer
		})
		f := newFront(t, []string{target.Address()})
		f.get("/")
		f.line() // first: a line is written after its answer
		wantStatus(t, method, f.do(newRequest(t, method, f.url, nil)), http.StatusBadGateway)
		if c, r := target.Conns.Load(), target.Requests.Load(); c != 1 || r != 2 {
			t.Errorf("%s: target saw %d connections and %d requests, want 1 and 2", method, c, r)
		}
		l := f.wait(t, 2)[1]
		wantLine(t, l, 502, 0, accesslog.PhaseWait, accesslog.ErrorEOF)
		if !l.Reused {
			t.Errorf("%s: log: not reused", method)
		}
	}
}

func connectionsAreShared(t *T) {
	target := startTarget(t, scripted.Echo)
	f := newFront(t, []string{target.Address()})
	for range 5 { // five client connections: front's client keeps none
		f.get("/")
	}
	if n := target.Conns.Load(); n != 1 {
		t.Errorf("target saw %d connections, want 1", n)
	}
}

func poolOrder(t *T) {
	for order, want := range map[proxy.PoolOrder]string{proxy.PoolLIFO: "1", proxy.PoolFIFO: "2"} {
		release := make(chan struct{})
		target := startTarget(t, func(x *scripted.Exchange) {
			for r := x.Request(); r != nil; r = x.Request() {
				if r.URL.Path == "/hold" {
					hold(t, release)
				}
				x.Say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Conn: " + string(rune('0'+x.Number)) + "\r\n\r\nok")
			}
		})
		f := newFront(t, []string{target.Address()}, func(o *frontOptions) { o.pool.Order = order })
		first := begin(t, f.client, f.url+"/hold", target) // connection 1
		second := f.get("/")                               // connection 2 becomes idle ...
		if got := second.header.Get("X-Conn"); got != "2" {
			t.Fatalf("second request on connection %s, want 2", got)
		}
		close(release)
		wait(t, "answer", first) // ... then connection 1: the order of use is 2, 1
		t.eventually("idle connections", func() bool { i, _ := f.pool().Size(); return i == 2 })
		if got := f.get("/").header.Get("X-Conn"); got != want {
			t.Errorf("%v: connection %s, want %s", order, got, want)
		}
	}
}

func doneOnce(t *T) {
	target, release := held(t)
	f := newFront(t, []string{target.Address()})
	inFlight := f.begin(target)
	counted := f.router.targets[0]
	if n := counted.done.Load(); n != 0 {
		t.Errorf("the end was told %d times with the request in flight", n)
	}
	release()
	wait(t, "answer", inFlight)
	t.eventually("end", func() bool { return counted.done.Load() > 0 })
	if n, status := counted.done.Load(), counted.status.Load(); n != 1 || status != 200 {
		t.Errorf("the end was told %d times, with status %d; want once, 200", n, status)
	}
}
