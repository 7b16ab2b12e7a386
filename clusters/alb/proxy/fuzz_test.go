package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"
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
	} {
		f.Add([]byte(seed), true)
	}
	f.Fuzz(func(t *testing.T, data []byte, get bool) {
		method := http.MethodHead
		if get {
			method = http.MethodGet
		}
		var head responseHead
		h := make(http.Header)
		err := head.read(bufio.NewReaderSize(bytes.NewReader(data), 64), method, h)
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.As(err, new(*causeError)) {
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
		for name, values := range h {
			if got := want.Header[name]; !slices.Equal(got, values) && name != "Content-Length" {
				t.Errorf("%s: %q, want %q", name, values, got)
			}
		}
	})
}

// FuzzExchange sends any request to a load balancer whose target answers with
// any bytes. Whatever both are, the next client is served.
func FuzzExchange(f *testing.F) {
	const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	for _, answer := range []string{ok, "", "garbage", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", "HTTP/1.1 100 Continue\r\n\r\n" + ok, "HTTP/1.1 999 Odd\r\n\r\n"} {
		for _, request := range []string{
			"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
			"POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi",
			"POST /p HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
			"HEAD * HTTP/1.0\r\nConnection: x, keep-alive\r\nExpect: 100-continue\r\nUpgrade: y\r\n\r\n",
			"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		} {
			f.Add([]byte(request), []byte(answer))
		}
	}
	var answer atomic.Pointer[string]
	target, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { target.Close() })
	go func() {
		for {
			c, err := target.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if _, err := c.Read(make([]byte, 64<<10)); err == nil {
					_, _ = io.WriteString(c, *answer.Load())
				}
			}()
		}
	}()
	// Incomplete requests wait for the idle timeout, so it is short.
	lb := frontWith(f, []string{target.Addr().String()}, func(_ *Settings, m *model) { m.idleTimeout = 20 * time.Millisecond })
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
