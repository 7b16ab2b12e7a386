package proxy

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// copyBuffers are for bodies that do not fit in a connection's own buffer.
var copyBuffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

// upload sends a request's body to the target while the exchange waits for
// the answer, which may come before the body is complete.
type upload struct {
	body    io.Reader
	client  *http.ResponseController
	idle    time.Duration
	conn    *targetConn
	chunked bool

	bytes    atomic.Int64
	reading  atomic.Bool // from the client, as opposed to writing to the target
	complete bool        // valid after done
	done     chan struct{}
}

func startUpload(r *http.Request, client *http.ResponseController, c *targetConn, idle time.Duration) *upload {
	u := &upload{body: r.Body, client: client, idle: idle, conn: c, chunked: r.ContentLength < 0, done: make(chan struct{})}
	go func() {
		defer close(u.done)
		u.complete = u.run()
	}()
	return u
}

// run ends when the body has been sent. A failure of the client cancels the
// exchange; a failure of the target is left to the exchange, which reads: the
// target may have answered before it stopped reading.
func (u *upload) run() bool {
	buf := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(buf)
	var out io.Writer = u.conn
	var chunks io.WriteCloser
	if u.chunked {
		chunks = httputil.NewChunkedWriter(u.conn)
		out = chunks
	}
	for {
		if err := u.client.SetReadDeadline(time.Now().Add(u.idle)); err != nil {
			u.conn.cancel(errClientGone)
			return false
		}
		u.reading.Store(true)
		n, err := u.body.Read(*buf)
		u.reading.Store(false)
		if n > 0 {
			u.bytes.Add(int64(n))
			u.conn.touch()
			if _, err := out.Write((*buf)[:n]); err != nil {
				return false
			}
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, io.EOF) {
			u.conn.cancel(bodyCause(err))
			return false
		}
		// From here on http.Server reads to notice that the client goes
		// away; a deadline left behind would look like that.
		if err := u.client.SetReadDeadline(time.Time{}); err != nil {
			u.conn.cancel(errClientGone)
			return false
		}
		if chunks == nil {
			return true
		}
		if err := chunks.Close(); err != nil {
			return false
		}
		_, err = u.conn.Write([]byte("\r\n")) // no trailers
		return err == nil
	}
}

// bodyCause tells a client that went away from one that sent nonsense.
func bodyCause(err error) *causeError {
	var errno syscall.Errno
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errClientIdle
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed), errors.As(err, &errno):
		return errClientGone
	}
	return errClientBody
}

// isDone does not wait.
func (u *upload) isDone() bool {
	select {
	case <-u.done:
		return true
	default:
		return false
	}
}

// stop ends an upload whose answer is complete, and says whether it was sent
// in full. The target connection must be closed first if it is to be given up.
func (u *upload) stop() bool {
	if !u.isDone() {
		// Wakes a read from the client. What it still sends is read and
		// dropped by http.Server, within its own bound, so that the answer
		// reaches a client that sends first and reads later.
		_ = u.client.SetReadDeadline(time.Unix(1, 0)) // fails only if there is no one to read from
		<-u.done
		_ = u.client.SetReadDeadline(time.Now().Add(u.idle)) // as above
	}
	return u.complete
}
