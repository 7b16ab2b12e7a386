package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"lameduck/harness"
)

// The files of a run directory.
const (
	runFile      = "run.json"
	endFile      = "end.json"
	resumedFile  = "resumed.json"
	cutOffDir    = "interrupted"
	trialFile    = "trial.json"
	requestsFile = "requests.jsonl.zst"
	eventsFile   = "events.jsonl"
	logSuffix    = ".jsonl"
)

// logs are the logs that a trial keeps beside requests and events.
var logs = []string{harness.LogLoadBalancer, harness.LogTargets, harness.LogApp}

// timeLayout starts the name of a run directory, so that names sort by time.
const timeLayout = "20060102T150405Z"

// Store is a run directory that is being written. It implements
// harness.Store; trials may be recorded in parallel.
type Store struct {
	dir    string
	create func(path string) (file, error)
	lock   *os.File // nil: released
}

// Create makes the directory of a run below parent, which is made too if it is
// not there, and writes run.json. It fails where Preflight does, when
// run.Started is no RFC 3339 time and when the directory is there already.
func Create(parent string, run harness.Run) (*Store, error) {
	started, err := time.Parse(time.RFC3339, run.Started)
	if err != nil {
		return nil, fmt.Errorf("start of the run: %w", err)
	}
	if err := Preflight(parent); err != nil {
		return nil, err
	}
	dir := filepath.Join(parent, started.UTC().Format(timeLayout)+"-"+fileName(run.Experiment.Name))
	if err := os.Mkdir(dir, 0o755); errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("run directory %s is there already: wait a second and start again, or choose another parent", dir)
	} else if err != nil {
		return nil, fmt.Errorf("make run directory: %w", err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	run.Schema = harness.SchemaVersion
	if err := writeJSON(filepath.Join(dir, runFile), run); err != nil {
		lock.Close()
		return nil, err
	}
	return &Store{dir: dir, create: createFile, lock: lock}, nil
}

// Dir is the path of the run directory.
func (s *Store) Dir() string { return s.dir }

// Create implements harness.Store.
func (s *Store) Create(t harness.Trial) (harness.TrialRecord, error) {
	dir := filepath.Join(s.dir, trialDir(t))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make trial directory: %w", err)
	}
	return newTrialRecord(dir, s.create)
}

// Finish implements harness.Store. The run may then be resumed by another
// process.
func (s *Store) Finish(end harness.RunEnd) error {
	return errors.Join(writeJSON(filepath.Join(s.dir, endFile), end), s.Close())
}

// Close lets others write the run. Finish does so too.
func (s *Store) Close() error {
	if s.lock == nil {
		return nil
	}
	lock := s.lock
	s.lock = nil
	return lock.Close()
}

// trialDir is the name of a trial's directory: 0007-..., or 0007.2-... for its
// second attempt. The numbers make it unique and are what a reader goes by; the
// rest is for people.
func trialDir(t harness.Trial) string {
	number := fmt.Sprintf("%04d", t.Number)
	if t.Attempt > 1 {
		number += fmt.Sprintf(".%d", t.Attempt)
	}
	c := t.Cell
	parts := []string{c.Scenario, string(c.TargetType), c.Mitigation, string(c.Connections)}
	if c.Faults != "" {
		parts = append(parts, c.Faults)
	}
	return number + "-" + fileName(strings.Join(parts, "-"))
}

// parseTrialDir reads what trialDir has written.
func parseTrialDir(name string) (number, attempt int, err error) {
	numbers, _, _ := strings.Cut(name, "-")
	first, again, repeated := strings.Cut(numbers, ".")
	if number, err = strconv.Atoi(first); err != nil || !repeated {
		return number, 1, err
	}
	attempt, err = strconv.Atoi(again)
	if err == nil && (attempt < 2 || attempt > harness.MaxAttempts) {
		err = fmt.Errorf("attempt %d: want 2..%d", attempt, harness.MaxAttempts)
	}
	return number, attempt, err
}

// fileName replaces what does not belong into the name of a file.
func fileName(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("._-", r):
			return r
		}
		return '_'
	}, s)
}

// writeJSON writes v to path so that the file, once there, is whole and stays.
func writeJSON(path string, v any) (err error) {
	name := filepath.Base(path)
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+name+"-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
			err = fmt.Errorf("write %s: %w", name, err)
		}
	}()
	_, err = f.Write(append(text, '\n'))
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes a rename in dir survive a power cut.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
