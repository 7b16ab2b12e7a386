package main

import (
	"io"
	"net/http"
	"time"
)

// streamEvery is the time between two lines of a stream.
const streamEvery = 100 * time.Millisecond

// stream answers GET /lameduck/stream: a line with the request's id, then a
// short one every streamEvery, until the client goes or the drain begins, which
// the body ends with in order. What else ends the process cuts it. It returns
// false if the client has gone.
func (a *app) stream(w http.ResponseWriter, r *http.Request, id string) bool {
	a.announceClose(w)
	send := http.NewResponseController(w)
	tick := time.NewTicker(streamEvery)
	defer tick.Stop()
	for line := id + "\n"; ; line = ".\n" {
		if _, err := io.WriteString(w, line); err != nil || send.Flush() != nil {
			return false
		}
		select {
		case <-tick.C:
		case <-a.draining.Done():
			return true
		case <-r.Context().Done():
			return false
		}
	}
}
