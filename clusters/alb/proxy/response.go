package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"net/http"
	"strconv"
	"strings"
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
	framing   framing
	length    int64 // with framedLength; also the declared one of an answer to HEAD
	keepAlive bool  // the target leaves the connection open

	// raw are the header lines of an answer with status 101, each with CRLF.
	raw     string
	scratch []byte
}

// read reads one head, putting the headers that go on to the client into h.
// Errors are errMalformed, errHeadTooLarge or what the connection gave.
func (p *responseHead) read(br *bufio.Reader, method string, h http.Header) error {
	block, err := p.readBlock(br)
	if err != nil {
		return err
	}
	first, rest, _ := strings.Cut(block, "\n")
	oneOne, status, ok := parseStatusLine(strings.TrimSuffix(first, "\r"))
	if !ok {
		return errMalformed
	}
	p.status, p.keepAlive = status, oneOne
	p.framing, p.length, p.raw = framedClose, -1, ""
	if status == http.StatusSwitchingProtocols {
		p.raw = strings.ReplaceAll(strings.ReplaceAll(rest, "\r\n", "\n"), "\n", "\r\n")
	}
	return p.readFields(rest, oneOne, method, h)
}

// readBlock returns everything up to and without the empty line.
func (p *responseHead) readBlock(br *bufio.Reader) (string, error) {
	p.scratch = p.scratch[:0]
	for {
		part, err := br.ReadSlice('\n')
		p.scratch = append(p.scratch, part...)
		if len(p.scratch) > maxResponseHead {
			return "", errHeadTooLarge
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return "", err
		}
		if (len(part) == 1 || len(part) == 2 && part[0] == '\r') && endsLine(p.scratch[:len(p.scratch)-len(part)]) {
			return string(p.scratch[:len(p.scratch)-len(part)]), nil
		}
	}
}

// endsLine guards against an "empty line" that is only the tail of a long one
// that did not fit in the reader's buffer.
func endsLine(b []byte) bool { return len(b) == 0 || b[len(b)-1] == '\n' }

// parseStatusLine reads "HTTP/1.1 200 OK"; the reason may be missing.
func parseStatusLine(line string) (oneOne bool, status int, ok bool) {
	version, rest, _ := strings.Cut(line, " ")
	if version != "HTTP/1.1" && version != "HTTP/1.0" {
		return false, 0, false
	}
	code, _, _ := strings.Cut(rest, " ")
	if len(code) != 3 {
		return false, 0, false
	}
	for i := range 3 {
		if code[i] < '0' || code[i] > '9' {
			return false, 0, false
		}
		status = status*10 + int(code[i]-'0')
	}
	return version == "HTTP/1.1", status, status >= 100
}

// readFields parses the header lines and decides on the framing.
func (p *responseHead) readFields(block string, oneOne bool, method string, h http.Header) error {
	var chunked bool
	var connection []string
	values := make([]string, 0, strings.Count(block, "\n")) // one array for all values
	for block != "" {
		var line string
		line, block, _ = strings.Cut(block, "\n")
		line = strings.TrimSuffix(line, "\r")
		name, value, ok := strings.Cut(line, ":")
		if !ok || !validName(name) {
			return errMalformed // also a folded line, obsolete since RFC 7230
		}
		value = strings.Trim(value, " \t")
		if !validValue(value) {
			return errMalformed
		}
		name = http.CanonicalHeaderKey(name)
		switch name {
		case "Content-Length":
			n, err := strconv.ParseUint(value, 10, 63)
			if err != nil || p.length >= 0 && p.length != int64(n) {
				return errMalformed
			}
			if p.length >= 0 {
				continue // said twice, and the same
			}
			p.length = int64(n)
		case "Transfer-Encoding":
			// In HTTP/1.0 it means that the framing is faulty (RFC 9112, 6.1).
			if chunked || !oneOne || !strings.EqualFold(value, "chunked") {
				return errMalformed
			}
			chunked = true
		case "Connection":
			connection = append(connection, value)
		}
		if hopByHop(name) {
			continue
		}
		if old := h[name]; old != nil {
			h[name] = append(old, value)
			continue
		}
		values = append(values, value)
		h[name] = values[len(values)-1 : len(values) : len(values)]
	}
	for _, v := range connection {
		p.dropListed(v, h)
	}
	p.frame(chunked, method, h)
	return nil
}

// tokenChars are the characters of a header's name (RFC 9110, 5.6.2).
var tokenChars = func() (table [256]bool) {
	for _, c := range []byte("!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") {
		table[c] = true
	}
	return table
}()

func validName(s string) bool {
	for i := range len(s) {
		if !tokenChars[s[i]] {
			return false
		}
	}
	return s != ""
}

// validValue refuses control characters other than tab (RFC 9110, 5.5).
func validValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// dropListed applies one Connection header.
func (p *responseHead) dropListed(connection string, h http.Header) {
	for connection != "" {
		var item string
		item, connection, _ = strings.Cut(connection, ",")
		item = strings.TrimSpace(item)
		switch {
		case strings.EqualFold(item, "close"):
			p.keepAlive = false
		case strings.EqualFold(item, "keep-alive"):
		case strings.EqualFold(item, "Content-Length"):
			// Framing is never up to the Connection header.
		default:
			h.Del(item)
		}
	}
}

// frame decides where the body ends (RFC 9112, 6.3).
func (p *responseHead) frame(chunked bool, method string, h http.Header) {
	if chunked {
		// With both, the length is a lie, and possibly an attack.
		if p.length >= 0 {
			p.keepAlive = false
		}
		p.length = -1
		delete(h, "Content-Length")
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
}

// readTrailer reads what follows the last chunk. Trailers are not passed on.
func readTrailer(br *bufio.Reader) error {
	for total := 0; total <= maxTrailerBytes; {
		line, err := br.ReadSlice('\n')
		if err != nil {
			if errors.Is(err, bufio.ErrBufferFull) {
				return errMalformed
			}
			return err
		}
		if len(bytes.TrimRight(line, "\r\n")) == 0 {
			return nil
		}
		total += len(line)
	}
	return errMalformed
}
