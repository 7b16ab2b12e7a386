package record

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"lameduck/harness"
)

// Resumption is one time at which an interrupted run was taken up again.
type Resumption struct {
	ID      string `json:"id"`      // of the run from then on, as Run.ID
	Tool    string `json:"tool"`    // version of lameduck
	Started string `json:"started"` // RFC 3339
	// Differs says what of the environment is not as in run.json, a sentence each.
	Differs []string `json:"differs,omitempty"`
}

// Reopen opens a run to complete it. Until the Store's Finish or Close no other
// process can write it. Nothing is changed before Resume.
func Reopen(dir string) (*Store, *Reader, error) {
	lock, err := lockDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("open run: %w: give the directory of one run", err)
	} else if err != nil {
		return nil, nil, err
	}
	r, err := Open(dir)
	if err == nil && r.Run.Schema < harness.SchemaVersion {
		err = fmt.Errorf("run %s has format %d, which can be read but not resumed: start it anew", dir, r.Run.Schema)
	}
	if err == nil {
		err = Preflight(dir)
	}
	if err != nil {
		lock.Close()
		return nil, nil, err
	}
	return &Store{dir: dir, create: createFile, lock: lock}, r, nil
}

// Remaining are the attempts that the run still needs, as a run of their own
// with the given ID: trials without a result, then further attempts of invalid
// ones.
func (r *Reader) Remaining(runID string) []harness.Trial {
	var first, further []harness.Trial
	for i, t := range r.Trials {
		if i+1 < len(r.Trials) && r.Trials[i+1].Number == t.Number {
			continue // there is a later attempt
		}
		next := t.Trial
		next.RunID = runID
		switch {
		case t.State() != Complete:
		case t.Result.Verdict == harness.VerdictInvalid && t.Attempt < harness.MaxAttempts:
			next.Attempt++
		default:
			continue
		}
		if next.Attempt == 1 {
			first = append(first, next)
		} else {
			further = append(further, next)
		}
	}
	return append(first, further...)
}

// Resume notes that the run goes on, and moves the records of trials that were
// cut off out of the way.
func (s *Store) Resume(r *Reader, on Resumption) error {
	for _, t := range r.Trials {
		if t.State() != Incomplete {
			continue
		}
		if err := s.setAside(filepath.Base(t.Dir)); err != nil {
			return fmt.Errorf("set the record of a cut off trial aside: %w", err)
		}
	}
	return writeJSON(filepath.Join(s.dir, resumedFile), append(r.Resumed, on))
}

// maxCutOff bounds how often one trial can be cut off.
const maxCutOff = 1000

// setAside moves a trial's directory to those that were cut off, under a name
// that is free there.
func (s *Store) setAside(name string) error {
	parent := filepath.Join(s.dir, cutOffDir)
	if err := os.Mkdir(parent, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	to := filepath.Join(parent, name)
	for n := 2; ; n++ {
		_, err := os.Lstat(to)
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil || n > maxCutOff {
			return errors.Join(err, fmt.Errorf("no name is free for %s in %s", name, parent))
		}
		to = filepath.Join(parent, fmt.Sprintf("%s.%d", name, n))
	}
	return os.Rename(filepath.Join(s.dir, name), to)
}
