package main

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

// status is that of GET path on a connection of its own, and whether the answer
// ends it.
func (p *process) status(path string) (code int, closes bool) {
	p.Helper()
	c := p.dial()
	c.send("GET", path, "")
	answer, _ := c.receive()
	return answer.StatusCode, answer.Close
}

// stoppingFlags are all four, each with what /healthz and another path answer
// once it is known that the application is to stop.
var stoppingFlags = []struct {
	flags  []string
	health int
	closes bool
}{
	{nil, 200, false},
	{[]string{"--close-while-draining"}, 200, true},
	{[]string{"--fail-readiness"}, 503, false},
	{[]string{"--close-while-draining", "--fail-readiness"}, 503, true},
}

func (p *process) wantStopping(flags []string, health int, closes bool) {
	p.Helper()
	if code, close := p.status("/healthz"); code != health || close != closes {
		p.Errorf("%v: /healthz answers %d, close %v: want %d, %v", flags, code, close, health, closes)
	}
	if code, close := p.status("/"); code != 200 || close != closes {
		p.Errorf("%v: / answers %d, close %v: want 200, %v", flags, code, close, closes)
	}
}

func TestStoppingFromSIGTERM(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"wait=1h", "ignore"} {
		for _, c := range stoppingFlags {
			p := start(t, append([]string{"--on-sigterm", what, steady("1ms")}, c.flags...)...)
			p.wantStopping(c.flags, 200, false)
			p.sigterm()
			p.await("sigterm")
			p.wantStopping(c.flags, c.health, c.closes)
		}
	}
}

// A SIGTERM before the application listens counts too.
func TestStoppingFromBeforeListening(t *testing.T) {
	t.Parallel()
	p := launch(t, "--on-sigterm", "ignore", "--start-delay", "200ms", "--fail-readiness", "--close-while-draining", steady("1ms"))
	p.await("starting")
	p.sigterm()
	p.addr = p.await("listening").Detail
	p.wantStopping(nil, 503, true)
}

func TestPreStop(t *testing.T) {
	t.Parallel()
	for _, c := range stoppingFlags {
		p := start(t, append([]string{steady("1ms")}, c.flags...)...)
		for _, query := range []string{"", "?sleep=", "?sleep=10", "?sleep=-1s"} {
			bad := p.dial()
			bad.send("GET", "/lameduck/prestop"+query, "")
			if answer, body := bad.receive(); answer.StatusCode != http.StatusBadRequest || !strings.Contains(body, "like sleep=10s") {
				t.Errorf("prestop%s: %s %q, want 400 and what is right", query, answer.Status, body)
			}
		}
		post := p.dial()
		post.send("POST", "/lameduck/prestop?sleep=1s", "")
		if answer, _ := post.receive(); answer.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("POST: %s, want 405", answer.Status)
		}
		p.wantStopping(c.flags, 200, false)

		hook := p.dial()
		hook.send("GET", "/lameduck/prestop?sleep=1h", "")
		if e := p.await("prestop"); e.Detail != "sleep=1h0m0s" {
			t.Errorf("logged %+v, want the sleep", e)
		}
		p.wantStopping(c.flags, c.health, c.closes)
		if code, _ := p.status("/lameduck/prestop?sleep=1ms"); code != http.StatusOK {
			t.Errorf("prestop answers %d after its time, want 200", code)
		}
	}
}

// stream begins a stream and wants its first two lines.
func (p *process) stream(id string) (*conn, *bufio.Scanner) {
	p.Helper()
	c := p.dial()
	c.send("GET", "/lameduck/stream", id)
	answer, err := http.ReadResponse(c.r, nil)
	if err != nil {
		p.Fatal(err)
	}
	lines := bufio.NewScanner(answer.Body)
	for _, want := range []string{id, "."} {
		if !lines.Scan() || lines.Text() != want {
			p.Fatalf("line is %q (%v), want %q", lines.Text(), lines.Err(), want)
		}
	}
	return c, lines
}

func TestStreamDrains(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"drain", "wait=500ms"} {
		p := start(t, "--on-sigterm", what, "--drain-idle", "0", "--drain-timeout", "1h")
		c, lines := p.stream("r1")
		p.sigterm()
		for lines.Scan() {
		}
		if err := lines.Err(); err != nil {
			t.Errorf("%s: the stream ends with %v, want in order", what, err)
		}
		c.closed()
		// The line of the request may come before or after that of the listener.
		seen := map[string]bool{}
		for line, ok := p.line(); ok; line, ok = p.line() {
			if line.ID == "r1" && (line.Status != 200 || line.Path != "/lameduck/stream") {
				t.Errorf("logged %+v, want status 200", line)
			}
			seen[line.ID+line.Event] = true
		}
		for _, want := range []string{"r1", "listener-closed", "drained", "exit"} {
			if !seen[want] {
				t.Errorf("%s: the log lacks %s", what, want)
			}
		}
	}
}

func TestStreamIsCutByExit(t *testing.T) {
	t.Parallel()
	p := start(t, "--on-sigterm", "exit")
	_, lines := p.stream("r1")
	p.sigterm()
	for lines.Scan() {
	}
	if err := lines.Err(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the stream ends with %v, want a cut", err)
	}
	p.exits(exitOK)
}

func TestStreamClientGone(t *testing.T) {
	t.Parallel()
	p := start(t)
	c, _ := p.stream("r1")
	c.Close()
	if line, _ := p.line(); line.ID != "r1" || line.Status != statusClientGone || line.Micros < streamEvery.Microseconds() {
		t.Errorf("logged %+v, want r1 with status %d after more than a line", line, statusClientGone)
	}
}
