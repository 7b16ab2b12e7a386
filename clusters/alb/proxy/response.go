package proxy

import (
	"bufio"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// framing is how a response's body ends.
type framing int

const (
	framedNone    framing = iota // no body
	framedLength                 // Content-Length
	framedChunked                // Transfer-Encoding: chunked
	framedClose                  // at the end of the connection
)

// responseHead is the head of a target's answer.
type responseHead struct {
	status    int
	reason    string
	fields    []field
	framing   framing
	length    int64 // declared, also by an answer to HEAD; -1 without one
	keepAlive bool  // the target leaves the connection open
	upgrade   bool  // Connection: Upgrade

	reader headReader
}

// read reads one head. Errors are errMalformed, errHeadTooLarge or what the
// connection gave.
func (p *responseHead) read(br *bufio.Reader, method string) error {
	block, err := p.reader.read(br, maxResponseHead)
	if errors.Is(err, errHeadLimit) {
		return errHeadTooLarge
	}
	if err != nil {
		return err
	}
	first, rest, _ := strings.Cut(block, "\n")
	oneOne, ok := p.parseStatusLine(strings.TrimSuffix(first, "\r"))
	if !ok {
		return errMalformed
	}
	if p.fields, ok = appendFields(p.fields[:0], rest); !ok {
		return errMalformed
	}
	p.keepAlive, p.framing, p.length = oneOne, framedClose, -1
	return p.frame(oneOne, method)
}

// parseStatusLine reads "HTTP/1.1 200 OK"; the reason may be missing.
func (p *responseHead) parseStatusLine(line string) (oneOne, ok bool) {
	version, rest, _ := strings.Cut(line, " ")
	if version != "HTTP/1.1" && version != "HTTP/1.0" {
		return false, false
	}
	code, reason, _ := strings.Cut(rest, " ")
	if len(code) != 3 || !digit(code[0]) || !digit(code[1]) || !digit(code[2]) || !httpguts.ValidHeaderFieldValue(reason) {
		return false, false
	}
	p.status = int(code[0]-'0')*100 + int(code[1]-'0')*10 + int(code[2]-'0')
	p.reason = reason
	return version == "HTTP/1.1", p.status >= 100
}

// frame decides where the body ends (RFC 9112, 6.3).
func (p *responseHead) frame(oneOne bool, method string) error {
	var chunked bool
	for i := range p.fields {
		switch f := &p.fields[i]; f.kind {
		case kindContentLength:
			n, err := strconv.ParseUint(f.value, 10, 63)
			if err != nil || p.length >= 0 && p.length != int64(n) {
				return errMalformed
			}
			p.length = int64(n)
		case kindTransferEncoding:
			// In HTTP/1.0 it means that the framing is faulty (RFC 9112, 6.1).
			if chunked || !oneOne || !strings.EqualFold(f.value, "chunked") {
				return errMalformed
			}
			chunked = true
		}
	}
	o := applyConnection(p.fields)
	p.upgrade = o.upgrade
	// HTTP/1.0 with keep-alive is taken at its default: it closes.
	p.keepAlive = oneOne && !o.close
	if chunked && p.length >= 0 {
		// With both, the length is a lie, and possibly an attack.
		p.keepAlive, p.length = false, -1
	}
	switch {
	case p.status < 200, p.status == http.StatusNoContent, p.status == http.StatusNotModified, method == http.MethodHead:
		p.framing = framedNone
	case chunked:
		p.framing = framedChunked
	case p.length == 0:
		p.framing = framedNone
	case p.length > 0:
		p.framing = framedLength
	default:
		p.framing, p.keepAlive = framedClose, false
	}
	return nil
}

// passed says whether a target's header goes on to the client. What is about
// framing and connections is written anew.
func (f *field) passed() bool {
	switch f.kind {
	case kindHop, kindConnection, kindUpgrade, kindTransferEncoding, kindContentLength:
		return false
	}
	return true
}
