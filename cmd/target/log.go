package main

import (
	"encoding/json"
	"io"
	"time"
)

// logger writes one JSON line per request of the application (not of /healthz
// and /lameduck/) and per step of the process's life.
//
// Each line is one write, unbuffered: what the application did last before a
// SIGKILL is what the log is there to tell. BenchmarkLog puts the price, with a
// reader on the other end of a pipe, at a few microseconds; buffering saves
// about half of it, which at 1000 requests per second is not a percent of a
// core.
type logger struct{ out io.Writer }

// event is a step of the process's life: starting, listening, sigterm,
// listener-closed, drained, exit.
type event struct {
	Time   time.Time `json:"time"`
	Event  string    `json:"event"`
	Detail string    `json:"detail,omitempty"`
	Code   *int      `json:"code,omitempty"` // of exit
}

// access is one request that was answered, or whose client went away.
type access struct {
	Time   time.Time `json:"time"` // when the request came
	ID     string    `json:"id"`   // the client's, see harness.RequestIDHeader
	Path   string    `json:"path"`
	Status int       `json:"status"`
	Micros int64     `json:"micros"` // from Time to the answer
	Conn   string    `json:"conn"`   // the connection's other end
}

func (l *logger) event(e event) {
	e.Time = time.Now()
	l.line(e)
}

// exit logs the process's end and returns the code.
func (l *logger) exit(code int, detail string) int {
	l.event(event{Event: "exit", Detail: detail, Code: &code})
	return code
}

// line writes v. An error has no place to go: stdout is the log.
func (l *logger) line(v any) {
	line, err := json.Marshal(v)
	if err != nil {
		return
	}
	// os.File serialises writes, so that lines do not mix.
	_, _ = l.out.Write(append(line, '\n'))
}
