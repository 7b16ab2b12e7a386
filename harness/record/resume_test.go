package record

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"lameduck/harness"
)

// attempted records a trial with n requests and a result.
func attempted(t *testing.T, s *Store, trial harness.Trial, v harness.Verdict, n int) {
	t.Helper()
	rec := openTrial(t, s, trial)
	for i := range n {
		rec.Request(aRequest(i))
	}
	result := aResult(trial)
	result.Verdict = v
	if err := rec.Finish(result); err != nil {
		t.Fatal(err)
	}
}

func again(trial harness.Trial) harness.Trial {
	trial.Attempt++
	return trial
}

// tried lists the trials of a reader as number.attempt state.
func tried(r *Reader) (all []string) {
	for _, t := range r.Trials {
		all = append(all, strings.TrimSuffix(trialDir(harness.Trial{Number: t.Number, Attempt: t.Attempt}), "----")+" "+string(t.State()))
	}
	return all
}

func TestBothAttemptsAreRead(t *testing.T) {
	run := aRun()
	s := create(t, run)
	p := run.Plan.Trials
	attempted(t, s, p[0], harness.VerdictInvalid, 3)
	attempted(t, s, p[1], harness.VerdictPass, 1)
	attempted(t, s, again(p[0]), harness.VerdictPass, 5)
	r := reopen(t, s)
	want := []string{"0001 complete", "0001.2 complete", "0002 complete", "0003 not started", "0004 not started"}
	if got := tried(r); !slices.Equal(got, want) || len(r.Warnings) > 0 {
		t.Fatalf("got %q, warnings %v\nwant %q", got, r.Warnings, want)
	}
	for i, n := range []int{3, 5, 1} {
		if got, _ := requests(t, r.Trials[i]); len(got) != n || r.Trials[i].Result.Trial.Attempt != r.Trials[i].Attempt {
			t.Errorf("%s: %d requests, want %d; its result is of attempt %d", r.Trials[i].Dir, len(got), n, r.Trials[i].Result.Trial.Attempt)
		}
	}
	name := filepath.Base(r.Trials[1].Dir)
	if err := os.Rename(r.Trials[1].Dir, filepath.Join(s.Dir(), strings.Replace(name, ".2", ".3", 1))); err != nil {
		t.Fatal(err)
	}
	if r := reopen(t, s); len(r.Warnings) != 1 || len(r.Trials) != 4 {
		t.Errorf("a third attempt: warnings %v, trials %q", r.Warnings, tried(r))
	}
	if err := os.Rename(r.Trials[0].Dir, r.Trials[1].Dir); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(s.Dir()); err == nil || !strings.HasSuffix(err.Error(), "is about attempt 1, but its directory is that of attempt 2") {
		t.Errorf("got %v", err)
	}
}

// A record of format 1: no attempts, and what was live is an array.
func TestFormat1(t *testing.T) {
	const dir = "testdata/format1"
	r, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := tried(r), []string{"0001 complete", "0002 incomplete"}; !slices.Equal(got, want) || len(r.Warnings) > 0 {
		t.Errorf("got %q, warnings %v; want %q", got, r.Warnings, want)
	}
	first := r.Trials[0]
	if len(first.Result.Live.Pods) != 1 || first.Result.Trial.Attempt != 1 || first.Setup.Workload.Replicas != 6 {
		t.Errorf("got %+v", first.Result)
	}
	got, warnings := requests(t, first)
	if len(got) != 20 || len(warnings) > 0 || !got[19].Failed() {
		t.Errorf("%d requests, want 20, the last failed; warnings %v", len(got), warnings)
	}
	const want = "run testdata/format1 has format 1, which can be read but not resumed: start it anew"
	if _, _, err := Reopen(dir); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestRemaining(t *testing.T) {
	run := aRun()
	s := create(t, run)
	p := run.Plan.Trials
	attempted(t, s, p[0], harness.VerdictInvalid, 1) // once
	attempted(t, s, p[1], harness.VerdictFail, 1)
	attempted(t, s, p[2], harness.VerdictInvalid, 1)
	attempted(t, s, again(p[2]), harness.VerdictInvalid, 1) // twice: that is it
	if err := openTrial(t, s, p[3]).Abandon(); err != nil { // cut off
		t.Fatal(err)
	}
	next := func(trial harness.Trial) harness.Trial { trial.RunID = "new"; return trial }
	want := []harness.Trial{next(p[3]), next(again(p[0]))}
	if got := reopen(t, s).Remaining("new"); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	// The second attempt cut off.
	if err := openTrial(t, s, again(p[0])).Abandon(); err != nil {
		t.Fatal(err)
	}
	if got := reopen(t, s).Remaining("new"); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestResumeSetsCutOffTrialsAside(t *testing.T) {
	run := aRun()
	s := create(t, run)
	trial := run.Plan.Trials[0]
	attempted(t, s, run.Plan.Trials[1], harness.VerdictPass, 1)
	for n := range 3 {
		if err := openTrial(t, s, trial).Abandon(); err != nil {
			t.Fatal(err)
		}
		if err := s.Resume(reopen(t, s), Resumption{ID: []string{"b", "c", "d"}[n]}); err != nil {
			t.Fatal(err)
		}
	}
	r := reopen(t, s)
	if len(r.Warnings) > 0 || r.Trials[0].State() != NotStarted || r.Trials[1].State() != Complete {
		t.Errorf("trials %q, warnings %v", tried(r), r.Warnings)
	}
	if len(r.CutOff) != 3 || len(r.Resumed) != 3 || r.Resumed[2].ID != "d" {
		t.Errorf("cut off %v, resumed %+v", r.CutOff, r.Resumed)
	}
	for _, e := range r.CutOff { // nothing of them is lost
		if _, err := os.Stat(filepath.Join(s.Dir(), cutOffDir, e.Name(), requestsFile)); err != nil {
			t.Error(err)
		}
	}
}

func TestReopenRefuses(t *testing.T) {
	s := create(t, aRun())
	want := "run " + s.Dir() + " is being written by another process: wait for its end"
	if _, _, err := Reopen(s.Dir()); err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
	if err := s.Finish(harness.RunEnd{Reason: "interrupted"}); err != nil {
		t.Fatal(err)
	}
	reopened, _, err := Reopen(s.Dir())
	if err != nil {
		t.Fatal(err)
	}
	if err := reopened.Close(); err != nil {
		t.Error(err)
	}
	if _, _, err := Reopen(t.TempDir()); err == nil || !strings.HasSuffix(err.Error(), ": give the directory of one run") {
		t.Errorf("got %v", err)
	}
	none := filepath.Join(t.TempDir(), "none")
	if _, _, err := Reopen(none); err == nil || !strings.HasSuffix(err.Error(), ": give the directory of one run") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(none); err == nil {
		t.Error("the directory was made")
	}
}
