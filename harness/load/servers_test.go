package load

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"sync"
	"testing"

	"lameduck/harness"
)

// echo answers as the built-in application does.
func echo(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(harness.PodHeader, "app-1")
	fmt.Fprintf(w, "%s\napp-1\n", r.Header.Get(harness.RequestIDHeader))
}

// quiet keeps a server's complaints about its clients out of the tests' output.
var quiet = log.New(io.Discard, "", 0)

// misdeeds are the ways in which a server can fail a request.
var misdeeds = []struct {
	want harness.Outcome
	do   http.HandlerFunc
}{
	{harness.OutcomeOK, echo},
	{harness.Outcome502, status(502)},
	{harness.Outcome503, status(503)},
	{harness.Outcome504, status(504)},
	{harness.Outcome5xx, status(500)},
	{harness.Outcome4xx, status(404)},
	{harness.OutcomeOK, status(302)},
	{harness.OutcomeReset, cut(true, "")},
	{harness.OutcomeEOF, cut(false, "")},
	{harness.OutcomeEOF, cut(false, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n")},
	{harness.OutcomeOther, cut(false, "hello\r\n\r\n")},
	{harness.OutcomeTruncated, cut(false, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nstart")},
	{harness.OutcomeTruncated, cut(false, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nstart")},
	{harness.OutcomeWrongBody, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(harness.PodHeader, "app-1")
		fmt.Fprintf(w, "%s0\napp-1\n", r.Header.Get(harness.RequestIDHeader))
	}},
	// Not the built-in application: its body is its own business.
	{harness.OutcomeOK, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "welcome") }},
	{harness.OutcomeTimeout, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
	{harness.OutcomeTimeout, func(w http.ResponseWriter, r *http.Request) { // in the body
		w.Header().Set("Content-Length", "1000")
		io.WriteString(w, "start")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}},
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// cut writes raw bytes and closes the connection, by a reset or in order.
func cut(reset bool, answer string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		io.WriteString(c, answer)
		if reset {
			c.(*net.TCPConn).SetLinger(0)
		}
		c.Close()
	}
}

// closing is a server that answers the first request of each connection and
// closes it without an answer when it gets a second one. It knows how often it
// got each request, and which it answered.
func closing(t *testing.T) (url string, got, answered func() map[string]int) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	var mu sync.Mutex
	came, done := map[string]int{}, map[string]int{}
	serve := func(c net.Conn) {
		defer c.Close()
		in := bufio.NewReader(c)
		for n := 0; ; n++ {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			id := r.Header.Get(harness.RequestIDHeader)
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return
			}
			mu.Lock()
			came[id]++
			if n == 0 {
				done[id]++
			}
			mu.Unlock()
			if n == 1 {
				return
			}
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\n%s: app-1\r\nContent-Length: %d\r\n\r\n%s\n", harness.PodHeader, len(id)+1, id)
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	get := func(m map[string]int) func() map[string]int {
		return func() map[string]int {
			mu.Lock()
			defer mu.Unlock()
			return maps.Clone(m)
		}
	}
	return "http://" + l.Addr().String(), get(came), get(done)
}
