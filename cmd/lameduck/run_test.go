package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"lameduck/clusters"
	"lameduck/experiments"
	"lameduck/harness"
	"lameduck/harness/record"
	"lameduck/reports"
)

// aRecord writes a run of scale-in's cell without a mitigation, whose trials all
// have a result but, if cut, the last. end may be nil.
func aRecord(t *testing.T, cut bool, end *harness.RunEnd) string {
	t.Helper()
	e, err := experiments.Builtin("scale-in")
	if err == nil {
		e, err = runFlags{mitigations: []string{"none"}, targets: []string{"instance"}, repeats: 2}.narrow(e)
	}
	if err != nil {
		t.Fatal(err)
	}
	plan, err := harness.Expand(e, "old")
	if err != nil {
		t.Fatal(err)
	}
	store, err := record.Create(t.TempDir(), harness.Run{Tool: version, ID: "old", Experiment: e, Plan: plan, Started: "2026-03-01T09:20:30Z",
		Environment: harness.Environment{Provider: "embedded", Kubernetes: "v1.37.2", Nodes: 3, Details: map[string]string{deadAddressDetail: "reset"}}})
	if err != nil {
		t.Fatal(err)
	}
	for i, trial := range plan.Trials {
		rec, err := store.Create(trial)
		if err != nil {
			t.Fatal(err)
		}
		rec.Request(harness.Request{Outcome: harness.Outcome502})
		if cut && i == len(plan.Trials)-1 {
			err = rec.Abandon()
		} else {
			err = rec.Finish(harness.TrialResult{Trial: trial, Verdict: harness.VerdictPass, Counts: map[harness.Outcome]int{harness.Outcome502: 1}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if end != nil {
		err = store.Finish(*end)
	} else {
		err = store.Close() // as when the process ends
	}
	if err != nil {
		t.Fatal(err)
	}
	return store.Dir()
}

func TestResumeOfACompleteRunHasNothingToDo(t *testing.T) {
	for name, end := range map[string]*harness.RunEnd{
		"complete":                    {Complete: true, Ended: "2026-03-01T09:30:30Z"},
		"killed after the last trial": nil,
		"interrupted at the very end": {Reason: "interrupted"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := aRecord(t, false, end)
			code, stdout, stderr := lameduck(t, "run", "--resume", dir)
			if code != exitOK || !strings.Contains(stdout, "2 valid trials") || !strings.Contains(stderr, "there is nothing to do") {
				t.Errorf("exit code %d, stdout %s, stderr %s", code, stdout, stderr)
			}
			if r, err := record.Open(dir); err != nil || !r.Complete() {
				t.Errorf("not complete, error %v", err)
			}
		})
	}
}

func TestResumeTakesTheClusterOfTheRun(t *testing.T) {
	dir := aRecord(t, true, nil)
	for args, want := range map[string]string{
		"--nodes 2":           "--nodes 2: the run has 3: leave it out with --resume",
		"--dead-address drop": "--dead-address drop: the run has reset: leave it out with --resume",
	} {
		code, _, stderr := lameduck(t, append([]string{"run", "--resume", dir}, strings.Fields(args)...)...)
		if code != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("exit code %d, stderr %s, want %s", code, stderr, want)
		}
	}
	f := runFlags{resume: dir}
	j, err := f.resumed(func(string) bool { return false }, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer j.store.Close()
	if o := f.cluster.options; o.Nodes != 3 || o.DeadAddress != "reset" || f.cluster.provider != "embedded" {
		t.Errorf("cluster %+v of kind %s", o, f.cluster.provider)
	}
	plan, err := j.plan("new")
	if err != nil || len(plan.Trials) != 1 || plan.Trials[0].Number != 2 || plan.Trials[0].RunID != "new" {
		t.Errorf("plan %+v, error %v; want trial 2 of run new", plan.Trials, err)
	}
	// Another process.
	code, _, stderr := lameduck(t, "run", "--resume", dir)
	if code != exitUsage || !strings.Contains(stderr, "is being written by another process") {
		t.Errorf("exit code %d, stderr %s", code, stderr)
	}
}

func TestCompareEnvironments(t *testing.T) {
	was := harness.Environment{Provider: "embedded", Kubernetes: "v1.37.2", Nodes: 2, Kernel: "6.18", Cores: 2, Details: map[string]string{"a": "1"}}
	if differs, err := compareEnvironments(was, was); err != nil || len(differs) > 0 {
		t.Errorf("got %v, %v", differs, err)
	}
	now := was
	now.Kernel, now.Details = "6.19", map[string]string{"b": "2"}
	want := []string{"kernel is 6.19, was 6.18", "a is not known, was 1", "b is 2, was not known"}
	if differs, err := compareEnvironments(was, now); err != nil || !slices.Equal(differs, want) {
		t.Errorf("got %q, %v, want %q", differs, err, want)
	}
	for want, edit := range map[string]func(*harness.Environment){
		"kind of cluster is kind, but the run began with embedded": func(e *harness.Environment) { e.Provider = "kind" },
		"Kubernetes is v1.38.0, but the run began with v1.37.2":    func(e *harness.Environment) { e.Kubernetes = "v1.38.0" },
		"number of nodes is 4, but the run began with 2":           func(e *harness.Environment) { e.Nodes = 4 },
	} {
		now := was
		edit(&now)
		if _, err := compareEnvironments(was, now); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestMergeOptions(t *testing.T) {
	a := wish{"a.yaml", clusters.Options{Nodes: 3}}
	b := wish{"b.yaml", clusters.Options{Nodes: 4, DeadAddress: "reset"}}
	none := wish{"scale-in", clusters.Options{}}
	for _, c := range []struct {
		wishes  []wish
		changed string
		want    clusters.Options
		err     string
	}{
		{[]wish{none}, "", clusters.Options{Nodes: 2, DeadAddress: "drop"}, ""},
		{[]wish{none, b, none, b}, "", clusters.Options{Nodes: 4, DeadAddress: "reset"}, ""},
		{[]wish{b}, "dead-address", clusters.Options{Nodes: 4, DeadAddress: "drop"}, ""},
		{[]wish{a, b}, "", clusters.Options{}, "a.yaml asks for 3 nodes and b.yaml for 4: choose by --nodes, or run them one at a time"},
		{[]wish{a, b}, "nodes", clusters.Options{Nodes: 2, DeadAddress: "reset"}, ""},
		{[]wish{b, {"c.yaml", clusters.Options{DeadAddress: "drop"}}}, "", clusters.Options{}, "b.yaml asks for the dead address reset and c.yaml for drop: choose by --dead-address, or run them one at a time"},
	} {
		got := clusters.Options{Nodes: 2, DeadAddress: "drop"}
		err := mergeOptions(&got, c.wishes, func(flag string) bool { return flag == c.changed })
		if c.err != "" {
			if err == nil || err.Error() != c.err {
				t.Errorf("got %v, want %s", err, c.err)
			}
		} else if err != nil || got != c.want {
			t.Errorf("got %+v, %v, want %+v", got, err, c.want)
		}
	}
}

func TestVerdictOfSeveralRuns(t *testing.T) {
	expected := func(x harness.Expected, failed ...int) outcome {
		c := reports.Cell{Expected: x, Trials: len(failed)}
		for _, n := range failed {
			c.PerTrial = append(c.PerTrial, harness.Tried{Requests: 100, Failed: n})
		}
		c.Met = x.Met(c.PerTrial)
		return outcome{name: string(x), dir: "runs/x", report: &reports.Report{Complete: true, Cells: []reports.Cell{c}}}
	}
	good, bad, none := expected(harness.ExpectNone, 0), expected(harness.ExpectNone, 1), expected(harness.ExpectSome)
	broken := outcome{name: "broken", err: errors.New("disk full")}
	for _, c := range []struct {
		done []outcome
		code int
		text string
	}{
		{[]outcome{good, good}, exitOK, ""},
		{[]outcome{bad, good}, exitUnexpected, ""},
		{[]outcome{bad, none, good}, exitNoResult, ""},
		{[]outcome{good, broken, none, bad}, exitError, "disk full"},
	} {
		err := verdictOf(c.done)
		asked := exitCode{}
		if errors.As(err, &asked); asked.code != c.code || (err != nil && err.Error() != c.text) || (err == nil) != (c.code == exitOK) {
			t.Errorf("got %d (%v), want %d (%s)", asked.code, err, c.code, c.text)
		}
	}
	var out bytes.Buffer
	jobs := []*job{{}, {}, {}, {experiment: harness.Experiment{Name: "later"}}}
	if err := printSummary(&out, jobs, []outcome{good, bad, broken}); err != nil {
		t.Fatal(err)
	}
	want := `
none    as expected        1 valid trials, 0 invalid  runs/x
none    not as expected    1 valid trials, 0 invalid  runs/x
broken  could not be done                             
later   not begun                                     
`
	if out.String() != want {
		t.Errorf("got %s\nwant %s", out.String(), want)
	}
}

func TestDefaultParallelism(t *testing.T) {
	at := func(rate int, scenario string) harness.Experiment {
		var e harness.Experiment
		e.Base.Load.Rate, e.Base.Scenario.Name = rate, scenario
		return e
	}
	for rate, most := range map[int]int{1: maxParallel, 100: 6, 150: 4, 300: 2, 600: 1, 5000: 1} {
		if got, want := (runFlags{}).parallelTrials(at(rate, experiments.BaselineName)), min(most, trialsPerCore*runtime.NumCPU()); got != want {
			t.Errorf("%d requests per second: %d trials at a time, want %d", rate, got, want)
		}
	}
	if got, want := (runFlags{}).parallelTrials(at(100, experiments.RollingUpdateName)), min(6, runtime.NumCPU()); got != want {
		t.Errorf("pods start under load: %d trials at a time, want %d", got, want)
	}
	if got := (runFlags{parallel: 7}).parallelTrials(at(5000, experiments.RollingUpdateName)); got != 7 {
		t.Errorf("got %d, want what was asked for", got)
	}
}

func TestCommandLine(t *testing.T) {
	cmd := runCommand()
	if err := cmd.ParseFlags([]string{"--repeats", "2", "--mitigations", "none,prestop-sleep-5s", "--keep-cluster"}); err != nil {
		t.Fatal(err)
	}
	const want = "lameduck run scale-in --keep-cluster=true --mitigations none,prestop-sleep-5s --repeats 2"
	if got := commandLine(cmd.Flags(), "scale-in"); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestProgressCountsRepetitions(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out)
	p.begin(2)
	done := func(number, attempt int, v harness.Verdict) {
		trial := harness.Trial{Number: number, Attempt: attempt}
		p.trial(harness.Progress{Trial: trial, Phase: harness.PhaseDone, Result: &harness.TrialResult{Trial: trial, Verdict: v}})
	}
	done(1, 1, harness.VerdictInvalid)
	done(2, 1, harness.VerdictPass)
	done(1, 2, harness.VerdictInvalid)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for i, want := range []string{"[1 of 3 done]", "[2 of 3 done]", "[3 of 3 done]"} {
		if !strings.HasSuffix(lines[i], want) || strings.Contains(lines[i], "again: trial 1 ") != (i == 2) {
			t.Errorf("got %s, want %s", lines[i], want)
		}
	}
}

func TestImages(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "app")
	if err := os.WriteFile(file, []byte("content"), 0o755); err != nil {
		t.Fatal(err)
	}
	for want, sources := range map[string][]harness.ImageSource{
		"":                               {{Name: "a:1", Archive: file}, {Name: "b:1", Binary: file}},
		`image "": want a name`:          {{Archive: file}},
		"either an archive or a binary":  {{Name: "a:1", Archive: file, Binary: file}},
		"image a:1 is " + file + " and ": {{Name: "a:1", Archive: file}, {Name: "a:1", Binary: file + "2"}},
		"no such file":                   {{Name: "a:1", Archive: file + "2"}},
		dir + " is no file":              {{Name: "a:1", Binary: dir}},
	} {
		err := checkImages(sources)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	copied, made := filepath.Join(dir, "copied.tar"), filepath.Join(dir, "made.tar")
	if err := errors.Join(writeImage(copied, harness.ImageSource{Name: "a:1", Archive: file}),
		writeImage(made, harness.ImageSource{Name: "b:1", Binary: file})); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(copied); err != nil || string(text) != "content" {
		t.Errorf("the archive's copy is %q, %v", text, err)
	}
	if text, err := os.ReadFile(made); err != nil || !bytes.Contains(text, []byte("manifest.json")) || !bytes.Contains(text, []byte("docker.io/library/b:1")) {
		t.Errorf("no archive of image b:1 was made, error %v", err)
	}
}

func TestFullImageNames(t *testing.T) {
	for name, want := range map[string]string{
		"shop":                    "docker.io/library/shop:latest",
		"shop:1":                  "docker.io/library/shop:1",
		"me/shop:1":               "docker.io/me/shop:1",
		"localhost/shop":          "localhost/shop:latest",
		"registry:5000/shop":      "registry:5000/shop:latest",
		"registry.test/a/shop:v2": "registry.test/a/shop:v2",
	} {
		if got := fullName(name); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}
