//go:build e2e

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"lameduck/clusters/embedded"
	"lameduck/clusters/embedded/embeddedtest"
	"lameduck/harness"
	"lameduck/harness/record"
)

// TestE2EResume kills a run in its second trial, completes it on the cluster
// that is left, and then runs two experiments there with one command.
func TestE2EResume(t *testing.T) {
	const name = "e2e-resume"
	embeddedtest.RemoveAround(t, embedded.NewProvider(embedded.Config{}), name)
	narrow := []string{"--name", name, "--targets", "instance", "--repeats", "1", "--rate", "60"}
	out := t.TempDir()
	p := start(t, "trial 2 (instance prestop-sleep-5s pooled, repeat 1): under load",
		slices.Concat([]string{"run", "scale-in", "--out", out, "--mitigations", "none,prestop-sleep-5s", "--parallel", "1"}, narrow)...)
	p.untilSeen(t)
	if err := p.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.wait(t)
	dir := onlyRun(t, out)
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
	t.Run("two experiments", func(t *testing.T) {
		out := t.TempDir()
		p := start(t, "", slices.Concat([]string{"run", "scale-in", "scale-in", "--use-cluster", "--out", out, "--mitigations", "prestop-sleep-5s"}, narrow)...)
		if code := p.wait(t); code == exitError || code == exitUsage {
			t.Fatalf("exit code %d, stderr %s", code, p.errors())
		}
		dirs, err := filepath.Glob(filepath.Join(out, "*-scale-in"))
		if err != nil || len(dirs) != 2 {
			t.Fatalf("run directories %v, error %v; want two", dirs, err)
		}
		lines := strings.Split(strings.TrimSpace(p.stdout.String()), "\n")
		for i, dir := range dirs {
			if r, err := record.Open(dir); err != nil || !r.Complete() {
				t.Errorf("%s is not complete, error %v", dir, err)
			}
			if line := lines[len(lines)-2+i]; !strings.HasPrefix(line, "scale-in ") || !strings.Contains(line, dir) {
				t.Errorf("summary %q, want %s in it", line, dir)
			}
		}
	})
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
