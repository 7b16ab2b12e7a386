package conformance

import (
	"bufio"
	"io"
	"net/http"
	"regexp"
	"strings"

	"lameduck/clusters/alb/scripted"
)

func messageFacts() []Fact {
	return []Fact{
		{"2-connection-close", 2, Documented, guideTroubleshooting, "Connection: close from a target is honoured", targetCloses},
		{"3-forwarded", 3, Documented, guideHeaders, "X-Forwarded-For, -Proto and -Port are added", forwardedHeaders},
		{"3-trace", 3, Documented, guideTracing, "X-Amzn-Trace-Id is added, or gets a Self in front of a Root", traceID},
		{"1-hop-by-hop", 1, Documented, rfcHTTP, "hop-by-hop headers stay on their hop, both ways", hopByHopHeaders},
		{"1-bodiless", 1, Documented, rfcHTTP, "answers without a body leave the connection usable", bodilessAnswers},
		{"1-expect", 1, Documented, rfcHTTP, "Expect: 100-continue does not wait for the target", expectContinue},
		{"1-http10", 1, Documented, guideHeaders, "HTTP/1.0 from the client, HTTP/1.1 to the target", oldClient},
	}
}

// headOf sends raw bytes and returns the request as the target saw it.
func headOf(t *T, request string) *http.Request {
	seen := make(chan *http.Request, 1)
	target := startTarget(t, func(x *scripted.Exchange) {
		r := x.Request()
		seen <- r
		x.Say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close, X-Secret\r\nX-Secret: 1\r\nKeep-Alive: timeout=1\r\nX-Open: 1\r\n\r\n")
	})
	f := newFront(t, []string{target.Address()})
	c := f.dial()
	send(t, c, request)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	t.must(err)
	if resp.Header["X-Secret"] != nil || resp.Header["Keep-Alive"] != nil || resp.Header.Get("X-Open") != "1" {
		t.Errorf("answer's headers %v", resp.Header)
	}
	return wait(t, "request at the target", seen)
}

func targetCloses(t *T) {
	target := startTarget(t, func(x *scripted.Exchange) {
		x.Request()
		x.Say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
		x.Request() // it is the load balancer that closes
	})
	f := newFront(t, []string{target.Address()})
	for range 2 {
		f.get("/")
	}
	if n := target.Conns.Load(); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
}

func forwardedHeaders(t *T) {
	r := headOf(t, "GET / HTTP/1.1\r\nHost: shop\r\nX-Forwarded-For: 198.18.0.1\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Port: 1\r\n\r\n")
	if got := r.Header["X-Forwarded-For"]; len(got) != 1 || got[0] != "198.18.0.1, 127.0.0.1" {
		t.Errorf("X-Forwarded-For %q", got)
	}
	if got := r.Header["X-Forwarded-Proto"]; len(got) != 1 || got[0] != "http" {
		t.Errorf("X-Forwarded-Proto %q", got)
	}
	if got := r.Header["X-Forwarded-Port"]; len(got) != 1 || got[0] == "1" || got[0] == "" {
		t.Errorf("X-Forwarded-Port %q", got)
	}
	if r.Host != "shop" {
		t.Errorf("Host %q, want the client's", r.Host)
	}
}

func traceID(t *T) {
	const id = `1-[0-9a-f]{8}-[0-9a-f]{24}`
	for sent, want := range map[string]string{
		"": `^Root=` + id + `$`,
		"X-Amzn-Trace-Id: Root=1-67891233-abcdef012345678912345678\r\n": `^Self=` + id + `;Root=1-67891233-abcdef012345678912345678$`,
		"X-Amzn-Trace-Id: CalledFrom=app\r\n":                           `^Root=` + id + `;CalledFrom=app$`,
	} {
		r := headOf(t, "GET / HTTP/1.1\r\nHost: x\r\n"+sent+"\r\n")
		if got := r.Header.Get("X-Amzn-Trace-Id"); !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("%q became %q, want %s", sent, got, want)
		}
	}
}

func hopByHopHeaders(t *T) {
	r := headOf(t, "GET / HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, X-Private\r\nX-Private: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\n"+
		"Proxy-Connection: close\r\nX-Public: 1\r\n\r\n")
	for _, name := range []string{"Connection", "X-Private", "Keep-Alive", "Te", "Proxy-Connection"} {
		if r.Header[name] != nil {
			t.Errorf("target got %s: %q", name, r.Header[name])
		}
	}
	if r.Header.Get("X-Public") != "1" {
		t.Errorf("X-Public is lost")
	}
}

func bodilessAnswers(t *T) {
	target := startTarget(t, func(x *scripted.Exchange) {
		for r := x.Request(); r != nil; r = x.Request() {
			switch r.URL.Path {
			case "/204":
				x.Say("HTTP/1.1 204 No Content\r\n\r\n")
			case "/304":
				x.Say("HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\nContent-Length: 5\r\n\r\n")
			case "/hints":
				x.Say("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			default:
				x.Say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
				if r.Method != http.MethodHead {
					x.Say("hello")
				}
			}
		}
	})
	f := newFront(t, []string{target.Address()})
	for _, c := range []struct {
		method, path string
		status       int
		body         string
	}{
		{"GET", "/204", 204, ""}, {"GET", "/304", 304, ""}, {"HEAD", "/", 200, ""}, {"GET", "/hints", 200, "ok"}, {"GET", "/", 200, "hello"},
	} {
		req := newRequest(t, c.method, f.url+c.path, nil)
		if a := f.do(req); a.status != c.status || a.body != c.body || a.header.Get("Link") != "" {
			t.Errorf("%s %s: status %d, body %q", c.method, c.path, a.status, a.body)
		}
	}
	if n := target.Conns.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

func expectContinue(t *T) {
	target := startTarget(t, scripted.Echo)
	f := newFront(t, []string{target.Address()})
	c := f.dial()
	br := bufio.NewReader(c)
	send(t, c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
	if line, err := br.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 100 ") {
		t.Fatalf("got %q, %v", line, err)
	}
	if _, err := br.ReadString('\n'); err != nil {
		t.Fatalf("%v", err)
	}
	send(t, c, "hello")
	resp, err := http.ReadResponse(br, nil)
	t.must(err)
	if body, err := io.ReadAll(resp.Body); string(body) != "hello" || err != nil {
		t.Errorf("body %q, %v", body, err)
	}
}

func oldClient(t *T) {
	seen := make(chan *http.Request, 1)
	target := startTarget(t, func(x *scripted.Exchange) {
		seen <- x.Request()
		x.Say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")
	})
	f := newFront(t, []string{target.Address()})
	got := f.raw("GET / HTTP/1.0\r\n\r\n")
	if !strings.HasSuffix(got, "\r\n\r\nok") || strings.Contains(got, "chunked") {
		t.Errorf("got %q", got)
	}
	if r := wait(t, "request at the target", seen); r.Proto != "HTTP/1.1" || r.Host != f.addr() {
		t.Errorf("target got %s with Host %q, want HTTP/1.1 with %s", r.Proto, r.Host, f.addr())
	}
}
