package proxy

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"net/http/httputil"
)

// clientWriteError is a failure to send to the client, as opposed to one of
// the target.
type clientWriteError struct{ error }

func (e clientWriteError) Unwrap() error { return e.error }

// responseWriter is what http.Server gives a handler.
type responseWriter interface {
	http.ResponseWriter
	FlushError() error
}

// relay passes a response's body on. What has come is sent on before it waits
// for more: the client sees every byte as soon as the load balancer does.
type relay struct {
	w     responseWriter
	sent  int64
	waits bool // something is in the server's buffer
}

func (y *relay) run(br *bufio.Reader, p *responseHead) error {
	y.waits = true // the head
	switch p.framing {
	case framedLength:
		return y.length(br, p.length)
	case framedChunked:
		if err := y.stream(br, httputil.NewChunkedReader(br), -1); err != nil {
			return err
		}
		return readTrailer(br)
	case framedClose:
		return y.stream(br, br, -1)
	}
	return nil
}

// length passes on n bytes, out of the reader's own buffer if they are there.
func (y *relay) length(br *bufio.Reader, n int64) error {
	for n > 0 {
		if br.Buffered() == 0 {
			if n > int64(br.Size()) {
				// A long body goes in large pieces around the reader's buffer.
				return y.stream(br, io.LimitReader(br, n), n)
			}
			if err := y.push(); err != nil {
				return err
			}
			if _, err := br.Peek(1); err != nil {
				return err
			}
		}
		part, err := br.Peek(int(min(n, int64(br.Buffered()))))
		if err != nil {
			return err
		}
		if err := y.write(part); err != nil {
			return err
		}
		n -= int64(len(part))
		if _, err := br.Discard(len(part)); err != nil {
			return err
		}
	}
	return nil
}

// stream passes on what r gives until it ends. If size is not -1, that many
// bytes must come.
func (y *relay) stream(br *bufio.Reader, r io.Reader, size int64) error {
	buf := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(buf)
	var total int64
	for {
		if br.Buffered() == 0 {
			if err := y.push(); err != nil {
				return err
			}
		}
		n, err := r.Read(*buf)
		if n > 0 {
			total += int64(n)
			if err := y.write((*buf)[:n]); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			if total < size {
				return io.ErrUnexpectedEOF
			}
			return nil
		case err != nil:
			return err
		case total == size:
			return nil
		}
	}
}

func (y *relay) write(p []byte) error {
	n, err := y.w.Write(p)
	y.sent += int64(n)
	y.waits = true
	if err != nil {
		return clientWriteError{err}
	}
	return nil
}

func (y *relay) push() error {
	if !y.waits {
		return nil
	}
	y.waits = false
	if err := y.w.FlushError(); err != nil {
		return clientWriteError{err}
	}
	return nil
}
