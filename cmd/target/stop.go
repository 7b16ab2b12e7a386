package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"lameduck/harness"
)

// stop is what happens after SIGTERM, for every behaviour that ends. It
// returns the exit code; what is still open then is cut by the process's exit.
func (a *app) stop(sigterm <-chan os.Signal, l net.Listener, served <-chan error) (int, error) {
	if a.OnSIGTERM == harness.SIGTERMExit {
		return a.log.exit(exitOK, a.conns.left()), nil
	}
	if a.OnSIGTERM == harness.SIGTERMWait {
		wait := time.NewTimer(a.SIGTERMWait.Duration)
		defer wait.Stop()
		for waiting := true; waiting; {
			select {
			case <-wait.C:
				waiting = false
			case <-sigterm: // once more changes nothing
				a.sigterm("already stopping")
			case err := <-served:
				return exitError, err
			}
		}
	}

	a.drain()
	if err := l.Close(); err != nil {
		return exitError, fmt.Errorf("close listener: %w", err)
	}
	// Accept has returned for good and every connection that it gave is known
	// only when Serve has returned. Its error is that the listener is closed.
	<-served
	a.log.event(event{Event: "listener-closed"})
	ctx, cancel := context.WithTimeout(context.Background(), a.DrainTimeout.Duration)
	defer cancel()
	if !a.conns.drain(ctx, a.DrainIdle.Duration) {
		return a.log.exit(exitError, "drain timeout, "+a.conns.left()), nil
	}
	a.log.event(event{Event: "drained"})
	return a.log.exit(exitOK, ""), nil
}

// connections are the open connections of a server.
//
// http.Server.Shutdown closes idle connections at once. That close can cross
// with a request which the client is just sending on the connection, and the
// client gets an error although the application left nothing undone. Between
// two requests of a busy connection only milliseconds pass, so that such
// crossings are common exactly where there is load. Drain waits instead: a busy
// connection brings another request soon, which is answered with Connection:
// close and so ended by agreement; one that was idle for --drain-idle since then,
// and has nothing to be read, is hardly picked in the very millisecond in which
// it is closed. This is what makes a clean drain clean; --drain-idle 0 shows the
// other kind.
type connections struct {
	mu      sync.Mutex
	open    map[net.Conn]connection
	changed chan struct{} // holds a token if something changed since it was last taken
}

type connection struct {
	state http.ConnState
	since time.Time
}

func newConnections() connections {
	return connections{open: make(map[net.Conn]connection), changed: make(chan struct{}, 1)}
}

// state is the server's ConnState hook.
func (c *connections) state(conn net.Conn, s http.ConnState) {
	c.mu.Lock()
	if s == http.StateClosed || s == http.StateHijacked {
		delete(c.open, conn)
	} else {
		c.open[conn] = connection{s, time.Now()}
	}
	c.mu.Unlock()
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// left describes what an exit cuts.
func (c *connections) left() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	active := 0
	for _, conn := range c.open {
		if conn.state == http.StateActive {
			active++
		}
	}
	return fmt.Sprintf("%d connections open, %d of them with a request", len(c.open), active)
}

// drain closes connections as they have been idle for long enough and returns
// when none is left, or false when ctx ended before.
func (c *connections) drain(ctx context.Context, idle time.Duration) bool {
	began := time.Now()
	for {
		open, next := c.closeIdle(began, time.Now(), idle)
		if open == 0 {
			return true
		}
		timer := time.NewTimer(next)
		select {
		case <-c.changed:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false
		}
		timer.Stop()
	}
}

// closeIdle closes what was idle for long enough by now, of the time since the
// drain began: a connection that has not been used for minutes is picked just
// when the busy ones end, since the client then reaches deeper into its pool.
// It returns how many connections are left, and when the next of them may be due.
func (c *connections) closeIdle(began, now time.Time, idle time.Duration) (open int, next time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next = time.Hour // nothing is due before something changes
	for conn, s := range c.open {
		limit := idle
		switch {
		case s.state == http.StateActive:
			open++
			continue
		case s.state == http.StateNew && idle == 0:
			// A connection without any request yet: its first one is probably on
			// the way. http.Server.Shutdown gives it this long.
			limit = 5 * time.Second
		}
		since := s.since
		if began.After(since) {
			since = began
		}
		if left := limit - now.Sub(since); left > 0 {
			open++
			next = min(next, left)
			continue
		}
		if hasUnread(conn) {
			open++
			next = min(next, unreadPoll)
			continue
		}
		conn.Close() // the server sees it and reports StateClosed
		delete(c.open, conn)
	}
	return open, next
}

// unreadPoll is how soon a connection is looked at again whose next request has
// come but has not been read.
const unreadPoll = 10 * time.Millisecond

// hasUnread says whether bytes wait in the kernel. On a busy machine a request
// may wait there for a tenth of a second while its connection counts as idle.
func hasUnread(conn net.Conn) bool {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false // closed
	}
	var n int
	var b [1]byte
	var peeked error
	err = raw.Control(func(fd uintptr) {
		n, _, peeked = syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	})
	return err == nil && peeked == nil && n > 0 // 0 is the client's FIN
}
