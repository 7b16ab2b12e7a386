package load

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"lameduck/harness"
)

// turnsTo are n connections, all open, to a server.
func turnsTo(t *testing.T, url string, n int) *turns {
	t.Helper()
	load := harness.Load{Connections: harness.ConnectionsLongLived, LongLived: n, Timeout: harness.Dur(30 * time.Second)}
	c := openConnections(t.Context(), load, harness.Target{URL: url}).(*turns)
	t.Cleanup(c.close)
	if c.transport.IdleConnTimeout != 0 {
		t.Errorf("connections are closed after %s idle, want never", c.transport.IdleConnTimeout)
	}
	return c
}

// get sends one request, and returns the answer's body and the record.
func get(t *testing.T, c connections, url string) (string, harness.Request) {
	t.Helper()
	var r harness.Request
	out, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Error(err)
		return "", r
	}
	answer, err := c.send(out, &r)
	if err != nil {
		t.Error(err)
		return "", r
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || r.Attempts != 1 {
		t.Errorf("%v after %d connections, want an answer after one", err, r.Attempts)
	}
	return string(body), r
}

// addr answers with the connection's other end.
func addr(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RemoteAddr) }

func TestTurns(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(addr))
	defer server.Close()
	c := turnsTo(t, server.URL, 3)
	var got []string
	for range 9 {
		from, r := get(t, c, server.URL)
		if !r.Reused {
			t.Errorf("a request had a new connection, from %s", from)
		}
		got = append(got, from)
	}
	first := got[:3]
	if !slices.Equal(got[3:6], first) || !slices.Equal(got[6:], first) || first[0] == first[1] || first[1] == first[2] || first[0] == first[2] {
		t.Errorf("connections were used in the order %v, want three in turn", got)
	}
}

// TestTurnsBusy keeps connections busy: the next free one is taken, and if there
// is none, one that is closed after the request.
func TestTurnsBusy(t *testing.T) {
	held, release := make(chan string), make(chan struct{})
	closed := make(chan string, 100)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hold" {
			held <- r.RemoteAddr
			<-release
		}
		addr(w, r)
	}))
	server.Config.ConnState = connState(closed, http.StateClosed)
	server.Start()
	defer server.Close()
	c := turnsTo(t, server.URL, 2)
	var holding sync.WaitGroup
	hold := func() string {
		holding.Go(func() { get(t, c, server.URL+"/hold") })
		return <-held
	}
	first := hold()
	second, r := get(t, c, server.URL)
	if again, _ := get(t, c, server.URL); first == second || again != second || !r.Reused {
		t.Errorf("with connection %s busy, %s and %s were used: want the other one twice", first, second, again)
	}
	if got := hold(); got != second {
		t.Errorf("connection %s was used, want %s", got, second)
	}
	extra, r := get(t, c, server.URL)
	if extra == first || extra == second || r.Reused {
		t.Errorf("with both busy, connection %s was used (reused %v), want a new one", extra, r.Reused)
	}
	if got := <-closed; got != extra {
		t.Errorf("connection %s was closed, want %s, which was one too many", got, extra)
	}
	close(release)
	holding.Wait()
}

// TestTurnsBroken has the server close a connection: it is opened anew at its
// turn, and the others stay.
func TestTurnsBroken(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/last" {
			w.Header().Set("Connection", "close")
		}
		addr(w, r)
	}))
	defer server.Close()
	c := turnsTo(t, server.URL, 2)
	broken, _ := get(t, c, server.URL+"/last")
	for limit := time.Now().Add(30 * time.Second); c.slots[0].conn.Err() == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("the connection is not seen to be closed")
		}
	}
	other, _ := get(t, c, server.URL)
	fresh, r := get(t, c, server.URL)
	if fresh == broken || fresh == other || r.Reused {
		t.Errorf("connection %s was used (reused %v) in place of %s, want a new one", fresh, r.Reused, broken)
	}
	if again, r := get(t, c, server.URL); again != other || !r.Reused {
		t.Errorf("connection %s was used, want %s, which had not been closed", again, other)
	}
	if again, r := get(t, c, server.URL); again != fresh || !r.Reused {
		t.Errorf("connection %s was used, want %s, which has just been opened", again, fresh)
	}
}

// TestTurnsRefused has no server at first: the request whose turn it is says so.
func TestTurnsRefused(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(addr))
	server.Close()
	c := turnsTo(t, server.URL, 2)
	for range 4 {
		var r harness.Request
		out, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.send(out, &r); !errors.Is(err, syscall.ECONNREFUSED) || r.Attempts != 0 {
			t.Errorf("error is %v after %d connections, want connection refused", err, r.Attempts)
		}
	}
}

// TestBodies wants every request to send what was asked for.
func TestBodies(t *testing.T) {
	t.Parallel()
	for _, connections := range []harness.Connections{harness.ConnectionsPooled, harness.ConnectionsNew, harness.ConnectionsLongLived} {
		const size = 70_000
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if r.Method != http.MethodPost || r.ContentLength != size || err != nil || string(body) != string(content(size)) {
				t.Errorf("%s of %d bytes, %d came (%v): want a POST of %d", r.Method, r.ContentLength, len(body), err, size)
			}
			echo(w, r)
		}))
		spec := attackSpec(server.URL, 200*time.Millisecond)
		spec.Load.BodySize, spec.Load.Connections = size, connections
		spec.Load.ControlRate, spec.Target.ControlURL = 20, server.URL+"/control"
		if connections == harness.ConnectionsLongLived {
			spec.Load.LongLived = 3
		}
		requests, _ := attack(t, t.Context(), spec)
		server.Close()
		if got := count(requests); got[harness.OutcomeOK] != 44 {
			t.Errorf("%s: %v, want 44 ok", connections, got)
		}
	}
}
