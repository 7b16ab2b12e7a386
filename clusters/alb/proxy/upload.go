package proxy

import (
	"errors"
	"io"
	"strconv"
	"sync/atomic"
	"time"
)

// upload sends a request's body to the target while the exchange waits for
// the answer, which may come before the body is complete.
type upload struct {
	from    stream
	body    io.Reader
	conn    *targetConn
	chunked bool

	bytes    atomic.Int64
	reading  atomic.Bool // from the client, as opposed to writing to the target
	complete bool        // valid after done
	done     chan struct{}
}

func startUpload(from stream, chunked bool, c *targetConn) *upload {
	u := &upload{from: from, body: from.body(), conn: c, chunked: chunked, done: make(chan struct{})}
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
	room := (*buf)[chunkRoom : len(*buf)-len("\r\n")]
	for {
		u.reading.Store(true)
		n, err := u.body.Read(room)
		failed := err != nil && !errors.Is(err, io.EOF)
		u.reading.Store(failed) // then still, so that the client gets the blame
		if n > 0 {
			u.bytes.Add(int64(n))
			out := room[:n]
			if u.chunked {
				out = frameChunk(*buf, n)
			}
			if _, err := u.conn.Write(out); err != nil {
				return false
			}
		}
		if err == nil {
			continue
		}
		if failed {
			u.conn.cancel(bodyCause(err))
			return false
		}
		if !u.chunked {
			return true
		}
		_, err = u.conn.Write([]byte(lastChunk))
		return err == nil
	}
}

const (
	chunkRoom = len("ffffffff\r\n") // in front of a chunk's bytes
	lastChunk = "0\r\n\r\n"         // without trailers
)

// frameChunk makes one chunk of the n bytes at buf[chunkRoom:], in place, so
// that it takes one write.
func frameChunk(buf []byte, n int) []byte {
	var size [chunkRoom]byte
	head := append(strconv.AppendUint(size[:0], uint64(n), 16), "\r\n"...)
	start := chunkRoom - len(head)
	copy(buf[start:], head)
	copy(buf[chunkRoom+n:], "\r\n")
	return buf[start : chunkRoom+n+len("\r\n")]
}

// doneSoon is how long the answer to a complete request may be here before the
// goroutine that has sent the request says so.
const doneSoon = 20 * time.Millisecond

// isDoneSoon waits a moment.
func (u *upload) isDoneSoon() bool {
	wait := time.NewTimer(doneSoon)
	defer wait.Stop()
	select {
	case <-u.done:
		return true
	case <-wait.C:
		return false
	}
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
		u.from.stopReading()
		<-u.done
	}
	return u.complete
}
