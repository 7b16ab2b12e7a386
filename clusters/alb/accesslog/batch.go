package accesslog

import (
	"fmt"
	"os"
	"sync"
	"time"
)

// batch is one log file. Lines are gathered and written together: the first one
// after a quiet period at once, the others when the flush interval since the
// last write is over.
type batch struct {
	interval time.Duration
	failed   func(error) // told of the first failure to write

	mu      sync.Mutex
	buf     []byte
	last    time.Time // of the last write
	armed   bool
	timer   *time.Timer
	closed  bool
	dropped bool

	write sync.Mutex // held while file is written; never taken under mu
	spare []byte     // guarded by write
	file  *os.File
}

func openBatch(path string, interval time.Duration, failed func(error)) (*batch, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	return &batch{interval: interval, failed: failed, file: f}, nil
}

// add takes one line, which line appends to what it is given.
func (a *batch) add(line func([]byte) []byte) {
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return
	}
	a.buf = line(a.buf)
	flush := false
	if !a.armed {
		wait := a.interval - time.Since(a.last)
		if wait <= 0 {
			flush = true
		} else {
			a.armed = true
			if a.timer == nil {
				a.timer = time.AfterFunc(wait, a.flush)
			} else {
				a.timer.Reset(wait)
			}
		}
	}
	a.mu.Unlock()
	if flush {
		a.flush()
	}
}

// flush writes what has been gathered. Requests go on meanwhile: they wait for
// mu only, which is not held while the disk works.
func (a *batch) flush() {
	a.write.Lock()
	defer a.write.Unlock()
	a.mu.Lock()
	out := a.buf
	a.buf, a.spare = a.spare[:0], nil
	a.armed = false
	a.last = time.Now()
	a.mu.Unlock()
	if len(out) > 0 && a.file != nil {
		if _, err := a.file.Write(out); err != nil && !a.dropped {
			a.dropped = true
			a.failed(fmt.Errorf("write log: %w: lines are lost", err))
		}
	}
	a.spare = out
}

// close writes the rest. Lines added later are dropped.
func (a *batch) close() error {
	a.mu.Lock()
	a.closed = true
	if a.timer != nil {
		a.timer.Stop()
	}
	a.mu.Unlock()
	a.flush()
	a.write.Lock()
	defer a.write.Unlock()
	if a.file == nil {
		return nil
	}
	err := a.file.Close()
	a.file = nil
	return err
}
