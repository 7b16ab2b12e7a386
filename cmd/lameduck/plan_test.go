package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lameduck/experiments"
	"lameduck/harness"
)

func TestPlanSaysWhatARunWouldDo(t *testing.T) {
	code, stdout, stderr := lameduck(t, "plan", "scale-in", "--parallel", "3")
	if code != exitOK || stderr != "" {
		t.Fatalf("exit code %d, stderr %q", code, stderr)
	}
	for _, want := range []string{
		"scale-in: HPA scale-in from 6 pods to 2",
		"scenario hpa-scale-in: the HPA scales in",
		"load: 100 requests/s each trial",
		"instance  prestop-sleep-40s-grace-30s  pooled  -",
		"6 cells x 3 repeats = 18 trials, 3 at a time",
		"an estimate",
		"cluster: embedded, 2 nodes, dead addresses drop",
		"Deployment app",
		"HorizontalPodAutoscaler app",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("the plan lacks %q:\n%s", want, stdout)
		}
	}
	if strings.Contains(stdout, "alone") {
		t.Errorf("trials of scale-in need no cluster of their own:\n%s", stdout)
	}
}

func TestPlanOfAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mine.yaml")
	write := func(spec string) {
		t.Helper()
		if err := os.WriteFile(file, []byte("apiVersion: lameduck/v1\nkind: Experiment\nspec:\n"+spec), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("  cluster: {nodes: 3}\n  scenario: {baseline: {length: 5s}}\n  vary: {faults: [none, {name: lossy, faults: [{packet-loss: {share: 0.1}}]}]}\n  repeats: 2\n")
	code, stdout, stderr := lameduck(t, "plan", file)
	if code != exitOK {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	for _, want := range []string{"mine: no description", "2 cells x 2 repeats = 4 trials", "2 of them alone", "(alone)", "embedded, 3 nodes"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("the plan lacks %q:\n%s", want, stdout)
		}
	}

	write("  scenario: {baseline: {}}\n  repeats: 0\n  loda: {}\n")
	code, stdout, stderr = lameduck(t, "plan", file)
	if code != exitUsage || stdout != "" {
		t.Errorf("exit code %d, stdout %q; want %d and nothing", code, stdout, exitUsage)
	}
	for _, want := range []string{file + ":5: spec.repeats: ", file + ":6: spec.loda: "} {
		if !strings.Contains(stderr, want) {
			t.Errorf("stderr %q lacks %q", stderr, want)
		}
	}
}

func TestPlanOfEveryBuiltin(t *testing.T) {
	for _, name := range experiments.Names() {
		if code, _, stderr := lameduck(t, "plan", name); code != exitOK {
			t.Errorf("%s: exit code %d: %s", name, code, stderr)
		}
	}
}

// The estimate follows what a setup asks for.
func TestTrialTime(t *testing.T) {
	e, err := experiments.Builtin("scale-in")
	if err != nil {
		t.Fatal(err)
	}
	second := func(n int) harness.Duration { return harness.Dur(time.Duration(n) * time.Second) }
	base := trialTime(e.Base)
	for name, c := range map[string]struct {
		edit func(*harness.Setup)
		more time.Duration
	}{
		"preStop":                  {func(s *harness.Setup) { s.Workload.PreStopSleep = second(10) }, 10 * time.Second},
		"exit at once":             {func(s *harness.Setup) { s.Workload.OnSIGTERM = harness.SIGTERMExit }, -4 * time.Second},
		"wait":                     {func(s *harness.Setup) { s.Workload.OnSIGTERM, s.Workload.SIGTERMWait = harness.SIGTERMWait, second(7) }, 7 * time.Second},
		"ignore":                   {func(s *harness.Setup) { s.Workload.OnSIGTERM = harness.SIGTERMIgnore }, 26 * time.Second},
		"preStop beyond the grace": {func(s *harness.Setup) { s.Workload.PreStopSleep = second(40) }, 28 * time.Second},
		"IP targets":               {func(s *harness.Setup) { s.LoadBalancer.TargetType = harness.TargetIP }, 16 * time.Second},
		"late deregistrations": {func(s *harness.Setup) {
			s.LoadBalancer.TargetType = harness.TargetIP
			s.Faults = []harness.Fault{{Kind: harness.FaultLateDeregistration, Lag: harness.DurationRange{Min: 30 * time.Second, Max: time.Minute}}}
		}, 56 * time.Second},
		"settle":            {func(s *harness.Setup) { s.Load.Settle = second(8) }, 5 * time.Second},
		"old pods are kept": {func(s *harness.Setup) { s.Scenario = harness.ScenarioSpec{Name: "blue-green", KeepOld: second(9)} }, 9 * time.Second},
		"node comes back":   {func(s *harness.Setup) { s.Scenario = harness.ScenarioSpec{Name: "node-scale-in"} }, nodeTime},
		"length":            {func(s *harness.Setup) { s.Scenario = harness.ScenarioSpec{Name: "baseline", Length: second(10)} }, 6 * time.Second},
	} {
		s := e.Base.Clone()
		c.edit(&s)
		if more := trialTime(s) - base; more != c.more {
			t.Errorf("%s: %s more, want %s", name, more, c.more)
		}
	}
}

func TestEstimateOfTrialsThatAreAlone(t *testing.T) {
	e, err := experiments.Builtin("scale-in")
	if err != nil {
		t.Fatal(err)
	}
	shared, exclusive := harness.Trial{Setup: e.Base}, harness.Trial{Setup: e.Base}
	exclusive.Setup.Faults = []harness.Fault{{Kind: harness.FaultLinkDown}}
	one := trialTime(e.Base)
	if got := estimate(harness.Plan{Trials: []harness.Trial{shared, shared}}, 2); got != clusterTime+one {
		t.Errorf("two at a time: %s, want %s", got, clusterTime+one)
	}
	if got := estimate(harness.Plan{Trials: []harness.Trial{shared, shared}}, 4); got != clusterTime+one {
		t.Errorf("more at a time than there are: %s, want that of the longest, %s", got, clusterTime+one)
	}
	if got := estimate(harness.Plan{Trials: []harness.Trial{exclusive, exclusive}}, 2); got != clusterTime+2*one {
		t.Errorf("two that are alone: %s, want %s", got, clusterTime+2*one)
	}
}

func TestInit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "my.yaml")
	code, stdout, stderr := lameduck(t, "init", file)
	if code != exitOK || !strings.Contains(stdout, "lameduck plan "+file) {
		t.Fatalf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	if code, _, stderr := lameduck(t, "plan", file); code != exitOK {
		t.Errorf("its plan: exit code %d: %s", code, stderr)
	}
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, stderr = lameduck(t, "init", file)
	if text, err := os.ReadFile(file); code != exitUsage || !strings.Contains(stderr, "is there already") || string(text) != "mine" {
		t.Errorf("over a file: exit code %d, stderr %q, file %q (%v)", code, stderr, text, err)
	}
}

func TestList(t *testing.T) {
	code, stdout, stderr := lameduck(t, "list")
	if code != exitOK {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	want := []string{"prestop-sleep-D", "packet-loss"}
	want = append(want, experiments.Names()...)
	for name := range experiments.Scenarios() {
		want = append(want, name)
	}
	for _, name := range want {
		if !strings.Contains(stdout, "\n  "+name+" ") {
			t.Errorf("the list lacks %s:\n%s", name, stdout)
		}
	}
}

func TestSchema(t *testing.T) {
	want, err := os.ReadFile("../../experiments/schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if code, stdout, stderr := lameduck(t, "schema"); code != exitOK || stdout != string(want) {
		t.Errorf("exit code %d, stderr %q, and not the committed schema", code, stderr)
	}
}
