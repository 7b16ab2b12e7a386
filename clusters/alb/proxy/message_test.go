package proxy

import (
	"bufio"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"lameduck/clusters/alb/accesslog"
	"lameduck/clusters/alb/scripted"
)

// headOf sends raw bytes and returns the request as the target saw it.
func headOf(t *testing.T, request string) *http.Request {
	t.Helper()
	seen := make(chan *http.Request, 1)
	target := startTarget(t, func(x *scripted.Exchange) {
		r := x.Request()
		seen <- r
		x.Say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close, X-Secret\r\nX-Secret: 1\r\nKeep-Alive: timeout=1\r\nX-Open: 1\r\n\r\n")
	})
	f := frontWith(t, []string{target.Address()}, nil)
	c := f.dial()
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Header["X-Secret"] != nil || resp.Header["Keep-Alive"] != nil || resp.Header.Get("X-Open") != "1" {
		t.Errorf("answer's headers %v", resp.Header)
	}
	return <-seen
}

func TestTargetCloses(t *testing.T) {
	t.Parallel()
	target := startTarget(t, func(x *scripted.Exchange) {
		x.Request()
		x.Say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
		x.Request() // it is the load balancer that closes
	})
	f := frontWith(t, []string{target.Address()}, nil)
	for range 2 {
		f.get("/")
	}
	if n := target.Conns.Load(); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
}

func TestForwardedHeaders(t *testing.T) {
	t.Parallel()
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

func TestTraceID(t *testing.T) {
	t.Parallel()
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

func TestHopByHopHeaders(t *testing.T) {
	t.Parallel()
	r := headOf(t, "GET / HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, X-Private\r\nX-Private: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\n"+
		"Proxy-Connection: close\r\nX-Public: 1\r\n\r\n")
	for _, name := range []string{"Connection", "X-Private", "Keep-Alive", "Te", "Proxy-Connection"} {
		if r.Header[name] != nil {
			t.Errorf("target got %s: %q", name, r.Header[name])
		}
	}
	if r.Header.Get("X-Public") != "1" {
		t.Error("X-Public is lost")
	}
}

func TestBodilessAnswers(t *testing.T) {
	t.Parallel()
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
	f := frontWith(t, []string{target.Address()}, nil)
	for _, c := range []struct {
		method, path string
		status       int
		body         string
	}{
		{"GET", "/204", 204, ""}, {"GET", "/304", 304, ""}, {"HEAD", "/", 200, ""}, {"GET", "/hints", 200, "ok"}, {"GET", "/", 200, "hello"},
	} {
		req, err := http.NewRequest(c.method, f.url+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if a := f.do(req); a.status != c.status || a.body != c.body || a.header.Get("Link") != "" {
			t.Errorf("%s %s: status %d, body %q", c.method, c.path, a.status, a.body)
		}
	}
	if n := target.Conns.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

func TestLargeBodies(t *testing.T) {
	t.Parallel()
	body := make([]byte, 3<<20+17)
	if _, err := rand.Read(body); err != nil {
		t.Fatal(err)
	}
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
	f := frontWith(t, []string{target.Address()}, nil)
	for path := range framings {
		for _, chunked := range []bool{false, true} {
			var in io.Reader = strings.NewReader(string(body))
			if chunked {
				in = io.MultiReader(in) // hides the length
			}
			req, err := http.NewRequest(http.MethodPost, f.url+path, in)
			if err != nil {
				t.Fatal(err)
			}
			a := f.do(req)
			got := sha256.Sum256([]byte(a.body))
			if a.err != nil || a.header.Get("X-Sum") != want || hex.EncodeToString(got[:]) != want {
				t.Errorf("%s, chunked %v: %v; target's sum right %v, %d bytes back", path, chunked, a.err, a.header.Get("X-Sum") == want, len(a.body))
			}
		}
	}
	for _, l := range f.lines(6) {
		if l.Received != int64(len(body)) || l.Sent != int64(len(body)) || l.Phase != accesslog.PhaseDone {
			t.Errorf("log: received %d, sent %d of %d, phase %s", l.Received, l.Sent, len(body), l.Phase)
		}
	}
}

func TestAnswersStream(t *testing.T) {
	t.Parallel()
	for name, framing := range map[string]string{
		"length":  "Content-Length: 2\r\n\r\na",
		"chunked": "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n",
		"close":   "\r\na",
	} {
		next := make(chan struct{})
		target := startTarget(t, func(x *scripted.Exchange) {
			x.Request()
			x.Say("HTTP/1.1 200 OK\r\n" + framing)
			<-next
			x.Say("1\r\nb\r\n0\r\n\r\n") // more than needed where there is no chunking
		})
		f := frontWith(t, []string{target.Address()}, nil)
		resp, err := f.client.Get(f.url)
		if err != nil {
			t.Fatal(err)
		}
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

func TestRequestsStream(t *testing.T) {
	t.Parallel()
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
	f := frontWith(t, []string{target.Address()}, nil)
	body, in := io.Pipe()
	go func() {
		_, _ = in.Write([]byte("a"))
		<-first
		_, _ = in.Write([]byte("b"))
		in.Close()
	}()
	req, err := http.NewRequest(http.MethodPost, f.url, body)
	if err != nil {
		t.Fatal(err)
	}
	if a := f.do(req); a.status != 200 {
		t.Errorf("status %d", a.status)
	}
}

func TestEarlyAnswer(t *testing.T) {
	t.Parallel()
	target := startTarget(t, func(x *scripted.Exchange) {
		if _, err := x.Reader.ReadString('\n'); err == nil { // the request line is enough
			x.Say("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
			_, _ = io.Copy(io.Discard, x.Reader)
		}
	})
	f := frontWith(t, []string{target.Address()}, nil)
	c := f.dial()
	if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nhello"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(resp.Body); resp.StatusCode != 403 || string(body) != "no" || !resp.Close || err != nil {
		t.Errorf("status %d, body %q, close %v, %v", resp.StatusCode, body, resp.Close, err)
	}
	wantLine(t, f.line(), 403, 403, accesslog.PhaseDone, "")
	if idle, _ := f.pool().Size(); idle != 0 {
		t.Error("a connection with half a request went back to the pool")
	}
}

func TestExpectContinue(t *testing.T) {
	t.Parallel()
	target := startTarget(t, scripted.Echo)
	f := frontWith(t, []string{target.Address()}, nil)
	c := f.dial()
	br := bufio.NewReader(c)
	if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := br.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 100 ") {
		t.Fatalf("got %q, %v", line, err)
	}
	if _, err := br.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "hello"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(resp.Body); string(body) != "hello" || err != nil {
		t.Errorf("body %q, %v", body, err)
	}
}

func TestOldClient(t *testing.T) {
	t.Parallel()
	seen := make(chan *http.Request, 1)
	target := startTarget(t, func(x *scripted.Exchange) {
		seen <- x.Request()
		x.Say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")
	})
	f := frontWith(t, []string{target.Address()}, nil)
	got := f.raw("GET / HTTP/1.0\r\n\r\n")
	if !strings.HasSuffix(got, "\r\n\r\nok") || strings.Contains(got, "chunked") {
		t.Errorf("got %q", got)
	}
	if r := <-seen; r.Proto != "HTTP/1.1" || r.Host != f.addr() {
		t.Errorf("target got %s with Host %q, want HTTP/1.1 with %s", r.Proto, r.Host, f.addr())
	}
}

func TestLogTells(t *testing.T) {
	t.Parallel()
	peer := make(chan string, 1)
	target := startTarget(t, func(x *scripted.Exchange) {
		peer <- x.RemoteAddr().String()
		scripted.Echo(x)
	})
	f := frontWith(t, []string{target.Address()}, nil)
	before := time.Now()
	req, err := http.NewRequest(http.MethodPost, f.url+"/a?b=\"%C3%A4", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Lameduck-Request", "id-\"1\"")
	f.do(req)
	l := f.line()
	wantLine(t, l, 200, 200, accesslog.PhaseDone, "")
	if l.ID != "id-\"1\"" || l.Method != "POST" || !strings.HasPrefix(l.Path, "/a?b=") || l.Group != "ns/app:80" {
		t.Errorf("log: %+v", l)
	}
	if host, _, err := net.SplitHostPort(l.Client); err != nil || host != "127.0.0.1" {
		t.Errorf("log: client %q", l.Client)
	}
	if l.Target != target.Address() || l.Local != <-peer || l.Reused {
		t.Errorf("log: target %s, local %s, reused %v", l.Target, l.Local, l.Reused)
	}
	if l.Time.Before(before.Add(-time.Second)) || l.Time.After(time.Now()) {
		t.Errorf("log: time %s", l.Time)
	}
	if m := l.Micros; m.Connect < 0 || m.FirstByte < m.Connect || m.Total < m.FirstByte {
		t.Errorf("log: micros %+v", m)
	}
	if l.Received != 5 || l.Sent != 5 {
		t.Errorf("log: received %d, sent %d", l.Received, l.Sent)
	}
	f.get("/")
	if l := f.lines(2)[1]; !l.Reused || l.Micros.Connect != 0 {
		t.Errorf("log: second request reused %v, connect %d", l.Reused, l.Micros.Connect)
	}
}
