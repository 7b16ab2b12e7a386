package load

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"lameduck/harness"
)

// TestNoHiddenRetry wants a request on a dead connection to fail, where
// net/http would send it once more.
func TestNoHiddenRetry(t *testing.T) {
	t.Parallel()
	url, seen, answered := closing(t)
	// That this server does make net/http do so is half of the test.
	client := &http.Client{Transport: &http.Transport{}}
	for id := range 2 {
		r, err := http.NewRequest(http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(harness.RequestIDHeader, fmt.Sprint("plain", id))
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
	}
	client.CloseIdleConnections()
	if seen()["plain1"] != 2 {
		t.Fatalf("net/http sent a request on a dead connection %d times, want 2", seen()["plain1"])
	}

	pooled := attackSpec(url, 500*time.Millisecond)
	pooled.IDPrefix = "pooled"
	body := pooled
	body.IDPrefix, body.Load.BodySize = "body", 1000
	longLived := body
	longLived.IDPrefix, longLived.Load.Connections, longLived.Load.LongLived = "long", harness.ConnectionsLongLived, 5
	for _, spec := range []harness.AttackSpec{pooled, body, longLived} {
		requests, _ := attack(t, t.Context(), spec)
		if len(requests) != 100 {
			t.Errorf("%d requests, want 100", len(requests))
		}
		wantOnce(t, requests, seen(), answered())
	}
}

// wantOnce wants each request to have come to the server of closing once, and
// those that it did not answer to have failed.
func wantOnce(t *testing.T, requests []harness.Request, times, ok map[string]int) {
	t.Helper()
	for _, r := range requests {
		if times[r.ID] != 1 {
			t.Errorf("the server got request %s %d times", r.ID, times[r.ID])
		}
		// A reused connection may also be one that was opened and not used.
		want := harness.OutcomeEOF
		if ok[r.ID] == 1 {
			want = harness.OutcomeOK
		}
		if r.Outcome != want || r.Attempts != 1 {
			t.Errorf("request %s, reused %v: %s (%s) with %d connections, want %s with 1", r.ID, r.Reused, r.Outcome, r.Error, r.Attempts, want)
		}
	}
	if count(requests)[harness.OutcomeEOF] == 0 {
		t.Error("no connection was reused")
	}
}

// TestServerClosedIdle sends on a connection that was closed while idle.
// Depending on who is first, the transport opens a new one, or fails before or
// after it has written: in no case may it send twice, nor the cause be unknown.
func TestServerClosedIdle(t *testing.T) {
	var seen sync.Map
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(harness.RequestIDHeader)
		if _, twice := seen.Swap(id, true); twice {
			t.Errorf("request %s came twice", id)
		}
		c, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") // keeps alive, it says
		c.Close()
	}))
	defer server.Close()
	spec := attackSpec(server.URL, 500*time.Millisecond)
	spec.Load.Rate = 1000
	requests, _ := attack(t, t.Context(), spec)
	for _, r := range requests {
		switch r.Outcome {
		case harness.OutcomeOK, harness.OutcomeEOF, harness.OutcomeReset:
		default:
			t.Errorf("request %s: %s (%s)", r.ID, r.Outcome, r.Error)
		}
	}
}
