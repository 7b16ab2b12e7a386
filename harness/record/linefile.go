package record

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// file is what a lineFile needs of an *os.File; tests put a full disk there.
type file interface {
	io.WriteCloser
	Sync() error
}

// createFile makes a file that must not exist yet.
func createFile(path string) (file, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
}

// maxPending is how many bytes may wait for the next flush; whoever adds more
// writes them out. So memory is bounded, and a load that is recorded live (a
// fifth of this per flush at 5000 requests per second) never waits for a disk.
const maxPending = 1 << 20

// lineFile is an append-only file of lines that any goroutine may add to. The
// first failure to write is kept, and everything after it dropped: an attack
// must not stumble over its own record.
type lineFile struct {
	writing sync.Mutex // held while writing, so that batches stay in order
	file    file
	zip     *zstd.Encoder // nil for a plain file
	spare   []byte

	mu      sync.Mutex
	pending []byte
	err     error
	closed  bool
}

func newLineFile(f file) *lineFile { return &lineFile{file: f} }

// newZstdFile makes a lineFile that is compressed in one frame; each flush
// ends a block, up to which a reader can read.
func newZstdFile(f file) (*lineFile, error) {
	zip, err := zstd.NewWriter(f,
		zstd.WithEncoderConcurrency(1), // a few kB per flush: goroutines cost more than they save
		zstd.WithWindowSize(1<<20),
		zstd.WithZeroFrames(true)) // an empty file is a torn one, a frame without lines is not
	if err != nil {
		return nil, err
	}
	return &lineFile{file: f, zip: zip}, nil
}

// addJSON appends v as one line.
func (l *lineFile) addJSON(v any) {
	text, err := json.Marshal(v)
	if err != nil {
		l.fail(err)
		return
	}
	l.add(text)
}

// add appends a line, given without its newline.
func (l *lineFile) add(line []byte) {
	l.mu.Lock()
	if l.err != nil || l.closed {
		l.mu.Unlock()
		return
	}
	l.pending = append(append(l.pending, line...), '\n')
	full := len(l.pending) >= maxPending
	l.mu.Unlock()
	if full {
		l.flush()
	}
}

// flush writes what is pending to the file.
func (l *lineFile) flush() {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	batch := l.pending
	l.pending = l.spare[:0]
	failed := l.err != nil
	l.mu.Unlock()
	l.spare = batch
	if len(batch) == 0 || failed {
		return
	}
	if err := l.write(batch); err != nil {
		l.fail(err)
	}
}

func (l *lineFile) write(batch []byte) error {
	if l.zip == nil {
		_, err := l.file.Write(batch)
		return err
	}
	if _, err := l.zip.Write(batch); err != nil {
		return err
	}
	return l.zip.Flush()
}

// fail keeps the first failure.
func (l *lineFile) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
	}
}

func (l *lineFile) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// close writes what is left and returns the first failure of the file's life.
// Lines added later are dropped.
func (l *lineFile) close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.flush()
	l.writing.Lock()
	defer l.writing.Unlock()
	var errs []error
	if l.zip != nil {
		errs = append(errs, l.zip.Close())
	}
	errs = append(errs, l.file.Sync(), l.file.Close())
	if err := errors.Join(errs...); err != nil {
		l.fail(err)
	}
	return l.failure()
}
