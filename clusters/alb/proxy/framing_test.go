package proxy

import (
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"lameduck/clusters/alb/accesslog"
	"lameduck/clusters/alb/scripted"
)

// TestUnacceptableFraming has requests that two readers could take for
// different ones.
func TestUnacceptableFraming(t *testing.T) {
	t.Parallel()
	target := startTarget(t, scripted.Echo)
	f := frontWith(t, []string{target.Address()}, nil)
	for request, want := range map[string]int{
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd":               400,
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3, 3\r\n\r\nabc":                                  400,
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +3\r\n\r\nabc":                                    400,
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0x3\r\n\r\nabc":                                   400,
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length:\r\n\r\nabc":                                       400,
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9223372036854775808\r\n\r\nabc":                   400,
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length : 3\r\n\r\nabc":                                    400,
		"POST / HTTP/1.1\r\nHost: x\r\n Content-Length: 3\r\n\r\nabc":                                    400,
		"POST / HTTP/1.1\r\nHost: x\r\nX: a\r\n folded\r\n\r\n":                                          400,
		"POST / HTTP/1.1\r\nHost: x\r\nX: a\rContent-Length: 3\r\n\r\nabc":                               400,
		"POST / HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n":                                                400,
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n": 400,
		"POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n":                      400,
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, chunked\r\n\r\n":                      501,
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n":                              501,
		"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n":                                                   400,
		"GET / HTTP/1.1\r\nHost: x y\r\n\r\n":                                                            400,
		"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n":                                                           400,
		"GET  / HTTP/1.1\r\nHost: x\r\n\r\n":                                                             400,
		"GET / HTTP/1.1 \r\nHost: x\r\n\r\n":                                                             400,
		"GET /\x01 HTTP/1.1\r\nHost: x\r\n\r\n":                                                          400,
		"GET x HTTP/1.1\r\nHost: x\r\n\r\n":                                                              400,
		"GET ftp://x/ HTTP/1.1\r\nHost: x\r\n\r\n":                                                       400,
		"GET\r\n\r\n":                  400,
		"\x16\x03\x01\x02\x00\x01\x00": 400,
	} {
		got := f.raw(request)
		if !strings.HasPrefix(got, fmt.Sprintf("HTTP/1.1 %d ", want)) || strings.Count(got, "HTTP/1.1 ") != 1 || !strings.Contains(got, "Connection: close\r\n") {
			t.Errorf("%q: got %q, want one answer, %d and close", request, got, want)
		}
	}
	if n := target.Requests.Load(); n != 0 {
		t.Errorf("target got %d requests, want 0", n)
	}
}

// TestAmbiguousFraming has requests that are passed on with one framing, and
// end both connections.
func TestAmbiguousFraming(t *testing.T) {
	t.Parallel()
	for request, body := range map[string]string{
		"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n": "hello",
		"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabcGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n":                              "abc",
	} {
		var closed atomic.Int64
		target := startTarget(t, func(x *scripted.Exchange) {
			r := x.Request()
			if r.Header.Get("Content-Length") != "" && len(r.TransferEncoding) > 0 {
				t.Errorf("target got two framings: %v", r.Header)
			}
			got, _ := io.ReadAll(r.Body)
			fmt.Fprintf(x, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(got), got)
			if x.Request() == nil {
				closed.Add(1)
			}
		})
		f := frontWith(t, []string{target.Address()}, nil)
		got := f.raw("POST / HTTP/1.1\r\nHost: x\r\n" + request)
		if !strings.HasSuffix(got, "\r\n\r\n"+body) || !strings.Contains(got, "Connection: close\r\n") {
			t.Errorf("got %q, want %q and close", got, body)
		}
		eventually(t, "end of the target's connection", func() bool { return closed.Load() == 1 })
		if n := target.Requests.Load(); n != 1 {
			t.Errorf("target got %d requests, want 1", n)
		}
	}
}

func TestBadChunkFromClient(t *testing.T) {
	t.Parallel()
	for _, chunk := range []string{"zz\r\n", "2\r\nabc\r\n0\r\n\r\n", "-1\r\n\r\n", "ffffffffffffffffff\r\n", "0\r\nbad trailer\r\n\r\n"} {
		target := startTarget(t, scripted.Echo)
		f := frontWith(t, []string{target.Address()}, nil)
		got := f.raw("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk + "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n")
		if !strings.HasPrefix(got, "HTTP/1.1 400 ") || strings.Count(got, "HTTP/1.1 ") != 1 {
			t.Errorf("%q: got %q, want 400", chunk, got)
		}
		wantLine(t, f.line(), 400, 0, accesslog.PhaseWait, accesslog.ErrorClientBody)
		if n := target.Requests.Load(); n != 0 {
			t.Errorf("%q: target got %d requests, want 0", chunk, n)
		}
	}
}
