package proxy

import (
	"bufio"
	"errors"
	"io"
	"net/http/httputil"
	"sync"
)

// copyBuffers are for bodies that do not fit in a connection's own buffer.
var copyBuffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

// relay passes a response's body on. What has come is sent on before it waits
// for more: the client sees every byte as soon as the load balancer does.
type relay struct {
	to   stream
	sent int64
}

func (y *relay) run(br *bufio.Reader, p *responseHead) error {
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
	if err := y.to.write(p); err != nil {
		return clientWriteError{err}
	}
	y.sent += int64(len(p))
	return nil
}

func (y *relay) push() error {
	if err := y.to.flush(); err != nil {
		return clientWriteError{err}
	}
	return nil
}
