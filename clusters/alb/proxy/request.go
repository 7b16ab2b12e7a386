package proxy

import (
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// requestTarget is what the request line asks for, in origin form.
func requestTarget(r *http.Request) string {
	if strings.HasPrefix(r.RequestURI, "/") || r.RequestURI == "*" {
		return r.RequestURI
	}
	return r.URL.RequestURI() // the client sent the absolute form
}

// refusal is the status of a request that is not passed on, 0 if it is, and the
// size of its head in HTTP/1.1. What http.Server refuses by itself (400, 501,
// 505) does not come here.
func refusal(r *http.Request) (status int, size int64) {
	line := len(r.Method) + 1 + len(r.RequestURI) + 1 + len("HTTP/1.1")
	total := line + len("\r\nHost: \r\n\r\n") + len(r.Host)
	longest := 0
	for name, values := range r.Header {
		for _, v := range values {
			field := len(name) + len(": ") + len(v)
			longest = max(longest, field)
			total += field + len("\r\n")
		}
	}
	size = int64(total)
	switch {
	case r.ProtoMajor != 1 && r.TLS == nil: // HTTP/2 needs an HTTPS listener
		return statusWrongProtocol, size
	case r.Method == http.MethodTrace:
		return http.StatusMethodNotAllowed, size
	case r.Method == http.MethodConnect:
		return http.StatusBadRequest, size
	case line > maxRequestLine:
		return http.StatusRequestURITooLong, size
	case longest > maxRequestField, total > maxRequestHead:
		return http.StatusBadRequest, size
	}
	if xff := r.Header["X-Forwarded-For"]; xff != nil {
		addresses := len(xff)
		for _, v := range xff {
			addresses += strings.Count(v, ",")
		}
		if addresses > maxForwardedFor {
			return statusTooManyXFF, size
		}
	}
	return 0, size
}

// hopByHop says whether a header concerns one connection only (RFC 9110,
// 7.6.1). Expect is among them because the load balancer answers it itself.
func hopByHop(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade":
		return true
	}
	return false
}

// listedIn says whether the values of a Connection header name a header.
func listedIn(connection []string, name string) bool {
	for _, v := range connection {
		for v != "" {
			var item string
			item, v, _ = strings.Cut(v, ",")
			if strings.EqualFold(strings.TrimSpace(item), name) {
				return true
			}
		}
	}
	return false
}

// appendHead appends the head of the request as the target gets it, and returns
// the X-Amzn-Trace-Id in it. Header values come from http.Server, which has
// checked them.
func (x *exchange) appendHead(b []byte) (head []byte, traceID string) {
	r := x.r
	b = append(b, r.Method...)
	b = append(b, ' ')
	b = append(b, requestTarget(r)...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, x.line.Host...)
	b = append(b, "\r\n"...)
	connection := r.Header["Connection"]
	for name, values := range r.Header {
		switch name {
		case "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Amzn-Trace-Id", "Expect", "Content-Length":
			continue // written below, or the load balancer's own business
		}
		if hopByHop(name) || connection != nil && listedIn(connection, name) {
			continue
		}
		for _, v := range values {
			b = appendField(b, name, v)
		}
	}
	switch {
	case r.ContentLength > 0, r.ContentLength == 0 && r.Header["Content-Length"] != nil:
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, r.ContentLength, 10)
		b = append(b, "\r\n"...)
	case r.ContentLength < 0:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	}
	b = append(b, "X-Forwarded-For: "...)
	for _, v := range r.Header["X-Forwarded-For"] {
		b = append(b, v...)
		b = append(b, ", "...)
	}
	b = append(b, x.client.ip...)
	b = append(b, "\r\nX-Forwarded-Proto: "...)
	b = append(b, x.l.scheme...)
	b = append(b, "\r\nX-Forwarded-Port: "...)
	b = append(b, x.l.port...)
	if x.upgrade {
		b = append(b, "\r\nConnection: upgrade\r\nUpgrade: "...)
		b = append(b, r.Header["Upgrade"][0]...)
	}
	b = append(b, "\r\nX-Amzn-Trace-Id: "...)
	start := len(b)
	b = appendTraceID(b, r.Header["X-Amzn-Trace-Id"], x.line.Time)
	return append(b, "\r\n\r\n"...), string(b[start:])
}

func appendField(b []byte, name, value string) []byte {
	b = append(b, name...)
	b = append(b, ": "...)
	b = append(b, value...)
	return append(b, "\r\n"...)
}

// appendTraceID appends a new Root, or a Self in front of what the client sent
// (AWS user guide, Request tracing for your Application Load Balancer).
func appendTraceID(b []byte, given []string, now time.Time) []byte {
	field := "Root="
	if len(given) > 0 && strings.Contains(given[0], "Root=") {
		field = "Self="
	}
	b = append(b, field...)
	b = append(b, "1-"...)
	b = appendHex(b, uint64(now.Unix()), 4)
	b = append(b, '-')
	b = appendHex(b, rand.Uint64(), 8)
	b = appendHex(b, rand.Uint64(), 4)
	if len(given) > 0 && given[0] != "" {
		b = append(b, ';')
		b = append(b, given[0]...)
	}
	return b
}

// appendHex appends the lowest n bytes of v.
func appendHex(b []byte, v uint64, n int) []byte {
	var raw [8]byte
	for i := range n {
		raw[i] = byte(v >> (8 * (n - 1 - i)))
	}
	return hex.AppendEncode(b, raw[:n])
}
