//go:build unix

package record

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"lameduck/harness"
)

// role makes the test binary play the writing process of a test.
const role = "LAMEDUCK_RECORD_TEST_ROLE"

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(role) {
	case "":
		os.Exit(m.Run())
	case "write forever":
		err = writeForever(os.Args[len(os.Args)-1])
	case "fill":
		err = fill(os.Args[len(os.Args)-1])
	}
	fmt.Println("error:", err)
	os.Exit(1)
}

// surelyWritten is how many requests writeForever has on disk when it says so.
const surelyWritten = 1000

// writeForever records requests, prints the run directory once some are on
// disk, and goes on until it is killed.
func writeForever(parent string) error {
	run := aRun()
	s, err := Create(parent, run)
	if err != nil {
		return err
	}
	rec, err := s.Create(run.Plan.Trials[0])
	if err != nil {
		return err
	}
	told := false
	deadline := time.Now().Add(time.Minute)
	for i := 0; time.Now().Before(deadline); i++ {
		rec.Request(aRequest(i))
		if i < surelyWritten || told {
			continue
		}
		time.Sleep(time.Millisecond) // until the flusher has written
		r, err := Open(s.Dir())
		if err != nil {
			return err
		}
		n := 0
		if _, err := r.Trials[0].Requests(func(harness.Request) error { n++; return nil }); err != nil {
			return err
		}
		if n >= surelyWritten {
			fmt.Println(s.Dir())
			told = true
		}
	}
	return errors.New("was not killed")
}

// child starts the test binary in a role, with one argument.
func child(t *testing.T, name, arg string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], arg)
	cmd.Env = append(os.Environ(), role+"="+name)
	cmd.Stderr = os.Stderr
	return cmd
}

// killedRun starts a run in another process and kills it in its first trial.
// before is called while it is written.
func killedRun(t *testing.T, before func(dir string)) (dir string) {
	t.Helper()
	cmd := child(t, "write forever", t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	dir = strings.TrimSpace(line)
	before(dir)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // says that it was killed
	return dir
}

func TestKilledWriterLeavesAReadableRecord(t *testing.T) {
	r, err := Open(killedRun(t, func(string) {}))
	if err != nil {
		t.Fatal(err)
	}
	if r.Complete() || r.End != nil || r.Trials[0].State() != Incomplete {
		t.Errorf("complete %t, end %v, trial %s", r.Complete(), r.End, r.Trials[0].State())
	}
	got, warnings := requests(t, r.Trials[0])
	if len(got) < surelyWritten || len(warnings) != 1 {
		t.Errorf("%d requests, want at least %d; warnings %v, want one", len(got), surelyWritten, warnings)
	}
	for i, q := range got {
		if q != aRequest(i) {
			t.Fatalf("request %d is %+v", i, q)
		}
	}
}

// A run that was killed is completed by another process, and not before it has
// ended.
func TestKilledRunIsResumed(t *testing.T) {
	dir := killedRun(t, func(dir string) {
		if _, _, err := Reopen(dir); err == nil || !strings.HasSuffix(err.Error(), "is being written by another process: wait for its end") {
			t.Errorf("while it is written: %v", err)
		}
	})
	s, r, err := Reopen(dir)
	if err != nil {
		t.Fatal(err)
	}
	remaining := r.Remaining("next")
	if len(remaining) != len(r.Run.Plan.Trials) {
		t.Fatalf("%d trials remain, want %d", len(remaining), len(r.Run.Plan.Trials))
	}
	if err := s.Resume(r, Resumption{ID: "next"}); err != nil {
		t.Fatal(err)
	}
	for _, trial := range remaining {
		attempted(t, s, trial, harness.VerdictPass, 2)
	}
	if err := s.Finish(harness.RunEnd{Complete: true}); err != nil {
		t.Fatal(err)
	}
	r = reopen(t, s)
	if !r.Complete() || len(r.Remaining("")) > 0 || len(r.CutOff) != 1 || len(r.Warnings) > 0 {
		t.Errorf("complete %t, remaining %v, cut off %v, warnings %v", r.Complete(), r.Remaining(""), r.CutOff, r.Warnings)
	}
	for _, trial := range r.Trials {
		if got, _ := requests(t, trial); len(got) != 2 || trial.Result.Trial.RunID != "next" {
			t.Errorf("trial %d: %d requests of run %s, want 2 of next", trial.Number, len(got), trial.Result.Trial.RunID)
		}
	}
}

// fill records until the file size limit, which stands for a full disk, and
// prints what the record says then.
func fill(parent string) error {
	signal.Ignore(syscall.SIGXFSZ) // so that writes fail with EFBIG
	run := aRun()
	s, err := Create(parent, run)
	if err != nil {
		return err
	}
	limit := syscall.Rlimit{Cur: 64 << 10, Max: 64 << 10}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	rec, err := s.Create(run.Plan.Trials[0])
	if err != nil {
		return err
	}
	for i := range 3 * maxPending / 100 {
		rec.Event(anEvent(i))
	}
	if err := rec.Err(); !errors.Is(err, syscall.EFBIG) {
		return fmt.Errorf("Err() = %w, want EFBIG", err)
	}
	rec.Event(anEvent(0))
	if err := rec.Finish(aResult(run.Plan.Trials[0])); !errors.Is(err, syscall.EFBIG) {
		return fmt.Errorf("Finish() = %w, want EFBIG", err)
	}
	if err := s.Finish(harness.RunEnd{Reason: "disk full"}); err != nil {
		return err
	}
	fmt.Println(s.Dir())
	os.Exit(0)
	return nil
}

func TestFileSizeLimit(t *testing.T) {
	out, err := child(t, "fill", t.TempDir()).Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r, err := Open(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	if r.Trials[0].State() != Incomplete || r.End == nil || r.End.Reason != "disk full" {
		t.Errorf("trial %s, end %+v", r.Trials[0].State(), r.End)
	}
	// What fitted is still there.
	n := 0
	warnings, err := r.Trials[0].Events(func(harness.Event) error { n++; return nil })
	if err != nil || n == 0 || len(warnings) != 1 {
		t.Errorf("%d events, warnings %v, %v", n, warnings, err)
	}
}
