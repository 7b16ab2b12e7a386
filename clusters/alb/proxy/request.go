package proxy

import (
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"lameduck/harness"
)

const requestIDHeader = harness.RequestIDHeader

// peer is what is known of a client's connection.
type peer struct {
	addr   string // with its port
	ip     string
	local  string // the load balancer's end, with its port
	node   string // without it
	port   string // the listener's
	scheme string
	http   string // Line.Type without an upgrade: http, https, h2
	ws     string // and with one: ws, wss

	cipher, tlsVersion, serverName string
}

// request is the head of a client's request. It implements Request.
type request struct {
	*peer
	method string
	target string // as it was sent
	path   string // in origin form
	host   string // as it was sent, or of an absolute target
	proto  string
	fields []field

	// length is the body's: -1 if it is chunked. said tells whether a
	// Content-Length of 0 was sent.
	length int64
	said   bool
	// waits says that the client wants to hear 100 Continue before its body.
	waits bool
	// upgrade is the protocol that the client would change to, "" for none.
	upgrade string
	// last says that the connection ends with the answer: the client wishes
	// so, or its framing was ambiguous.
	last bool
	// ambiguous framing also costs the target's connection.
	ambiguous bool
	old       bool // HTTP/1.0
}

func (r *request) Method() string            { return r.method }
func (r *request) Host() string              { return r.host }
func (r *request) Target() string            { return r.target }
func (r *request) Header(name string) string { return find(r.fields, name) }
func (r *request) ClientIP() string          { return r.ip }
func (r *request) Scheme() string            { return r.scheme }
func (r *request) Port() string              { return r.port }

// parse reads a head of HTTP/1. It returns the status with which the request
// is refused, 0 if it is not. After 400, 414, 501 and 505 it is not known
// where the request ends.
func (r *request) parse(head string) int {
	r.reset()
	line, rest, _ := strings.Cut(head, "\n")
	line = strings.TrimSuffix(line, "\r")
	if len(line) > maxRequestLine {
		return http.StatusRequestURITooLong
	}
	if status := r.parseLine(line); status != 0 {
		return status
	}
	var ok bool
	if r.fields, ok = appendFields(r.fields, rest); !ok {
		return http.StatusBadRequest
	}
	if status := r.frame(); status != 0 {
		return status
	}
	if !r.findHost() {
		return http.StatusBadRequest
	}
	return r.refusal()
}

// reset forgets everything but the connection.
func (r *request) reset() { *r = request{peer: r.peer, fields: r.fields[:0]} }

// parseLine reads "GET /path HTTP/1.1".
func (r *request) parseLine(line string) int {
	method, rest, _ := strings.Cut(line, " ")
	target, version, ok := strings.Cut(rest, " ")
	if !ok || !httpguts.ValidHeaderFieldName(method) || !validTarget(target) {
		return http.StatusBadRequest
	}
	switch version {
	case "HTTP/1.1":
	case "HTTP/1.0":
		r.old = true
	default:
		// AWS user guide, Troubleshooting: HTTP 505, which names a request of
		// HTTP/2 on a connection of HTTP/1.
		if len(version) == len("HTTP/1.1") && version[:5] == "HTTP/" && digit(version[5]) && version[6] == '.' && digit(version[7]) {
			return http.StatusHTTPVersionNotSupported
		}
		return http.StatusBadRequest
	}
	r.method, r.target, r.path, r.proto = method, target, target, version
	return 0
}

func digit(c byte) bool { return '0' <= c && c <= '9' }

// validTarget refuses spaces and control characters.
func validTarget(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] == 0x7f {
			return false
		}
	}
	return s != ""
}

// frame decides how the body is framed (RFC 9112, 6.3). What can be read in two
// ways is refused, or else ends both connections, as an ALB in its default mode
// does (AWS user guide, Load balancer attributes: desync mitigation mode,
// defensive). The target never sees more than one framing, and that is ours.
func (r *request) frame() int {
	var chunked bool
	for i := range r.fields {
		f := &r.fields[i]
		switch f.kind {
		case kindContentLength:
			n, err := strconv.ParseUint(f.value, 10, 63)
			if err != nil || r.said && r.length != int64(n) {
				return http.StatusBadRequest
			}
			r.ambiguous = r.ambiguous || r.said
			r.length, r.said = int64(n), true
		case kindTransferEncoding:
			switch {
			case r.old || chunked: // RFC 9112, 6.1: faulty in HTTP/1.0; chunked twice
				return http.StatusBadRequest
			case strings.EqualFold(f.value, "chunked"):
				chunked = true
			case !strings.EqualFold(f.value, "identity"):
				// AWS user guide, Troubleshooting: HTTP 501.
				return http.StatusNotImplemented
			}
		case kindExpect:
			r.waits = !r.old && strings.EqualFold(f.value, "100-continue")
		}
	}
	if chunked {
		r.ambiguous = r.ambiguous || r.said
		r.length, r.said = -1, false
	}
	r.waits = r.waits && r.length != 0
	o := applyConnection(r.fields)
	r.last = o.close || r.ambiguous || r.old && !o.keepAlive
	if o.upgrade && !r.old && r.length == 0 {
		r.upgrade = offered(r.fields)
	}
	return 0
}

// offered is the protocol of the Upgrade header. HTTP/2 is not passed on: the
// target would speak it to a load balancer that does not look at it.
func offered(fields []field) string {
	for i := range fields {
		if f := &fields[i]; f.kind == kindUpgrade && !strings.HasPrefix(strings.ToLower(f.value), "h2") {
			return f.value
		}
	}
	return ""
}

// findHost finds the one host the request is for (RFC 9112, 3.2).
func (r *request) findHost() bool {
	hosts := 0
	for i := range r.fields {
		if f := &r.fields[i]; f.kind == kindHost {
			r.host = f.value
			hosts++
		}
	}
	if hosts > 1 || hosts == 0 && !r.old || !httpguts.ValidHostHeader(r.host) {
		return false
	}
	if r.target[0] == '/' || r.target == "*" || r.method == http.MethodConnect {
		return true
	}
	// The absolute form: its host counts, and the target gets the origin form.
	scheme, rest, ok := strings.Cut(r.target, "://")
	if !ok || !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") {
		return false
	}
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		r.host, r.path = rest, "/"
	} else {
		r.host, r.path = rest[:end], rest[end:]
		if r.path[0] == '?' {
			r.path = "/" + r.path
		}
	}
	return r.host != "" && httpguts.ValidHostHeader(r.host) && !strings.Contains(r.host, "@")
}

// refusal is the status of a request that is well-formed, but not passed on.
func (r *request) refusal() int {
	switch r.method {
	case http.MethodTrace:
		return http.StatusMethodNotAllowed
	case http.MethodConnect:
		return http.StatusBadRequest
	}
	total, addresses := len(r.method)+len(" ")+len(r.target)+len(" HTTP/1.1"), 0
	if total > maxRequestLine {
		return http.StatusRequestURITooLong
	}
	for i := range r.fields {
		f := &r.fields[i]
		size := len(f.name) + len(": ") + len(f.value)
		if size > maxRequestField {
			return http.StatusBadRequest
		}
		total += size + len("\r\n")
		if f.kind == kindForwardedFor {
			addresses += 1 + strings.Count(f.value, ",")
		}
	}
	switch {
	case total > maxRequestHead:
		return http.StatusBadRequest
	case addresses > maxForwardedFor:
		return statusTooManyXFF
	}
	return 0
}

// endKnown says whether the end of a request is known that was refused.
func endKnown(status int) bool {
	return status == http.StatusMethodNotAllowed || status == statusTooManyXFF || status == statusWrongProtocol
}
