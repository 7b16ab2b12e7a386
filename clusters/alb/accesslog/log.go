package accesslog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Log is what is written of one Ingress's load balancer, below the log
// directory:
//
//	<namespace>/<ingress>.jsonl          the side log: a Line per request
//	<namespace>/<ingress>.log            the access log of an ALB
//	<namespace>/<ingress>.targets.jsonl  a line per change of a target's state
//
// A disk that is full or fails loses lines, which is said once per file; it
// never holds up a request.
type Log struct {
	side, access, targets *batch
	names                 names
}

// Open appends to the files, so that an Ingress that is created again keeps its
// history. Lines wait in memory for flush at most. failed is told of the first
// failure to write to each file.
func Open(dir, namespace, ingress string, flush time.Duration, failed func(error)) (*Log, error) {
	base := filepath.Join(dir, namespace, ingress)
	if err := os.MkdirAll(filepath.Dir(base), 0o755); err != nil {
		return nil, fmt.Errorf("make log directory: %w", err)
	}
	l := &Log{names: namesOf(namespace, ingress)}
	var err error
	for _, f := range []struct {
		to     **batch
		ending string
		flush  time.Duration
	}{{&l.side, ".jsonl", flush}, {&l.access, ".log", flush}, {&l.targets, ".targets.jsonl", 0}} {
		if *f.to, err = openBatch(base+f.ending, f.flush, failed); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	return l, nil
}

// Add implements Sink.
func (l *Log) Add(line *Line) {
	l.side.add(line.appendJSON)
	l.access.add(func(b []byte) []byte { return l.names.appendEntry(b, line) })
}

// Target writes one change of a target's state, at once. line is JSON without a
// newline.
func (l *Log) Target(line []byte) {
	l.targets.add(func(b []byte) []byte { return append(append(b, line...), '\n') })
}

// Close writes what waits and closes the files. Lines added later are dropped.
func (l *Log) Close() error {
	var errs []error
	for _, b := range []*batch{l.side, l.access, l.targets} {
		if b != nil {
			errs = append(errs, b.close())
		}
	}
	return errors.Join(errs...)
}
