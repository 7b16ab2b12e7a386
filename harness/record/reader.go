package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"lameduck/harness"
)

// Reader is a run directory that is read.
type Reader struct {
	Dir string
	Run harness.Run
	// End is nil when the run was cut off before it could say how it ended.
	End *harness.RunEnd
	// Trials has every trial of the plan, in the plan's order, and behind an
	// invalid one its further attempts.
	Trials []Trial
	// Resumed are the times at which the run was taken up again.
	Resumed []Resumption
	// CutOff are the directories of trials that were cut off before that. They
	// are kept, but not read.
	CutOff []fs.DirEntry
	// Warnings are about the directory as a whole.
	Warnings []Warning
}

// Complete says whether the run went through to its end.
func (r *Reader) Complete() bool { return r.End != nil && r.End.Complete }

// Trial is one attempt of a planned trial and what there is of it. Its Attempt
// is 1 or more, also in a record of format 1.
type Trial struct {
	harness.Trial
	// Dir is empty when the trial was never started.
	Dir string
	// Result is nil unless the trial is complete.
	Result *harness.TrialResult
}

// State of a trial's record.
type State string

// The states.
const (
	NotStarted State = "not started"
	Incomplete State = "incomplete" // there is a record, but no result
	Complete   State = "complete"
)

// State says what there is of the trial.
func (t Trial) State() State {
	switch {
	case t.Dir == "":
		return NotStarted
	case t.Result == nil:
		return Incomplete
	}
	return Complete
}

// Warning is something wrong with a record that does not keep it from being
// read. It has to be shown with whatever is computed from the record.
type Warning struct {
	File string // relative to the run directory
	Text string
}

func (w Warning) String() string { return w.File + ": " + w.Text }

// ErrNewer is the error for a record that this version cannot read.
var ErrNewer = errors.New("written by a newer lameduck")

// Open reads a run directory's run.json, end.json and every trial.json. A
// directory without a readable run.json is an error, and so is a format that
// is newer than harness.SchemaVersion (ErrNewer).
func Open(dir string) (*Reader, error) {
	r := &Reader{Dir: dir}
	text, err := os.ReadFile(filepath.Join(dir, runFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open run: %w: give the directory of one run", err)
	} else if err != nil {
		return nil, fmt.Errorf("open run: %w", err)
	}
	// The version first: the rest of a newer one may not even decode.
	var head struct {
		Schema int    `json:"schema"`
		Tool   string `json:"tool"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return nil, fmt.Errorf("open run: %s: %w", filepath.Join(dir, runFile), err)
	}
	switch {
	case head.Schema < 1:
		return nil, fmt.Errorf("open run: %s has no schema number: it is not the record of a run", filepath.Join(dir, runFile))
	case head.Schema > harness.SchemaVersion:
		return nil, fmt.Errorf("open run: %s: %w: version %s wrote format %d, this one reads up to %d: use that version, or a later one",
			dir, ErrNewer, head.Tool, head.Schema, harness.SchemaVersion)
	}
	if err := json.Unmarshal(text, &r.Run); err != nil {
		return nil, fmt.Errorf("open run: %s: %w", filepath.Join(dir, runFile), err)
	}
	if r.End, err = readJSON[harness.RunEnd](filepath.Join(dir, endFile)); err != nil {
		return nil, fmt.Errorf("open run: %w", err)
	}
	resumed, err := readJSON[[]Resumption](filepath.Join(dir, resumedFile))
	if err != nil {
		return nil, fmt.Errorf("open run: %w", err)
	}
	if resumed != nil {
		r.Resumed = *resumed
	}
	if err := r.findTrials(); err != nil {
		return nil, fmt.Errorf("open run: %w", err)
	}
	return r, nil
}

// findTrials joins the plan with the directories, by the trial's number.
func (r *Reader) findTrials() error {
	dirs, err := r.trialDirs()
	if err != nil {
		return err
	}
	seen := make(map[int]bool)
	for _, planned := range r.Run.Plan.Trials {
		if seen[planned.Number] {
			return fmt.Errorf("%s: trial %d is planned twice", filepath.Join(r.Dir, runFile), planned.Number)
		}
		seen[planned.Number] = true
		for attempt := 1; attempt <= harness.MaxAttempts; attempt++ {
			planned.Attempt = attempt
			name, started := dirs[trialKey{planned.Number, attempt}]
			if !started && attempt > 1 {
				continue
			}
			t := Trial{Trial: planned}
			if started {
				if err := t.readResult(filepath.Join(r.Dir, name)); err != nil {
					return err
				}
			}
			r.Trials = append(r.Trials, t)
		}
	}
	return nil
}

// trialKey is what tells a trial's directory from others.
type trialKey struct{ number, attempt int }

// trialDirs finds the directories of planned trials, and those of trials that
// were cut off before the run was resumed.
func (r *Reader) trialDirs() (map[trialKey]string, error) {
	entries, err := os.ReadDir(r.Dir)
	if err != nil {
		return nil, err
	}
	dirs := make(map[trialKey]string)
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		if entry.Name() == cutOffDir {
			if r.CutOff, err = os.ReadDir(filepath.Join(r.Dir, cutOffDir)); err != nil {
				return nil, err
			}
			continue
		}
		number, attempt, err := parseTrialDir(entry.Name())
		key := trialKey{number, attempt}
		planned := err == nil && slices.ContainsFunc(r.Run.Plan.Trials, func(t harness.Trial) bool { return t.Number == number })
		if !planned || dirs[key] != "" {
			r.Warnings = append(r.Warnings, Warning{entry.Name(), "is not the directory of a planned trial; it is left out"})
			continue
		}
		dirs[key] = entry.Name()
	}
	return dirs, nil
}

// readResult reads a trial's result, if there is one, from its directory.
func (t *Trial) readResult(dir string) (err error) {
	t.Dir = dir
	path := filepath.Join(dir, trialFile)
	if t.Result, err = readJSON[harness.TrialResult](path); err != nil || t.Result == nil {
		return err
	}
	if t.Result.Trial.Cell != t.Cell {
		return fmt.Errorf("%s: is about the cell %q, but the plan's trial %d is about %q", path, t.Result.Trial.Cell, t.Number, t.Cell)
	}
	t.Result.Trial.Attempt = max(1, t.Result.Trial.Attempt) // format 1 has none
	if t.Result.Trial.Attempt != t.Attempt {
		return fmt.Errorf("%s: is about attempt %d, but its directory is that of attempt %d", path, t.Result.Trial.Attempt, t.Attempt)
	}
	return nil
}

// readJSON reads a file that was written by rename; nil if it is not there.
func readJSON[T any](path string) (*T, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	v := new(T)
	if err := json.Unmarshal(text, v); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return v, nil
}

// Latest returns the directory of the newest run below parent.
func Latest(parent string) (string, error) {
	entries, err := os.ReadDir(parent) // sorted by name, and names begin with the time
	if err != nil {
		return "", fmt.Errorf("find the latest run: %w", err)
	}
	for _, entry := range slices.Backward(entries) {
		dir := filepath.Join(parent, entry.Name())
		if _, err := os.Stat(filepath.Join(dir, runFile)); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("find the latest run: there is none in %s", parent)
}
