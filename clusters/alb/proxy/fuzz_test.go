package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lameduck/clusters/alb/scripted"
)

// FuzzResponseHead compares our reading of a target's head with net/http's:
// what we accept it accepts, with the same meaning.
func FuzzResponseHead(f *testing.F) {
	for _, seed := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.0 200\r\nConnection: keep-alive\r\n\r\n",
		"HTTP/1.1 204 No Content\nX: 1\n\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
		"HTTP/1.1 304 Not Modified\r\nConnection: close, X-A\r\nX-A: \tb \r\n\r\n",
		"HTTP/1.1 200 OK\r\nX-Long: " + strings.Repeat("x", 100) + "\r\n\r\n",
	} {
		f.Add([]byte(seed), true)
	}
	f.Fuzz(func(t *testing.T, data []byte, get bool) {
		method := http.MethodHead
		if get {
			method = http.MethodGet
		}
		var head responseHead
		err := head.read(bufio.NewReaderSize(bytes.NewReader(data), 64), method)
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.As(err, new(*causeError)) {
				t.Fatalf("error %v is not classified", err)
			}
			return
		}
		want, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(data)), &http.Request{Method: method})
		if err != nil {
			t.Fatalf("we accept what net/http does not: %v", err)
		}
		if head.status != want.StatusCode {
			t.Errorf("status %d, want %d", head.status, want.StatusCode)
		}
		if head.framing == framedLength && head.length != want.ContentLength {
			t.Errorf("length %d, want %d", head.length, want.ContentLength)
		}
		if (head.framing == framedChunked) != (len(want.TransferEncoding) > 0 && head.framing != framedNone) && head.status >= 200 {
			t.Errorf("framing %d, transfer encoding %q", head.framing, want.TransferEncoding)
		}
		sameFields(t, head.fields, want.Header)
	})
}

// sameFields compares what goes on to the other side.
func sameFields(t *testing.T, fields []field, want http.Header) {
	t.Helper()
	got := make(http.Header)
	for i := range fields {
		if fields[i].passed() && fields[i].kind != kindHost {
			got.Add(fields[i].name, fields[i].value)
		}
	}
	for name, values := range got {
		if !slices.Equal(want[name], values) {
			t.Errorf("%s: %q, want %q", name, values, want[name])
		}
	}
}

// FuzzRequest compares our reading of a client's request, its body and the
// start of the next one with net/http's. What we accept it accepts, and both
// see the same end: no request can be smuggled in another one.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST /p?q HTTP/1.1\r\nHost: x:80\r\nContent-Length: 2\r\n\r\nhiGET",
		"POST /p HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nhi\r\n0\r\nX: y\r\n\r\nGET",
		"POST /p HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
		"POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
		"POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
		"POST /p HTTP/1.1\r\nHost: x\r\nContent-Length : 3\r\n\r\nabc",
		"POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: +3\r\n\r\nabc",
		"POST /p HTTP/1.1\r\nHost: x\r\nX: a\r\n b\r\n\r\n",
		"POST /p HTTP/1.1\r\nHost: x\rContent-Length: 3\r\n\r\nabc",
		"POST /p HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
		"POST /p HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\nhi\r\n0\r\n\r\n",
		"POST /p HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\n",
		"HEAD http://u/p HTTP/1.0\nConnection: keep-alive, X-A\nX-A: 1\n\n",
		"OPTIONS * HTTP/1.1\r\nHost: x\r\nUpgrade: y\r\nConnection: upgrade\r\nExpect: 100-continue\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &client{br: bufio.NewReaderSize(bytes.NewReader(data), 64)}
		c.req.peer = &c.peer
		head, status, ok := c.readHead()
		if !ok || status != 0 || c.req.parse(head) != 0 {
			return
		}
		c.request(&c.req)
		// Empty lines in front are ignored, other than by net/http.
		br := bufio.NewReader(bytes.NewReader(bytes.TrimLeft(data, "\r\n")))
		want, err := http.ReadRequest(br)
		if err != nil {
			if strings.Contains(err.Error(), "invalid URL escape") || strings.Contains(err.Error(), "parse ") {
				return // a target is passed on as it is
			}
			t.Fatalf("we accept what net/http does not: %v", err)
		}
		if c.req.method != want.Method || c.req.target != want.RequestURI {
			t.Errorf("%s %s, want %s %s", c.req.method, c.req.target, want.Method, want.RequestURI)
		}
		if c.req.length != want.ContentLength && !c.req.ambiguous {
			t.Errorf("length %d, want %d", c.req.length, want.ContentLength)
		}
		sameFields(t, c.req.fields, want.Header)
		body, err := io.ReadAll(c.body())
		wantBody, wantErr := io.ReadAll(want.Body)
		if !bytes.Equal(body, wantBody) && err == nil {
			t.Errorf("body %q, want %q", body, wantBody)
		}
		if err != nil {
			return // the connection ends
		}
		if wantErr != nil {
			t.Fatalf("we accept a body that net/http does not: %v", wantErr)
		}
		rest, _ := io.ReadAll(c.br)
		wantRest, _ := io.ReadAll(br)
		if !bytes.Equal(rest, wantRest) {
			t.Errorf("next request starts at %q, want %q", rest, wantRest)
		}
	})
}

// FuzzExchange sends any request to a load balancer whose target answers with
// any bytes. Whatever both are, the next client is served.
func FuzzExchange(f *testing.F) {
	const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	for _, answer := range []string{ok, "", "garbage", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", "HTTP/1.1 100 Continue\r\n\r\n" + ok, "HTTP/1.1 999 Odd\r\n\r\n",
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: y\r\n\r\nhello", "HTTP/1.1 200 OK\r\n\r\nto the end"} {
		for _, request := range []string{
			"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
			"POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi",
			"POST /p HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
			"HEAD * HTTP/1.0\r\nConnection: x, keep-alive\r\nExpect: 100-continue\r\nUpgrade: y\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: y\r\n\r\nbytes",
			"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		} {
			f.Add([]byte(request), []byte(answer))
		}
	}
	var answer atomic.Pointer[string]
	target := startTarget(f, func(x *scripted.Exchange) {
		if _, err := x.Read(make([]byte, 64<<10)); err == nil {
			x.Say(*answer.Load())
		}
	})
	// Incomplete requests wait for the idle timeout, so it is short.
	lb := frontWith(f, []string{target.Address()}, func(w *world) { w.lim.Idle = 20 * time.Millisecond })
	f.Fuzz(func(t *testing.T, request, bytes []byte) {
		s := string(bytes)
		answer.Store(&s)
		c, err := net.Dial("tcp", lb.addr())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(request); err == nil {
			if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
			}
		}
		c.Close()
		good := ok
		answer.Store(&good)
		eventually(t, "answer to the next client", func() bool {
			resp, err := lb.client.Get(lb.url)
			if err != nil {
				return false
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			return err == nil && resp.StatusCode == 200 && string(body) == "ok"
		})
	})
}
