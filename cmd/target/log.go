package main

import (
	"encoding/json"
	"io"
	"sync"
	"time"
)

// logger writes one JSON line per request of the application (not of /healthz
// and /lameduck/) and per step of the process's life.
//
// Lines of requests are collected for logDelay and then written at once. Each
// write costs the target little, but the container runtime, the kubelet and the
// API server handle it again on the way to whoever follows the log: unbuffered,
// 300 lines per second cost most of a core in all. From SIGTERM on each line is
// written at once, since what the application did last before a SIGKILL is what
// the log is there to tell. BenchmarkLog compares the two.
type logger struct {
	out io.Writer

	mu        sync.Mutex
	buffer    []byte
	timed     bool // a flush is under way
	immediate bool // from SIGTERM on
}

// logDelay is how late a line may be before SIGTERM. A process that is killed
// without one loses as much.
const logDelay = time.Second

// event is a step of the process's life: starting, listening, prestop (a hook's
// call), sigterm, listener-closed, drained, exit.
type event struct {
	Time   time.Time `json:"time"`
	Event  string    `json:"event"`
	Detail string    `json:"detail,omitempty"`
	Code   *int      `json:"code,omitempty"` // of exit
}

// access is one request that was answered, or whose client went away.
type access struct {
	Time     time.Time `json:"time"` // when the request came
	ID       string    `json:"id"`   // the client's, see harness.RequestIDHeader
	Path     string    `json:"path"`
	Status   int       `json:"status"`
	Received int64     `json:"received,omitempty"` // bytes of the request's body
	Micros   int64     `json:"micros"`             // from Time to the answer's end
	Conn     string    `json:"conn"`               // the connection's other end
}

func (l *logger) event(e event) {
	e.Time = time.Now()
	l.write(e, true)
}

// stopping makes every line from now on be written at once.
func (l *logger) stopping(detail string) {
	l.mu.Lock()
	l.immediate = true
	l.mu.Unlock()
	l.event(event{Event: "sigterm", Detail: detail})
}

// exit logs the process's end and returns the code.
func (l *logger) exit(code int, detail string) int {
	l.event(event{Event: "exit", Detail: detail, Code: &code})
	return code
}

func (l *logger) request(line access) { l.write(line, false) }

// write adds a line, and what waits is written now or soon.
func (l *logger) write(v any, now bool) {
	line, err := json.Marshal(v)
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buffer = append(append(l.buffer, line...), '\n')
	switch {
	case now || l.immediate:
		l.flush()
	case !l.timed:
		l.timed = true
		time.AfterFunc(logDelay, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.timed = false
			l.flush()
		})
	}
}

// flush writes what waits; l.mu is held. An error has no place to go: stdout is
// the log.
func (l *logger) flush() {
	if len(l.buffer) > 0 {
		_, _ = l.out.Write(l.buffer)
		l.buffer = l.buffer[:0]
	}
}
