package load

import (
	"bufio"
	"encoding/json"
	"io"
	"sync"
	"time"

	"lameduck/harness"
)

// The protocol between Process and Worker. The parent writes one
// harness.AttackSpec as a line of JSON to the worker's stdin and keeps it open;
// its end, also by the parent's death, ends the attack. The worker writes a
// message per line to its stdout: the requests as they end, and last the stats
// or an error.

// message has exactly one of its fields.
type message struct {
	Request *harness.Request     `json:"request,omitempty"`
	Stats   *harness.AttackStats `json:"stats,omitempty"`
	Error   string               `json:"error,omitempty"`
}

// flushEvery bounds what is lost with a worker that is killed, and how late the
// parent learns of a request.
const flushEvery = 50 * time.Millisecond

// messageWriter writes messages in a few large writes. Its first error stays.
type messageWriter struct {
	mu   sync.Mutex
	buf  *bufio.Writer
	json *json.Encoder
	err  error

	quit chan struct{}
	done sync.WaitGroup
}

func newMessageWriter(out io.Writer) *messageWriter {
	w := &messageWriter{buf: bufio.NewWriterSize(out, 1<<16), quit: make(chan struct{})}
	w.json = json.NewEncoder(w.buf)
	w.done.Go(func() {
		tick := time.NewTicker(flushEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				w.mu.Lock()
				w.keep(w.buf.Flush())
				w.mu.Unlock()
			case <-w.quit:
				return
			}
		}
	})
	return w
}

func (w *messageWriter) keep(err error) {
	if w.err == nil {
		w.err = err
	}
}

// write adds a message and returns the first error so far.
func (w *messageWriter) write(m message) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keep(w.json.Encode(m))
	return w.err
}

// close writes out what is left.
func (w *messageWriter) close() error {
	close(w.quit)
	w.done.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keep(w.buf.Flush())
	return w.err
}
