package proxy

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http/httputil"
	"strconv"
	"time"
)

// http1 is the part of a client that concerns one request and its answer: what
// has been read of the body, and what waits to be sent. With client's attach
// and detach it makes a stream.
type http1 struct {
	old  bool // HTTP/1.0
	left int64
	// chunks decodes a chunked body, nil after its end.
	chunks io.Reader

	out     []byte
	framing framing // of the answer's body
	total   int64
}

// outBuffer is what waits at most before it is sent.
const outBuffer = 8 << 10

// request prepares for the next request.
func (c *client) request(r *request) {
	c.old, c.left, c.chunks = r.old, max(0, r.length), nil
	if r.length < 0 {
		c.chunks = httputil.NewChunkedReader(c.br)
	}
	c.framing, c.total = framedNone, 0
	if cap(c.out) > 2*outBuffer {
		c.out = nil
	}
	c.out = c.out[:0]
}

// bodyReader reads the request's body.
type bodyReader struct{ c *client }

func (c *client) body() io.Reader { return bodyReader{c} }

func (b bodyReader) Read(p []byte) (int, error) {
	c := b.c
	switch {
	case c.chunks != nil:
		n, err := c.chunks.Read(p)
		if errors.Is(err, io.EOF) {
			if err = readTrailer(c.br); err == nil {
				c.chunks, err = nil, io.EOF
			}
		}
		return n, err
	case c.left == 0:
		return 0, io.EOF
	}
	n, err := c.br.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (c *client) arrived() []byte {
	if c.chunks != nil || c.left > int64(c.br.Buffered()) {
		return nil
	}
	b, err := c.br.Peek(int(c.left))
	if err != nil {
		return nil
	}
	// What was peeked at stays where it is until the next read.
	_, _ = c.br.Discard(len(b)) // it is there
	c.left = 0
	return b
}

func (c *client) skipBody() bool {
	c.arrived()
	return c.left == 0 && c.chunks == nil
}

func (c *client) stopReading() { c.guard.stopReading() }

func (c *client) sendContinue() error {
	n, err := io.WriteString(c.net, "HTTP/1.1 100 Continue\r\n\r\n")
	c.total += int64(n)
	return err
}

func (c *client) writeHead(a *answerHead) {
	now := time.Now()
	c.framing = framedNone
	if a.hasBody {
		switch {
		case a.length >= 0:
			c.framing = framedLength
		case c.old:
			c.framing = framedClose
			c.x.last = true
		default:
			c.framing = framedChunked
		}
	}
	b := append(c.out, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(a.status), 10)
	b = append(b, ' ')
	b = append(b, a.reason...)
	b = append(b, "\r\n"...)
	dated := false
	for i := range a.fields {
		f := &a.fields[i]
		if f.passed() {
			dated = dated || f.kind == kindDate
			b = appendField(b, f.name, f.value)
		}
	}
	if !dated {
		b = appendDate(b, now)
	}
	for _, cookie := range a.cookies {
		b = appendField(b, "Set-Cookie", cookie)
	}
	if c.framing == framedChunked {
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	} else if a.length >= 0 && a.status >= 200 && a.status != 204 {
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, a.length, 10)
		b = append(b, "\r\n"...)
	}
	switch {
	case a.upgrade != "":
		b = append(b, "Connection: Upgrade\r\n"...)
		b = appendField(b, "Upgrade", a.upgrade)
	case a.last || c.x.last:
		b = append(b, "Connection: close\r\n"...)
	case c.old:
		b = append(b, "Connection: keep-alive\r\n"...)
	}
	c.out = append(b, "\r\n"...)
}

func (c *client) write(p []byte) error {
	if c.framing == framedChunked {
		c.out = strconv.AppendUint(c.out, uint64(len(p)), 16)
		c.out = append(c.out, "\r\n"...)
	}
	if len(c.out)+len(p) <= outBuffer {
		c.out = append(c.out, p...)
	} else {
		if err := c.flush(); err != nil {
			return err
		}
		if err := c.send(p); err != nil {
			return err
		}
	}
	if c.framing == framedChunked {
		c.out = append(c.out, "\r\n"...)
	}
	return nil
}

func (c *client) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	err := c.send(c.out)
	c.out = c.out[:0]
	return err
}

func (c *client) send(p []byte) error {
	n, err := c.net.Write(p)
	c.total += int64(n)
	return err
}

func (c *client) finish() error {
	if c.framing == framedChunked {
		c.out = append(c.out, lastChunk...)
	}
	return c.flush()
}

func (c *client) sentTotal() int64 { return c.total }

// untilClose says whether the end of the answer is that of the connection.
func (c *client) untilClose() bool { return c.framing == framedClose }

func (c *client) takeOver() (net.Conn, *guard, *bufio.Reader) { return c.net, c.guard, c.br }
