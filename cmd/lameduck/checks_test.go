package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lameduck/experiments"
	"lameduck/experiments/form"
	"lameduck/harness"
	"lameduck/harness/record"
)

// inFiles writes an experiment file with what its spec has, and others beside it.
func inFiles(t *testing.T, spec string, others map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "mine.yaml")
	all := map[string]string{file: "apiVersion: lameduck/v1\nkind: Experiment\nspec:\n" + spec}
	for name, text := range others {
		all[filepath.Join(dir, name)] = text
	}
	for name, text := range all {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return file
}

// plan and run say what is wrong with objects of the user before there is a
// cluster.
func TestOwnObjectsAreChecked(t *testing.T) {
	own := "  scenario: {rolling-update: {}}\n  workload: {manifests: m.yaml, service: shop, port: 80}\n"
	const service = "---\napiVersion: v1\nkind: Service\nmetadata: {name: shop}\nspec: {selector: {app: shop}, ports: [{port: 80, targetPort: 9000}]}\n"
	for name, c := range map[string]struct{ objects, want string }{
		"no Deployment behind the Service": {
			"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: shop}\nspec: {selector: {matchLabels: {app: x}}, template: {metadata: {labels: {app: x}}, spec: {containers: [{name: a, image: b}]}}}\n" + service,
			"mine.yaml: spec.workload.service: Service shop selects the pods of 0 Deployments"},
		"object of the cluster": {
			"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: shop}\n---\napiVersion: v1\nkind: Node\nmetadata: {name: node-1}\n" + service,
			"mine.yaml: spec.workload.manifests: Node node-1 is of the whole cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			file := inFiles(t, own, map[string]string{"m.yaml": c.objects})
			for _, command := range []string{"plan", "run"} {
				code, stdout, stderr := lameduck(t, command, file)
				if code != exitUsage || stdout != "" || !strings.Contains(stderr, c.want) {
					t.Errorf("%s: exit code %d, stdout %q, stderr %q; want %d and %s", command, code, stdout, stderr, exitUsage, c.want)
				}
			}
		})
	}
}

func TestCheckObjectsLooksAtEachCellOnce(t *testing.T) {
	e, err := experiments.Builtin("scale-in")
	if err != nil {
		t.Fatal(err)
	}
	plan, err := harness.Expand(e, "x")
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	last := plan.Cells[len(plan.Cells)-1]
	err = checkObjects("mine.yaml", plan, func(trial harness.Trial) ([]string, error) {
		seen = append(seen, trial.Cell.String())
		if trial.Cell == last {
			return nil, os.ErrInvalid
		}
		return nil, nil
	})
	if err == nil || err.Error() != "mine.yaml: spec.workload.manifests: invalid argument" {
		t.Errorf("got %v, want what is wrong with the last cell", err)
	}
	if len(seen) != len(plan.Cells) {
		t.Errorf("looked at %v, want the %d cells", seen, len(plan.Cells))
	}
}

// What concerns one node of several needs several.
func TestNodesThatAreNeeded(t *testing.T) {
	for spec, want := range map[string]string{
		"  cluster: {nodes: 1}\n  scenario: {node-loss: {}}\n":                                                                                "scenario node-loss concerns one node of several, but the cluster has 1: want 2 or more",
		"  cluster: {nodes: 1}\n  scenario: {node-scale-in: {}}\n":                                                                            "scenario node-scale-in concerns one node",
		"  cluster: {nodes: 1}\n  scenario: {baseline: {}}\n  faults: [{paused-kubelet: {}}]\n":                                               "fault paused-kubelet concerns one node",
		"  cluster: {nodes: 1}\n  scenario: {baseline: {}}\n  vary: {faults: [none, {name: lossy, faults: [{packet-loss: {share: 0.1}}]}]}\n": "fault packet-loss concerns one node",
	} {
		file := inFiles(t, spec, nil)
		for _, args := range [][]string{{"plan", file}, {"run", file}} {
			if code, stdout, stderr := lameduck(t, args...); code != exitUsage || stdout != "" || !strings.Contains(stderr, "mine.yaml: "+want) {
				t.Errorf("%v: exit code %d, stdout %q, stderr %q; want %d and %s", args, code, stdout, stderr, exitUsage, want)
			}
		}
	}
	file := inFiles(t, "  scenario: {node-loss: {}}\n", nil)
	if code, _, stderr := lameduck(t, "run", file, "--nodes", "1"); code != exitUsage || !strings.Contains(stderr, "the cluster has 1") {
		t.Errorf("--nodes 1: exit code %d, stderr %q", code, stderr)
	}
	if code, _, stderr := lameduck(t, "plan", inFiles(t, "  cluster: {nodes: 1}\n  scenario: {baseline: {}}\n  faults: [{drop-fin: {}}]\n", nil)); code != exitOK {
		t.Errorf("one node where nothing concerns it: exit code %d, stderr %q", code, stderr)
	}
}

func TestNarrow(t *testing.T) {
	e := harness.Experiment{
		Name: "x", Repeats: 1,
		TargetTypes: []harness.TargetType{harness.TargetInstance, harness.TargetIP},
		Connections: []harness.Connections{harness.ConnectionsPooled},
		Mitigations: []harness.Mitigation{{Name: "none"}, {Name: "my-own", Edits: []harness.Edit{{Field: "workload.gracePeriod", To: "60s"}}}},
		Exclude:     []harness.Selector{{TargetType: harness.TargetIP}, {Mitigation: "my-own", TargetType: harness.TargetInstance}},
	}
	got, err := runFlags{mitigations: []string{"my-own", "prestop-sleep-5s"}, connections: []string{"long-lived"}}.narrow(e)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Mitigations) != 2 || got.Mitigations[0].Edits[0].To != "60s" || got.Mitigations[1].Name != "prestop-sleep-5s" {
		t.Errorf("mitigations %+v, want the experiment's own and one of the catalogue", got.Mitigations)
	}
	if want := e.Exclude[:1]; !slices.Equal(got.Exclude, want) {
		t.Errorf("exclude %+v, want %+v", got.Exclude, want)
	}
	if got.Base.Load.LongLived != form.DefaultLongLived {
		t.Errorf("%d long-lived connections, want %d", got.Base.Load.LongLived, form.DefaultLongLived)
	}
	if got, err := (runFlags{repeats: 2}).narrow(e); err != nil || len(got.Exclude) != 2 || got.Base.Load.LongLived != 0 {
		t.Errorf("without those flags: %+v, %v", got, err)
	}
}

// A complete run ends with its verdict again.
func TestResumeOfACompleteRunHasItsVerdict(t *testing.T) {
	e, err := experiments.Builtin("scale-in")
	if err == nil {
		e, err = runFlags{mitigations: []string{"none"}, targets: []string{"instance"}, repeats: 1}.narrow(e)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		expected harness.Expected
		verdict  harness.Verdict
		attempts int
		code     int
	}{
		"not as expected": {harness.ExpectNone, harness.VerdictPass, 1, exitUnexpected},
		"no valid trial":  {harness.ExpectNone, harness.VerdictInvalid, harness.MaxAttempts, exitNoResult},
	} {
		t.Run(name, func(t *testing.T) {
			e.Expect = []harness.Expectation{{Failed: c.expected}}
			dir := finished(t, e, c.verdict, c.attempts)
			if code, _, stderr := lameduck(t, "run", "--resume", dir); code != c.code || !strings.Contains(stderr, "there is nothing to do") {
				t.Errorf("exit code %d, want %d; stderr %s", code, c.code, stderr)
			}
		})
	}
}

// finished is a complete record of one trial with a failed request.
func finished(t *testing.T, e harness.Experiment, verdict harness.Verdict, attempts int) string {
	t.Helper()
	plan, err := harness.Expand(e, "old")
	if err != nil {
		t.Fatal(err)
	}
	store, err := record.Create(t.TempDir(), harness.Run{Tool: version, ID: "old", Experiment: e, Plan: plan, Started: "2026-03-01T09:20:30Z"})
	if err != nil {
		t.Fatal(err)
	}
	for attempt := range attempts {
		trial := plan.Trials[0]
		trial.Attempt = attempt + 1
		rec, err := store.Create(trial)
		if err != nil {
			t.Fatal(err)
		}
		rec.Request(harness.Request{Outcome: harness.Outcome502})
		result := harness.TrialResult{Trial: trial, Verdict: verdict, Counts: map[harness.Outcome]int{harness.Outcome502: 1}}
		if err := rec.Finish(result); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Finish(harness.RunEnd{Complete: true, Ended: "2026-03-01T09:30:30Z"}); err != nil {
		t.Fatal(err)
	}
	return store.Dir()
}
