package main

import (
	"errors"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"
)

// refused wants that nothing listens any more.
func (p *process) refused() {
	p.Helper()
	c, err := net.Dial("tcp", p.addr)
	if err == nil {
		c.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		p.Errorf("dial: %v, want connection refused", err)
	}
}

func TestSIGTERMDrain(t *testing.T) {
	t.Parallel()
	p := start(t, "--on-sigterm", "drain", "--drain-idle", "1h", steady("200ms"))
	idle, unused, busy := p.dial(), p.dial(), p.dial()
	if idle.get("/", "r1") {
		t.Error("before SIGTERM an answer announces a close")
	}
	// The server accepts in order: when it answers on a later connection, it has
	// all of them.
	p.dial().get("/healthz", "")
	busy.send("GET", "/", "r2")
	p.sigterm()
	p.await("sigterm")
	p.await("listener-closed")
	p.refused()

	// The request in flight, and the first ones on idle connections, are
	// answered, and end their connections by agreement.
	if answer, body := busy.receive(); body != "r2\napp-1\n" || !answer.Close {
		t.Errorf("in flight: %q, close %v: want its answer with Connection: close", body, answer.Close)
	}
	busy.closed()
	if !idle.get("/", "r3") {
		t.Error("on an idle connection: no Connection: close")
	}
	idle.closed()
	if !unused.get("/lameduck/config", "") {
		t.Error("on an unused connection: no Connection: close")
	}
}

func TestSIGTERMDrainEnds(t *testing.T) {
	t.Parallel()
	for _, idle := range []string{"0", "20ms"} {
		p := start(t, "--on-sigterm", "drain", "--drain-idle", idle, steady("1ms"))
		c := p.dial()
		c.get("/", "r1")
		p.sigterm()
		c.closed()
		p.await("sigterm")
		p.await("listener-closed")
		p.await("drained")
		p.exits(exitOK)
	}
}

func TestSIGTERMDrainTimeout(t *testing.T) {
	t.Parallel()
	p := start(t, "--on-sigterm", "drain", "--drain-timeout", "20ms", steady("1h"))
	c := p.dial()
	c.get("/healthz", "") // so that the connection is accepted when SIGTERM comes
	c.send("GET", "/", "r1")
	p.sigterm()
	c.closed()
	p.exits(exitError)
}

func TestSIGTERMExit(t *testing.T) {
	t.Parallel()
	p := start(t, "--on-sigterm", "exit", steady("1h"))
	idle, busy := p.dial(), p.dial()
	idle.get("/healthz", "")
	busy.send("GET", "/", "r1")
	p.sigterm()
	idle.closed()
	busy.closed()
	p.await("sigterm")
	p.exits(exitOK)
	p.refused()
}

func TestSIGTERMWait(t *testing.T) {
	t.Parallel()
	p := start(t, "--on-sigterm", "wait=2s", "--drain-idle", "1h", steady("1ms"))
	old := p.dial()
	old.get("/", "r1")
	p.sigterm()
	p.await("sigterm")
	// All goes on as before, also after a second signal.
	p.sigterm()
	p.await("sigterm")
	fresh := p.dial()
	if old.get("/", "r2") || fresh.get("/", "r3") || fresh.get("/healthz", "") {
		t.Error("while waiting, an answer announces a close")
	}
	fresh.Close()
	p.await("listener-closed")
	p.refused()
	if !old.get("/", "r4") {
		t.Error("while draining, an answer does not announce a close")
	}
	p.await("drained")
	p.exits(exitOK)
}

func TestSIGTERMIgnore(t *testing.T) {
	t.Parallel()
	p := start(t, "--on-sigterm", "ignore", steady("1ms"))
	c := p.dial()
	for range 2 {
		p.sigterm()
		p.await("sigterm")
		if c.get("/", "r1") || p.dial().get("/", "r2") {
			t.Error("an answer announces a close")
		}
	}
}

func TestSIGTERMBeforeListening(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"drain", "exit", "wait=1h"} {
		p := launch(t, "--on-sigterm", what, "--start-delay", "1h")
		p.await("starting")
		p.sigterm()
		p.await("sigterm")
		p.exits(exitOK)
	}
	p := launch(t, "--on-sigterm", "ignore", "--start-delay", "200ms")
	p.await("starting")
	p.sigterm()
	p.addr = p.await("listening").Detail
	p.dial().get("/healthz", "")
}

// A connection that was idle long before the drain began is kept for the time
// that one gets which was busy until then.
func TestIdleCountsFromTheDrain(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	c := newConnections()
	c.state(ours, http.StateIdle)
	began := time.Now().Add(time.Hour)
	if open, next := c.closeIdle(began, began.Add(900*time.Millisecond), time.Second); open != 1 || next != 100*time.Millisecond {
		t.Errorf("%d connections open, next due in %s; want one, due in 100ms", open, next)
	}
	if open, _ := c.closeIdle(began, began.Add(time.Second), time.Second); open != 0 {
		t.Errorf("%d connections open after the idle time, want none", open)
	}
	if _, err := ours.Write([]byte("x")); err == nil {
		t.Error("the connection was not closed")
	}
}

// A request that waits in the kernel when its connection is due keeps the
// connection open.
func TestUnreadRequestIsNotCut(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	theirs, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	ours, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	c := newConnections()
	c.state(ours, http.StateIdle)
	now := time.Now().Add(time.Hour)
	if _, err := theirs.Write([]byte("GET")); err != nil {
		t.Fatal(err)
	}
	for limit := time.Now().Add(10 * time.Second); !hasUnread(ours); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("what was written is not seen as unread")
		}
	}
	if open, next := c.closeIdle(now, now.Add(time.Second), time.Second); open != 1 || next != unreadPoll {
		t.Errorf("%d connections open, next due in %s; want one, due in %s", open, next, unreadPoll)
	}
	if _, err := ours.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	if open, _ := c.closeIdle(now, now.Add(time.Second), time.Second); open != 0 {
		t.Errorf("%d connections open when all is read, want none", open)
	}
}
