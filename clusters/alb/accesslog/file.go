package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	// maxPending is how much may wait for a disk that does not take it, in bytes.
	maxPending = 16 << 20
	// early is how much is written without waiting for the interval, in bytes.
	early = 256 << 10
	// keepBuffer is how large a buffer may be to be used again, in bytes.
	keepBuffer = 1 << 20
	// closeTimeout is how long closing waits for a disk.
	closeTimeout = 5 * time.Second
)

// file is one log file. What is added is gathered and written together by a
// goroutine of its own: the first after a quiet period at once, the others when
// the interval since the last write is over or there are many. So a slow disk holds up nobody, a
// full one loses lines, and one that hangs loses them from maxPending on; the
// first loss is told to failed.
type file struct {
	interval time.Duration
	limit    int
	failed   func(error)
	report   sync.Once

	mu      sync.Mutex
	pending []byte
	closed  bool

	wake chan struct{} // has room for one: something is pending, or closed
	full chan struct{} // has room for one: early bytes are pending
	stop chan struct{} // closed by close: no more intervals
	done chan struct{} // closed when the writer has ended

	out  output // the writer's from here on
	size int64  // up to the last complete write
	err  error  // of closing
}

// output is the part of os.File that is used.
type output interface {
	Write([]byte) (int, error)
	Truncate(size int64) error
	Close() error
}

// openFile appends to the file, so that an Ingress that is created again keeps
// its history.
func openFile(path string, interval time.Duration, failed func(error)) (*file, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make log directory: %w", err)
	}
	out, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	size, err := completeLines(out)
	if err == nil {
		err = out.Truncate(size) // what a process that was killed has left of a line
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open log: %w", err), out.Close())
	}
	return newFile(out, size, maxPending, interval, failed), nil
}

// completeLines is the size of a file up to its last newline.
func completeLines(f *os.File) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	block := make([]byte, 4<<10)
	for end := info.Size(); end > 0; {
		start := max(0, end-int64(len(block)))
		part := block[:end-start]
		if _, err := f.ReadAt(part, start); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(part, '\n'); i >= 0 {
			return start + int64(i) + 1, nil
		}
		end = start
	}
	return 0, nil
}

func newFile(out output, size int64, limit int, interval time.Duration, failed func(error)) *file {
	f := &file{
		interval: interval, limit: limit, failed: failed, out: out, size: size,
		wake: make(chan struct{}, 1), full: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	go f.write()
	return f
}

// add takes complete lines. It does not keep b.
func (f *file) add(b []byte) {
	f.mu.Lock()
	switch {
	case f.closed:
	case len(f.pending)+len(b) > f.limit:
		f.lost(fmt.Errorf("write log: the disk does not keep up with it, %d bytes wait", len(f.pending)))
	default:
		before := len(f.pending)
		f.pending = append(f.pending, b...)
		if before == 0 {
			signal(f.wake)
		}
		if before < early && len(f.pending) >= early {
			signal(f.full)
		}
	}
	f.mu.Unlock()
}

// addLine takes a line without its newline.
func (f *file) addLine(line []byte) { f.add(append(line[:len(line):len(line)], '\n')) }

// signal leaves a token in a channel with room for one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// lost reports that lines are lost, once, to somebody who may take their time.
func (f *file) lost(err error) {
	f.report.Do(func() { go f.failed(fmt.Errorf("%w: lines are lost", err)) })
}

// write is the writer. It has one buffer while add fills the other.
func (f *file) write() {
	defer close(f.done)
	var spare []byte
	pause := time.NewTimer(f.interval)
	pause.Stop()
	for {
		<-f.wake
		f.mu.Lock()
		out, last := f.pending, f.closed
		f.pending = spare[:0]
		f.mu.Unlock()
		f.flush(out)
		if spare = out; cap(out) > keepBuffer {
			spare = nil
		}
		if last {
			f.err = f.out.Close()
			return
		}
		if f.interval > 0 {
			pause.Reset(f.interval)
			select {
			case <-pause.C:
			case <-f.full:
			case <-f.stop:
			}
		}
	}
}

// flush writes lines. Those that do not fit are lost, and so is the part of
// them that did: half a line would spoil the next one.
func (f *file) flush(lines []byte) {
	if len(lines) == 0 {
		return
	}
	n, err := f.out.Write(lines)
	if err == nil {
		f.size += int64(n)
		return
	}
	if n > 0 {
		err = errors.Join(err, f.out.Truncate(f.size))
	}
	f.lost(fmt.Errorf("write log: %w", err))
}

// close writes the rest, unless the disk hangs. Lines added later are dropped.
func (f *file) close() error {
	f.mu.Lock()
	again := f.closed
	f.closed = true
	f.mu.Unlock()
	if !again {
		close(f.stop)
		signal(f.wake)
	}
	select {
	case <-f.done:
	case <-time.After(closeTimeout):
		return fmt.Errorf("close log: the disk did not take it within %s", closeTimeout)
	}
	if f.err != nil {
		return fmt.Errorf("close log: %w", f.err)
	}
	return nil
}
