package main

import (
	"fmt"
	"net/http"
	"time"
)

// preStop answers GET /lameduck/prestop?sleep=DURATION, which a preStop hook of
// the kind httpGet calls, after the time. The kubelet sends SIGTERM when it has
// the answer. From the call on the application knows that it is about to go.
func (a *app) preStop(w http.ResponseWriter, r *http.Request) {
	if !a.wantMethod(w, r, http.MethodGet) {
		return
	}
	text := r.URL.Query().Get("sleep")
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		a.answer(w, http.StatusBadRequest, fmt.Sprintf("sleep=%q: want a duration of 0s or more, like sleep=10s\n", text))
		return
	}
	a.stopping.Store(true)
	a.log.event(event{Event: "prestop", Detail: "sleep=" + d.String()})
	sleep := time.NewTimer(d)
	defer sleep.Stop()
	select {
	case <-sleep.C:
		a.answer(w, http.StatusOK, "slept "+d.String()+"\n")
	case <-r.Context().Done(): // the kubelet has given up
	}
}
