package proxy

import (
	"encoding/hex"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// appendHead appends the head of the request as the target gets it, which is
// always HTTP/1.1. trace is the X-Amzn-Trace-Id.
func (r *request) appendHead(b []byte, trace string) []byte {
	b = append(b, r.method...)
	b = append(b, ' ')
	b = append(b, r.path...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	if r.host != "" {
		b = append(b, r.host...)
	} else {
		b = append(b, r.local...) // RFC 9112, 3.2: HTTP/1.0 may name none, HTTP/1.1 must
	}
	b = append(b, "\r\n"...)
	for i := range r.fields {
		switch f := &r.fields[i]; f.kind {
		case kindOther, kindDate, kindUserAgent, kindContentType, kindRequestID:
			b = appendField(b, f.name, f.value)
		}
	}
	switch {
	case r.length > 0 || r.said:
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, r.length, 10)
		b = append(b, "\r\n"...)
	case r.length < 0:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	}
	if r.upgrade != "" {
		b = append(b, "Connection: Upgrade\r\n"...)
		b = appendField(b, "Upgrade", r.upgrade)
	}
	b = append(b, "X-Forwarded-For: "...)
	for i := range r.fields {
		if f := &r.fields[i]; f.kind == kindForwardedFor && f.value != "" {
			b = append(b, f.value...)
			b = append(b, ", "...)
		}
	}
	b = append(b, r.ip...)
	b = append(b, "\r\n"...)
	b = appendField(b, "X-Forwarded-Proto", r.scheme)
	b = appendField(b, "X-Forwarded-Port", r.port)
	b = appendField(b, "X-Amzn-Trace-Id", trace)
	return append(b, "\r\n"...)
}

func appendField(b []byte, name, value string) []byte {
	b = append(b, name...)
	b = append(b, ": "...)
	b = append(b, value...)
	return append(b, "\r\n"...)
}

// appendTraceID appends a new Root, or a Self in front of what the client sent
// (AWS user guide, Request tracing for your Application Load Balancer).
func appendTraceID(b []byte, given string, now time.Time) []byte {
	field := "Root="
	if strings.Contains(given, "Root=") {
		field = "Self="
	}
	b = append(b, field...)
	b = append(b, "1-"...)
	b = appendHex(b, uint64(now.Unix()), 4)
	b = append(b, '-')
	b = appendHex(b, rand.Uint64(), 8)
	b = appendHex(b, rand.Uint64(), 4)
	if given != "" {
		b = append(b, ';')
		b = append(b, given...)
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
