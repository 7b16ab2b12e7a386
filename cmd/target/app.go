package main

import (
	"context"
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
	stopping atomic.Bool     // since SIGTERM or the preStop hook
	draining context.Context // ends when the drain begins: answers say Connection: close
	drain    context.CancelFunc
}

func newApp(s settings, log *logger) *app {
	a := &app{settings: s, log: log, times: newResponseTimes(s.ResponseTime), conns: newConnections()}
	a.draining, a.drain = context.WithCancel(context.Background())
	return a
}

// sigterm notes a SIGTERM; detail is what it leads to.
func (a *app) sigterm(detail string) {
	a.stopping.Store(true)
	a.log.stopping(detail)
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
	line := access{
		Time: time.Now(), ID: r.Header.Get(harness.RequestIDHeader), Path: r.URL.Path,
		Status: http.StatusOK, Conn: r.RemoteAddr,
	}
	// net/http notices that the client is gone only once the body is read.
	line.Received, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set(harness.PodHeader, a.Pod)
	w.Header().Set(harness.VersionHeader, a.Version)
	switch r.URL.Path {
	case "/healthz":
		if a.FailReadiness && a.stopping.Load() {
			a.answer(w, http.StatusServiceUnavailable, "stopping\n")
			return
		}
		// As every answer, it begins with the request's id, so that the load
		// generator can warm up on it.
		a.answer(w, http.StatusOK, line.ID+"\nok\n")
	case "/lameduck/config":
		a.answerJSON(w, a.settings)
	case "/lameduck/burn":
		a.burn(w, r)
	case "/lameduck/prestop":
		a.preStop(w, r)
	case "/lameduck/stream":
		if a.wantMethod(w, r, http.MethodGet) {
			a.logged(line, func() bool { return a.stream(w, r, line.ID) })
		}
	default:
		a.logged(line, func() bool { return a.work(w, r, line.ID) })
	}
}

// logged logs a request when it is done, which do says, or its client is gone.
func (a *app) logged(line access, do func() (done bool)) {
	if !do() {
		line.Status = statusClientGone
	}
	line.Micros = time.Since(line.Time).Microseconds()
	a.log.request(line)
}

// work answers as the application, after the response time. It returns false
// if the client has gone before.
func (a *app) work(w http.ResponseWriter, r *http.Request, id string) bool {
	timer := time.NewTimer(a.times.of(id))
	defer timer.Stop()
	select {
	case <-timer.C:
		a.answer(w, http.StatusOK, id+"\n"+a.Pod+"\n")
		return true
	case <-r.Context().Done():
		return false
	}
}

func (a *app) burn(w http.ResponseWriter, r *http.Request) {
	if !a.wantMethod(w, r, http.MethodPost) {
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

// wantMethod refuses every other method.
func (a *app) wantMethod(w http.ResponseWriter, r *http.Request, method string) bool {
	if r.Method == method {
		return true
	}
	w.Header().Set("Allow", method)
	a.answer(w, http.StatusMethodNotAllowed, "want "+method+"\n")
	return false
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

// announceClose says in the head of an answer that it ends the connection, if
// it does. That is decided when the answer is sent and not when the request
// came, so that requests in flight when draining begins tell their client too.
func (a *app) announceClose(w http.ResponseWriter) {
	if a.draining.Err() != nil || (a.CloseWhileDraining && a.stopping.Load()) {
		w.Header().Set("Connection", "close")
	}
}

// answer sends the whole answer.
func (a *app) answer(w http.ResponseWriter, status int, body string) {
	a.announceClose(w)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = io.Copy(w, strings.NewReader(body)) // the client may be gone
}
