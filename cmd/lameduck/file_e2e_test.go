//go:build e2e

package main

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lameduck/harness"
	"lameduck/harness/record"
)

// shortExperiment writes the file of an experiment that takes as little time as
// one can, with one cell for each mitigation, and returns its path.
func shortExperiment(t *testing.T, name, scenario, mitigations string) string {
	t.Helper()
	const form = `apiVersion: lameduck/v1
kind: Experiment
metadata: {name: %s}
spec:
  workload: {replicas: 2}
  load: {rate: 60/s, timeout: 4s, baseline: 1s, settle: 1s}
  scenario: {%s}
  vary:
    targetType: [instance]
    mitigation: [%s]
  repeats: 1
`
	path := filepath.Join(t.TempDir(), name+".yaml")
	if err := os.WriteFile(path, fmt.Appendf(nil, form, name, scenario, mitigations), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// firstEvent is when the first event of a kind was seen in a trial, of any
// object if object is "". It is beyond all others if there was none.
func firstEvent(t *testing.T, trial record.Trial, kind harness.EventKind, object string) time.Duration {
	t.Helper()
	first := time.Duration(math.MaxInt64)
	_, err := trial.Events(func(e harness.Event) error {
		if e.Kind == kind && (object == "" || e.Object == object) {
			first = min(first, e.At)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return first
}

// testTwoExperiments runs two files with one command on the running cluster,
// each with a mitigation that holds up its scenario's second step.
func testTwoExperiments(t *testing.T, cluster string) {
	const hold = 3 * time.Second
	experiments := []struct {
		name, file  string
		first, then harness.EventKind
	}{
		{"colours", shortExperiment(t, "colours", "blue-green: {}", "{keep-old: 3s}"), harness.EventCutover, harness.EventOldDeleted},
		{"nodes", shortExperiment(t, "nodes", "node-scale-in: {}", "{hold-node: 3s}"), harness.EventNodeDrained, harness.EventNodeRemoved},
	}
	out := t.TempDir()
	p := start(t, "", "run", experiments[0].file, experiments[1].file, "--use-cluster", "--out", out, "--name", cluster)
	if code := p.wait(t); code == exitError || code == exitUsage {
		t.Fatalf("exit code %d, stderr %s", code, p.errors())
	}
	lines := strings.Split(strings.TrimSpace(p.stdout.String()), "\n")
	for i, e := range experiments {
		dir := runOf(t, out, e.name)
		r, err := record.Open(dir)
		if err != nil || !r.Complete() {
			t.Fatalf("%s is not complete, error %v", dir, err)
		}
		if line := lines[len(lines)-len(experiments)+i]; !strings.HasPrefix(line, e.name+" ") || !strings.Contains(line, dir) {
			t.Errorf("summary %q, want %s of %s in it", line, dir, e.name)
		}
		first, then := firstEvent(t, r.Trials[0], e.first, ""), firstEvent(t, r.Trials[0], e.then, "")
		if then-first < hold || then == math.MaxInt64 {
			t.Errorf("%s: %s at %s, %s at %s, want %s between them", e.name, e.first, first, e.then, then, hold)
		}
	}
}

// testOwnApplication is the worked example of the documentation, as it is there.
func testOwnApplication(t *testing.T, cluster string) {
	const example = "../../docs/examples/own-app"
	dir, out := t.TempDir(), t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(example)); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "own-app"), example)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the example: %v: %s", err, said)
	}
	p := start(t, "", "run", filepath.Join(dir, "experiment.yaml"), "--use-cluster", "--out", out, "--name", cluster)
	code := p.wait(t)
	cells := jsonReport(t, runOf(t, out, "own-app"))
	for _, mitigation := range []string{"none", "prestop-native-sleep-5s"} {
		c := cells[mitigation]
		if c.valid() == 0 && disturbed.MatchString(p.errors()) {
			t.Skip("this machine is too busy with other things for a valid trial")
		}
		// At 60 requests/s, for the baseline's 3 s and what comes after it.
		if c.valid() != 1 || c.Requests < 300 || c.Outcomes["ok"] < c.Requests*9/10 || c.Outcomes["ok"]+c.Failed != c.Requests {
			t.Errorf("%s: %+v, want one valid trial of 300 requests at least, most of them answered", mitigation, c)
		}
	}
	r, err := record.Open(runOf(t, out, "own-app"))
	if err != nil {
		t.Fatal(err)
	}
	for _, trial := range r.Trials {
		hook := trial.Setup.Workload.PreStopSleep.Duration
		if life := lifeAfterDeletion(t, trial); (life >= 5*time.Second) != (hook == 5*time.Second) {
			t.Errorf("with a preStop sleep of %s the container ended %s after its pod's deletion", hook, life)
		}
	}
	if code != exitOK {
		t.Errorf("exit code %d, want %d; stderr:\n%s", code, exitOK, p.errors())
	}
}

// lifeAfterDeletion is how long the container ran of the first pod that a trial
// deleted.
func lifeAfterDeletion(t *testing.T, trial record.Trial) time.Duration {
	t.Helper()
	asked := firstEvent(t, trial, harness.EventPodDeletionAsked, "")
	pod := ""
	_, err := trial.Events(func(e harness.Event) error {
		if e.Kind == harness.EventPodDeletionAsked && e.At == asked {
			pod = e.Object
		}
		return nil
	})
	if err != nil || pod == "" {
		t.Fatalf("no pod was deleted; error %v", err)
	}
	return firstEvent(t, trial, harness.EventContainerExited, pod) - asked
}
