package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"lameduck/harness"
)

// statusClientGone is logged (never sent) for a request whose client closed
// the connection before the answer, as nginx does.
const statusClientGone = 499

type app struct {
	settings
	log      *logger
	times    responseTimes
	burner   burner
	conns    connections
	draining atomic.Bool // answers say Connection: close
}

func newApp(s settings, log *logger) *app {
	return &app{settings: s, log: log, times: newResponseTimes(s.ResponseTime), conns: newConnections()}
}

// start serves on the listener. What ends the serving is sent on the channel.
func (a *app) start(l net.Listener) (failed <-chan error) {
	server := &http.Server{Handler: a, ConnState: a.conns.state, IdleTimeout: a.KeepAlive.Duration}
	server.SetKeepAlivesEnabled(a.KeepAlive.Duration > 0)
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	return done
}

// ServeHTTP does not use a http.ServeMux, which redirects paths that it finds
// unclean: every path but those below is the application's.
func (a *app) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// net/http notices that the client is gone only once the body is read.
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set(harness.PodHeader, a.Pod)
	w.Header().Set(harness.VersionHeader, a.Version)
	switch r.URL.Path {
	case "/healthz":
		// As every answer, it begins with the request's id, so that the load
		// generator can warm up on it.
		a.answer(w, http.StatusOK, r.Header.Get(harness.RequestIDHeader)+"\nok\n")
	case "/lameduck/config":
		a.answerJSON(w, a.settings)
	case "/lameduck/burn":
		a.burn(w, r)
	default:
		a.work(w, r)
	}
}

// work answers as the application, after the response time.
func (a *app) work(w http.ResponseWriter, r *http.Request) {
	line := access{
		Time: time.Now(), ID: r.Header.Get(harness.RequestIDHeader), Path: r.URL.Path,
		Status: http.StatusOK, Conn: r.RemoteAddr,
	}
	timer := time.NewTimer(a.times.of(line.ID))
	select {
	case <-timer.C:
		a.answer(w, line.Status, line.ID+"\n"+a.Pod+"\n")
	case <-r.Context().Done():
		timer.Stop()
		line.Status = statusClientGone
	}
	line.Micros = time.Since(line.Time).Microseconds()
	a.log.request(line)
}

func (a *app) burn(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		a.answer(w, http.StatusMethodNotAllowed, "want POST\n")
		return
	}
	text := r.URL.Query().Get("millicores")
	millicores, err := strconv.Atoi(text)
	if err != nil || millicores < 0 || millicores > maxMillicores() {
		a.answer(w, http.StatusBadRequest, fmt.Sprintf("millicores=%q: want 0..%d\n", text, maxMillicores()))
		return
	}
	a.burner.set(millicores)
	a.answerJSON(w, map[string]any{"millicores": millicores, "limit": burnLimit.String()})
}

func (a *app) answerJSON(w http.ResponseWriter, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		a.answer(w, http.StatusInternalServerError, err.Error()+"\n")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	a.answer(w, http.StatusOK, string(body)+"\n")
}

// answer sends the whole answer. Whether it ends the connection is decided
// here and not when the request came, so that requests in flight when draining
// begins tell their client too.
func (a *app) answer(w http.ResponseWriter, status int, body string) {
	if a.draining.Load() {
		w.Header().Set("Connection", "close")
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = io.Copy(w, strings.NewReader(body)) // the client may be gone
}
