package conformance

import (
	"bufio"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"

	"lameduck/clusters/alb/accesslog"
	"lameduck/clusters/alb/scripted"
)

func bodyFacts() []Fact {
	return []Fact{
		{"1-bodies", 1, Documented, rfcHTTP, "bodies of every framing pass unchanged, both ways", largeBodies},
		{"1-answers-stream", 1, Inferred, guideIntroduction, "what has come of an answer is passed on before the rest has", answersStream},
		{"1-requests-stream", 1, Inferred, guideIntroduction, "what has come of a request is passed on before the rest has", requestsStream},
		{"1-early-answer", 1, Inferred, rfcHTTP, "an answer before the request is complete is passed on", earlyAnswer},
	}
}

func largeBodies(t *T) {
	body := make([]byte, 3<<20+17)
	rand.Read(body) // never fails
	sum := sha256.Sum256(body)
	want := hex.EncodeToString(sum[:])
	framings := map[string]func(x *scripted.Exchange){
		"/length": func(x *scripted.Exchange) { fmt.Fprintf(x, "Content-Length: %d\r\n\r\n%s", len(body), body) },
		"/close":  func(x *scripted.Exchange) { fmt.Fprintf(x, "\r\n%s", body) },
		"/chunked": func(x *scripted.Exchange) {
			x.Say("Transfer-Encoding: chunked\r\n\r\n")
			for rest := body; len(rest) > 0; {
				n := min(len(rest), 1+len(rest)/7)
				fmt.Fprintf(x, "%x;ext=1\r\n%s\r\n", n, rest[:n])
				rest = rest[n:]
			}
			x.Say("0\r\nX-Trailer: dropped\r\n\r\n")
		},
	}
	target := startTarget(t, func(x *scripted.Exchange) {
		for r := x.Request(); r != nil; r = x.Request() {
			h := sha256.New()
			if _, err := io.Copy(h, r.Body); err != nil {
				return
			}
			fmt.Fprintf(x, "HTTP/1.1 200 OK\r\nX-Sum: %x\r\n", h.Sum(nil))
			framings[r.URL.Path](x)
			if r.URL.Path == "/close" {
				return
			}
		}
	})
	f := newFront(t, []string{target.Address()})
	for path := range framings {
		for _, chunked := range []bool{false, true} {
			var in io.Reader = strings.NewReader(string(body))
			if chunked {
				in = io.MultiReader(in) // hides the length
			}
			req := newRequest(t, http.MethodPost, f.url+path, in)
			a := f.do(req)
			got := sha256.Sum256([]byte(a.body))
			if a.err != nil || a.header.Get("X-Sum") != want || hex.EncodeToString(got[:]) != want {
				t.Errorf("%s, chunked %v: %v; target's sum right %v, %d bytes back", path, chunked, a.err, a.header.Get("X-Sum") == want, len(a.body))
			}
		}
	}
	for _, l := range f.wait(t, 6) {
		if l.Received != int64(len(body)) || l.Sent != int64(len(body)) || l.Phase != accesslog.PhaseDone {
			t.Errorf("log: received %d, sent %d of %d, phase %s", l.Received, l.Sent, len(body), l.Phase)
		}
	}
}

func answersStream(t *T) {
	for name, framing := range map[string]string{
		"length":  "Content-Length: 2\r\n\r\na",
		"chunked": "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n",
		"close":   "\r\na",
	} {
		next := make(chan struct{})
		target := startTarget(t, func(x *scripted.Exchange) {
			x.Request()
			x.Say("HTTP/1.1 200 OK\r\n" + framing)
			hold(t, next)
			x.Say("1\r\nb\r\n0\r\n\r\n") // more than needed where there is no chunking
		})
		f := newFront(t, []string{target.Address()})
		resp, err := f.client.Do(newRequest(t, http.MethodGet, f.url, nil))
		t.must(err)
		first := make([]byte, 1)
		if _, err := io.ReadFull(resp.Body, first); err != nil || first[0] != 'a' {
			t.Errorf("%s: %q, %v", name, first, err)
		}
		close(next)
		if _, err := io.ReadAll(resp.Body); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		resp.Body.Close()
	}
}

func requestsStream(t *T) {
	first := make(chan struct{})
	target := startTarget(t, func(x *scripted.Exchange) {
		r, err := http.ReadRequest(x.Reader)
		if err != nil {
			return
		}
		if _, err := io.ReadFull(r.Body, make([]byte, 1)); err != nil {
			return
		}
		close(first)
		_, _ = io.Copy(io.Discard, r.Body)
		x.Say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	})
	f := newFront(t, []string{target.Address()})
	body, in := io.Pipe()
	go func() {
		_, _ = in.Write([]byte("a"))
		hold(t, first)
		_, _ = in.Write([]byte("b"))
		in.Close()
	}()
	req := newRequest(t, http.MethodPost, f.url, body)
	if a := f.do(req); a.status != 200 {
		t.Errorf("status %d", a.status)
	}
}

func earlyAnswer(t *T) {
	target := startTarget(t, func(x *scripted.Exchange) {
		if _, err := x.Reader.ReadString('\n'); err == nil { // the request line is enough
			x.Say("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
			_, _ = io.Copy(io.Discard, x.Reader)
		}
	})
	f := newFront(t, []string{target.Address()})
	c := f.dial()
	send(t, c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nhello")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	t.must(err)
	if body, err := io.ReadAll(resp.Body); resp.StatusCode != 403 || string(body) != "no" || !resp.Close || err != nil {
		t.Errorf("status %d, body %q, close %v, %v", resp.StatusCode, body, resp.Close, err)
	}
	wantLine(t, f.line(), 403, 403, accesslog.PhaseDone, "")
	if idle, _ := f.pool().Size(); idle != 0 {
		t.Errorf("a connection with half a request went back to the pool")
	}
}
