//go:build e2e

package main

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"lameduck/clusters/embedded"
	"lameduck/clusters/embedded/embeddedtest"
	"lameduck/harness"
	"lameduck/harness/record"
)

// TestE2EResume kills a run in its second trial, and completes it on the cluster
// that is left, which then serves other experiments of a user.
func TestE2EResume(t *testing.T) {
	const name = "e2e-resume"
	embeddedtest.RemoveAround(t, embedded.NewProvider(embedded.Config{}), name)
	file := shortExperiment(t, "control", "baseline: {length: 3s}", "none, {prestop-sleep: 1s}")
	out := t.TempDir()
	p := start(t, "trial 2 (instance prestop-sleep-1s pooled, repeat 1): under load", "run", file, "--out", out, "--parallel", "1", "--name", name)
	p.untilSeen(t)
	if err := p.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.wait(t)
	dir := runOf(t, out, "control")
	before, err := record.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if first, second := before.Trials[0].State(), before.Trials[1].State(); first != record.Complete || second != record.Incomplete {
		t.Fatalf("the killed run's trials are %s and %s", first, second)
	}
	kept := fileTimes(t, before.Trials[0].Dir)

	t.Run("resume", func(t *testing.T) {
		refused := start(t, "", "run", "--resume", dir, "--use-cluster", "--name", name)
		if code := refused.wait(t); code != exitUsage || !strings.Contains(refused.errors(), "--clean-cluster") {
			t.Errorf("with the namespace of the killed run: exit code %d, stderr %s; want --clean-cluster named", code, refused.errors())
		}
		p := start(t, "", "run", "--resume", dir, "--use-cluster", "--clean-cluster", "--name", name)
		if code := p.wait(t); code == exitError || code == exitUsage || !strings.Contains(p.stdout.String(), "1 trial cut off") {
			t.Fatalf("exit code %d, stderr %s\nstdout %s", code, p.errors(), p.stdout.String())
		}
		r, err := record.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if !r.Complete() || len(r.CutOff) != 1 || len(r.Resumed) != 1 || len(r.Warnings) > 0 {
			t.Errorf("complete %t, cut off %v, resumed %v, warnings %v", r.Complete(), r.CutOff, r.Resumed, r.Warnings)
		}
		for _, trial := range r.Trials {
			anew := trial.Number == 2 || trial.Attempt == 2
			if trial.State() != record.Complete || (trial.Result.Trial.RunID == r.Resumed[0].ID) != anew {
				t.Errorf("trial %d, attempt %d is %s", trial.Number, trial.Attempt, trial.State())
				continue
			}
			if first, end := firstEvent(t, trial, harness.EventPodDeletionAsked, ""), firstEvent(t, trial, harness.EventMark, harness.MarkAttackEnd); first < end {
				t.Errorf("trial %d: a pod was deleted %s before the end of the load, though nothing was to happen", trial.Number, end-first)
			}
			n := 0
			if _, err := trial.Requests(func(harness.Request) error { n++; return nil }); err != nil || n == 0 && trial.Result.Verdict != harness.VerdictInvalid {
				t.Errorf("trial %d: %d requests, error %v; %s", trial.Number, n, err, trial.Result.Reason)
			}
		}
		if now := fileTimes(t, before.Trials[0].Dir); now != kept {
			t.Errorf("the finished trial's record was changed: %s, was %s", now, kept)
		}
		again := start(t, "", "run", "--resume", dir, "--use-cluster", "--name", name)
		if code := again.wait(t); code != exitOK || !strings.Contains(again.errors(), "there is nothing to do") {
			t.Errorf("once more: exit code %d, stderr %s", code, again.errors())
		}
	})
	t.Run("two experiments", func(t *testing.T) { testTwoExperiments(t, name) })
	t.Run("own application", func(t *testing.T) { testOwnApplication(t, name) })
}

// fileTimes tells whether files of a directory were touched.
func fileTimes(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, info.Name()+" "+info.ModTime().String())
	}
	return strings.Join(all, ", ")
}
