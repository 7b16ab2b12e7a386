package load

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"lameduck/harness"
)

// endless answers as the built-in application's stream does, but faster.
func endless(w http.ResponseWriter, r *http.Request) {
	echo(w, r)
	for r.Context().Err() == nil {
		w.(http.Flusher).Flush()
		time.Sleep(5 * time.Millisecond)
		fmt.Fprintln(w, ".")
	}
}

func streamSpec(url string, limit time.Duration, streams int) harness.AttackSpec {
	spec := attackSpec(url, limit)
	spec.Load.Streams, spec.Target.StreamURL = streams, url+"/stream"
	return spec
}

// TestStreams wants streams to last as long as the load, each on a connection of
// its own, and to be no part of its rate.
func TestStreams(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		var mu sync.Mutex
		from := map[string]int{}
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/stream" {
				echo(w, r)
				return
			}
			mu.Lock()
			from[r.RemoteAddr]++
			mu.Unlock()
			if want := map[bool]int{false: 1, true: 2}[http2]; r.ProtoMajor != want {
				t.Errorf("a stream by %s, want HTTP/%d", r.Proto, want)
			}
			endless(w, r)
		}))
		if server.EnableHTTP2 = http2; http2 {
			server.StartTLS()
		} else {
			server.Start()
		}
		const limit = 300 * time.Millisecond
		spec := streamSpec(server.URL, limit, 3)
		spec.Load.HTTP2 = http2
		requests, stats := attack(t, t.Context(), spec)
		server.Close()
		streams := 0
		for _, r := range requests {
			if !r.Stream {
				continue
			}
			streams++
			if r.Outcome != harness.OutcomeOK || r.Status != 200 || r.Pod != "app-1" || r.Sent+r.Latency < r.Planned+limit {
				t.Errorf("stream %+v: want it ok and as long as the load", r)
			}
		}
		if streams != 3 || stats.Streams != 3 || stats.Sent != 60 || len(from) != 3 {
			t.Errorf("%d streams on %d connections, stats %+v: want 3 streams beside 60 requests", streams, len(from), stats)
		}
	}
}

// TestStreamsThatEnd wants each end but the load's own to be a failure, and to
// be followed by another stream.
func TestStreamsThatEnd(t *testing.T) {
	t.Parallel()
	tries := []struct {
		want harness.Outcome
		do   http.HandlerFunc
	}{
		{harness.OutcomeTruncated, echo}, // in order, but it ends
		{harness.Outcome502, status(502)},
		{harness.OutcomeTruncated, cut(false, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nstart")},
		{harness.OutcomeEOF, cut(false, "")},
		{harness.OutcomeReset, cut(true, "")},
		{harness.Outcome4xx, status(404)},
		{harness.OutcomeWrongBody, func(w http.ResponseWriter, r *http.Request) {
			r.Header.Set(harness.RequestIDHeader, "another")
			endless(w, r)
		}},
		{harness.OutcomeTimeout, func(w http.ResponseWriter, r *http.Request) { // silent from the first line on
			echo(w, r)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}},
		{harness.OutcomeTimeout, func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
		{harness.OutcomeOK, endless},
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/stream" {
			echo(w, r)
			return
		}
		var try int
		if _, err := fmt.Sscanf(r.Header.Get(harness.RequestIDHeader), "rs0-%d", &try); err != nil || try >= len(tries) {
			t.Errorf("stream %s: want one of %d tries of the first", r.Header.Get(harness.RequestIDHeader), len(tries))
			return
		}
		if try == len(tries)-1 {
			time.AfterFunc(50*time.Millisecond, stop)
		}
		tries[try].do(w, r)
	}))
	defer server.Close()
	spec := streamSpec(server.URL, time.Hour, 1)
	spec.Load.Rate, spec.Load.Timeout = 10, harness.Dur(1500*time.Millisecond)
	requests, stats := attack(t, ctx, spec)
	if stats.Streams != len(tries) {
		t.Errorf("%d streams, want %d", stats.Streams, len(tries))
	}
	begun := time.Duration(-1)
	try := 0
	for _, r := range requests {
		if !r.Stream {
			continue
		}
		if r.ID != fmt.Sprint("rs0-", try) || r.Outcome != tries[try].want || (r.Outcome == harness.OutcomeTimeout) != (r.Latency >= spec.Load.Timeout.Duration) {
			t.Errorf("stream %+v, want rs0-%d with outcome %s", r, try, tries[try].want)
		}
		if begun >= 0 && r.Planned < begun+streamPause {
			t.Errorf("stream %s began %s after the one before, want at least %s", r.ID, r.Planned-begun, streamPause)
		}
		begun = r.Sent
		try++
	}
}

// TestStreamDeadAtTheEnd wants a stream that was silent when the load ended not
// to count as one that the end has cut.
func TestStreamDeadAtTheEnd(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		echo(w, r)
		if r.URL.Path == "/stream" {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	}))
	defer server.Close()
	spec := streamSpec(server.URL, 100*time.Millisecond, 1)
	spec.Load.Timeout = harness.Dur(time.Second)
	requests, _ := attack(t, t.Context(), spec)
	for _, r := range requests {
		if r.Stream && r.Outcome != harness.OutcomeTimeout {
			t.Errorf("stream %+v, want a timeout", r)
		}
	}
}
