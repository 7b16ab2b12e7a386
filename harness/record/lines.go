package record

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"

	"lameduck/harness"
)

// maxLine bounds a line, so that a damaged file cannot take all memory.
const maxLine = 1 << 20

// Requests gives every request of the trial to each, in the order in which
// they were recorded, and holds none. What each returns as an error ends it. A
// torn end is a warning; garbage before it is an error with file and line. A
// trial that was never started has none.
func (t Trial) Requests(each func(harness.Request) error) ([]Warning, error) {
	return t.read(requestsFile, func(line []byte) error {
		var r harness.Request
		if err := json.Unmarshal(line, &r); err != nil {
			return err
		}
		if r.Outcome == "" {
			return errors.New("a request without an outcome")
		}
		return stop(each(r))
	})
}

// Events gives every event of the trial to each, like Requests.
func (t Trial) Events(each func(harness.Event) error) ([]Warning, error) {
	return t.read(eventsFile, func(line []byte) error {
		var e harness.Event
		if err := json.Unmarshal(line, &e); err != nil {
			return err
		}
		if e.Kind == "" {
			return errors.New("an event without a kind")
		}
		return stop(each(e))
	})
}

// Log gives every line of a log (one of harness's Log constants) to
// each, like Requests. The line is valid until each returns.
func (t Trial) Log(log string, each func(line []byte) error) ([]Warning, error) {
	return t.read(log+logSuffix, func(line []byte) error { return stop(each(line)) })
}

// stopped is an error of the caller's, as opposed to one of the file's.
type stopped struct{ error }

func stop(err error) error {
	if err != nil {
		return stopped{err}
	}
	return nil
}

func (t Trial) read(name string, each func([]byte) error) ([]Warning, error) {
	if t.Dir == "" {
		return nil, nil
	}
	path := filepath.Join(t.Dir, name)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) && t.State() == Incomplete {
		// Killed after its directory was made and before its files were.
		return []Warning{{File: filepath.Join(filepath.Base(t.Dir), name), Text: "the run was stopped before this file was made"}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open record of trial %d: %w", t.Number, err)
	}
	defer f.Close()
	scan := scanLines
	if filepath.Ext(name) == ".zst" {
		scan = scanZstd
	}
	torn, err := scan(f, each)
	var byCaller stopped
	if errors.As(err, &byCaller) {
		return nil, byCaller.error
	} else if err != nil {
		return nil, fmt.Errorf("%s:%w", path, err)
	}
	if torn != "" {
		return []Warning{{filepath.Join(filepath.Base(t.Dir), name), torn}}, nil
	}
	return nil, nil
}

// scanZstd is scanLines for a compressed file.
func scanZstd(r io.Reader, each func([]byte) error) (torn string, err error) {
	in := bufio.NewReader(r)
	if _, err := in.Peek(1); errors.Is(err, io.EOF) {
		// Even a file without lines has a header: this one was cut before it.
		return "the file is empty: nothing had been written when the record was cut off", nil
	}
	zip, err := zstd.NewReader(in, zstd.WithDecoderMaxMemory(256<<20))
	if err != nil {
		return "", lineError{1, err}
	}
	defer zip.Close()
	return scanLines(zip, each)
}

// lineError prints as LINE: ERROR, to follow a file's name.
type lineError struct {
	line int
	err  error
}

func (e lineError) Error() string { return fmt.Sprintf("%d: %s", e.line, e.err) }
func (e lineError) Unwrap() error { return e.err }

// scanLines gives each whole line, without its newline, to each. An end that
// is not a line's end says in torn what was left out; what each does not
// accept, and what can not be read, is a lineError.
func scanLines(r io.Reader, each func([]byte) error) (torn string, err error) {
	in := bufio.NewReaderSize(r, 64<<10)
	var long []byte // the beginning of a line that is longer than the buffer
	for number := 1; ; {
		part, err := in.ReadSlice('\n')
		line := part
		if len(long) > 0 || errors.Is(err, bufio.ErrBufferFull) {
			long = append(long, part...)
			line = long
		}
		switch {
		case len(line) > maxLine:
			return "", lineError{number, fmt.Errorf("longer than %d bytes", maxLine)}
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(line) == 0:
			return "", nil
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return fmt.Sprintf("the record was cut off in line %d; the %d lines before it are counted", number, number-1), nil
		case err != nil:
			return "", lineError{number, err}
		}
		if err := each(bytes.TrimSuffix(line, []byte("\n"))); err != nil {
			return "", lineError{number, err}
		}
		long = long[:0]
		number++
	}
}
