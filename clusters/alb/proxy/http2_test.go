package proxy

import (
	"bytes"
	"crypto/tls"
	"io"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"lameduck/clusters/alb/scripted"
)

// rawHTTP2 sends one request with any header fields, and returns the status of
// the answer, "" if the stream or the connection is ended instead.
func rawHTTP2(t *testing.T, addr string, fields ...[2]string) string {
	t.Helper()
	c, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(c, c)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, f := range fields {
		if err := encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			t.Fatal(err)
		}
	}
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	err = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
	if err != nil {
		t.Fatal(err)
	}
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Fatalf("no answer: %v", err)
		}
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			return f.PseudoValue("status")
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return ""
		}
	}
}

// A method is part of the request line to the target: nothing in it may end
// that, or begin another.
func TestHTTP2MethodIsChecked(t *testing.T) {
	t.Parallel()
	target := startTarget(t, scripted.Echo)
	f := frontWith(t, []string{target.Address()}, func(w *world) { secure(w, t) })
	for method, want := range map[string]string{"GET": "200", "GET /admin HTTP/1.1": "400", `GE"T`: "400"} {
		got := rawHTTP2(t, f.addr(), [2]string{":method", method}, [2]string{":scheme", "https"}, [2]string{":path", "/public"}, [2]string{":authority", "x"})
		if got != want {
			t.Errorf("%q: status %q, want %s", method, got, want)
		}
	}
	if n := target.Requests.Load(); n != 1 {
		t.Errorf("the target got %d requests, want 1", n)
	}
}
