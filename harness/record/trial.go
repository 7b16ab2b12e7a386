package record

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"lameduck/harness"
)

// flushEvery bounds what a kill -9 can lose.
const flushEvery = 250 * time.Millisecond

// trialRecord is one trial that is being written. It implements
// harness.TrialRecord.
type trialRecord struct {
	dir      string
	requests *lineFile
	events   *lineFile
	logs     map[string]*lineFile
	stop     chan struct{}
	flusher  sync.WaitGroup

	mu     sync.Mutex
	closed bool
	err    error // a failure that belongs to no file
}

func newTrialRecord(dir string, create func(string) (file, error)) (*trialRecord, error) {
	t := &trialRecord{dir: dir, logs: make(map[string]*lineFile), stop: make(chan struct{})}
	var opened []file
	open := func(name string) (file, error) {
		f, err := create(filepath.Join(dir, name))
		if err != nil {
			return nil, fmt.Errorf("create %s: %w", name, err)
		}
		opened = append(opened, f)
		return f, nil
	}
	err := func() error {
		f, err := open(requestsFile)
		if err != nil {
			return err
		}
		if t.requests, err = newZstdFile(f); err != nil {
			return err
		}
		if f, err = open(eventsFile); err != nil {
			return err
		}
		t.events = newLineFile(f)
		for _, log := range logs {
			if f, err = open(log + logSuffix); err != nil {
				return err
			}
			t.logs[log] = newLineFile(f)
		}
		return nil
	}()
	if err != nil {
		for _, f := range opened {
			f.Close()
		}
		return nil, err
	}
	t.flusher.Go(t.flushUntilStopped)
	return t, nil
}

// named are all files of the trial, in a fixed order.
func (t *trialRecord) named() (names []string, files []*lineFile) {
	names, files = []string{requestsFile, eventsFile}, []*lineFile{t.requests, t.events}
	for _, log := range logs {
		names, files = append(names, log+logSuffix), append(files, t.logs[log])
	}
	return names, files
}

func (t *trialRecord) flushUntilStopped() {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	_, files := t.named()
	for {
		select {
		case <-t.stop:
			return
		case <-tick.C:
			for _, f := range files {
				f.flush()
			}
		}
	}
}

// Request implements harness.Recorder.
func (t *trialRecord) Request(r harness.Request) { t.requests.addJSON(r) }

// Event implements harness.Recorder.
func (t *trialRecord) Event(e harness.Event) { t.events.addJSON(e) }

// Log implements harness.Recorder. A log that is not known is a failure of the
// record, because its lines would be missed later.
func (t *trialRecord) Log(log string, line []byte) {
	f, ok := t.logs[log]
	if !ok {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.err == nil {
			t.err = fmt.Errorf("log %q: want one of %q", log, logs)
		}
		return
	}
	f.add(bytes.TrimSuffix(line, []byte("\n")))
}

// Err implements harness.TrialRecord.
func (t *trialRecord) Err() error {
	t.mu.Lock()
	err := t.err
	t.mu.Unlock()
	if err != nil {
		return err
	}
	names, files := t.named()
	for i, f := range files {
		if err := f.failure(); err != nil {
			return fmt.Errorf("write %s: %w", names[i], err)
		}
	}
	return nil
}

// Finish implements harness.TrialRecord.
func (t *trialRecord) Finish(result harness.TrialResult) error {
	if err := t.close(); err != nil {
		return err
	}
	return writeJSON(filepath.Join(t.dir, trialFile), result)
}

// Abandon implements harness.TrialRecord.
func (t *trialRecord) Abandon() error { return t.close() }

// close flushes and closes every file and returns the first failure.
func (t *trialRecord) close() error {
	t.mu.Lock()
	again := t.closed
	t.closed = true
	t.mu.Unlock()
	if again {
		return errors.New("the trial's record is closed already")
	}
	close(t.stop)
	t.flusher.Wait()
	_, files := t.named()
	for _, f := range slices.Backward(files) {
		f.close() // its failure is part of Err
	}
	return t.Err()
}
