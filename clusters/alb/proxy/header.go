package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// field is one line of a head, in the order and spelling it was sent.
type field struct {
	name, value string
	kind        kind
}

// kind is what a header means to the load balancer.
type kind uint8

const (
	kindOther kind = iota
	kindHop        // concerns one connection only (RFC 9110, 7.6.1)
	kindConnection
	kindUpgrade
	kindTransferEncoding
	kindContentLength
	kindHost
	kindExpect
	kindDate
	kindUserAgent
	kindContentType
	kindForwardedFor
	kindForwardedProto
	kindForwardedPort
	kindTraceID
	kindRequestID
)

// known are the headers that have a kind, by length of their name: one look
// tells most others.
var known = func() (table [32][]field) {
	for name, k := range map[string]kind{
		"Connection": kindConnection, "Keep-Alive": kindHop, "Proxy-Connection": kindHop, "TE": kindHop, "Trailer": kindHop,
		"Upgrade": kindUpgrade, "Transfer-Encoding": kindTransferEncoding, "Content-Length": kindContentLength,
		"HTTP2-Settings": kindHop, // of an upgrade to HTTP/2, which is not offered (RFC 7540, 3.2.1)
		"Host":           kindHost, "Expect": kindExpect, "Date": kindDate, "User-Agent": kindUserAgent, "Content-Type": kindContentType,
		"X-Forwarded-For": kindForwardedFor, "X-Forwarded-Proto": kindForwardedProto, "X-Forwarded-Port": kindForwardedPort,
		"X-Amzn-Trace-Id": kindTraceID, requestIDHeader: kindRequestID,
	} {
		table[len(name)] = append(table[len(name)], field{name: name, kind: k})
	}
	return table
}()

func kindOf(name string) kind {
	if len(name) < len(known) {
		for _, f := range known[len(name)] {
			if strings.EqualFold(f.name, name) {
				return f.kind
			}
		}
	}
	return kindOther
}

// appendFields parses header lines, each with its line end. ok is false if one
// is not acceptable: no colon, white space in front of it, a folded line
// (obsolete, RFC 9112, 5.2), a control character.
func appendFields(fields []field, block string) (_ []field, ok bool) {
	for block != "" {
		var line string
		line, block, _ = strings.Cut(block, "\n")
		line = strings.TrimSuffix(line, "\r")
		colon := strings.IndexByte(line, ':')
		if colon <= 0 || !httpguts.ValidHeaderFieldName(line[:colon]) {
			return fields, false
		}
		value := strings.Trim(line[colon+1:], " \t")
		if !httpguts.ValidHeaderFieldValue(value) {
			return fields, false
		}
		fields = append(fields, field{line[:colon], value, kindOf(line[:colon])})
	}
	return fields, true
}

// find is the first value of a header, "" without one.
func find(fields []field, name string) string {
	for i := range fields {
		if len(fields[i].name) == len(name) && strings.EqualFold(fields[i].name, name) {
			return fields[i].value
		}
	}
	return ""
}

// connectionOptions are what Connection headers say.
type connectionOptions struct{ close, keepAlive, upgrade bool }

// applyConnection reads the Connection headers, and marks those that they name
// as hop-by-hop.
func applyConnection(fields []field) (o connectionOptions) {
	for i := range fields {
		if fields[i].kind != kindConnection {
			continue
		}
		for rest := fields[i].value; rest != ""; {
			var item string
			item, rest, _ = strings.Cut(rest, ",")
			item = strings.Trim(item, " \t")
			switch {
			case strings.EqualFold(item, "close"):
				o.close = true
			case strings.EqualFold(item, "keep-alive"):
				o.keepAlive = true
			case strings.EqualFold(item, "upgrade"):
				o.upgrade = true
			default:
				markHop(fields, item)
			}
		}
	}
	return o
}

func markHop(fields []field, name string) {
	for i := range fields {
		// What has a kind is never up to the Connection header: it is framing,
		// or the load balancer's own.
		if k := fields[i].kind; (k == kindOther || k == kindDate || k == kindUserAgent || k == kindContentType || k == kindRequestID) &&
			strings.EqualFold(fields[i].name, name) {
			fields[i].kind = kindHop
		}
	}
}

var errHeadLimit = errors.New("head is too large")

// headReader reads the head of a message.
type headReader struct {
	scratch []byte // what came of a head that is larger than the reader's buffer
}

// read returns a head without the empty line at its end, which counts towards
// max. It fails with errHeadLimit, or what the connection gave: io.EOF only
// in front of the first byte.
func (h *headReader) read(br *bufio.Reader, max int) (string, error) {
	h.scratch = h.scratch[:0]
	seen := 0
	for {
		buf, _ := br.Peek(br.Buffered()) // what is buffered can always be peeked at
		if end, next := headEnd(buf, seen); next > 0 {
			if next > max {
				return "", errHeadLimit
			}
			head := string(buf[:end])
			_, err := br.Discard(next)
			return head, err
		}
		if len(buf) == br.Size() {
			return h.readLong(br, max)
		}
		seen = len(buf)
		if _, err := br.Peek(len(buf) + 1); err != nil {
			if errors.Is(err, io.EOF) && len(buf) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return "", err
		}
	}
}

// headEnd finds the empty line: the head is buf[:end], and what follows starts
// at next, 0 if there is no empty line yet. The first seen bytes have been
// searched before.
func headEnd(buf []byte, seen int) (end, next int) {
	for i := max(0, seen-2); ; i++ {
		n := bytes.IndexByte(buf[i:], '\n')
		if n < 0 {
			return 0, 0
		}
		i += n
		switch {
		case i == 0, i == 1 && buf[0] == '\r': // no line at all
			return 0, i + 1
		case buf[i-1] == '\n':
			return i, i + 1
		case i > 1 && buf[i-1] == '\r' && buf[i-2] == '\n':
			return i - 1, i + 1
		}
	}
}

// readLong is for a head that does not fit in the reader's buffer.
func (h *headReader) readLong(br *bufio.Reader, max int) (string, error) {
	for {
		part, err := br.ReadSlice('\n')
		seen := len(h.scratch)
		h.scratch = append(h.scratch, part...)
		if len(h.scratch) > max {
			return "", errHeadLimit
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF):
			return "", io.ErrUnexpectedEOF
		case err != nil:
			return "", err
		}
		if end, next := headEnd(h.scratch, seen); next > 0 {
			return string(h.scratch[:end]), nil
		}
	}
}

// readTrailer reads what follows the last chunk. Trailers are not passed on.
func readTrailer(br *bufio.Reader) error {
	for total := 0; total <= maxTrailerBytes; {
		line, err := br.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			return errMalformed
		}
		if errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		if string(line) == "\r\n" {
			return nil
		}
		// No line end but CRLF, as within chunks: what is skipped here must not
		// be read differently by anyone (RFC 9112, 7.1).
		if !bytes.HasSuffix(line, []byte("\r\n")) {
			return errMalformed
		}
		if _, ok := appendFields(nil, string(line)); !ok {
			return errMalformed
		}
		total += len(line)
	}
	return errMalformed
}
