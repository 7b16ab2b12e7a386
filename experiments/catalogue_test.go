package experiments

import (
	"maps"
	"testing"
	"time"

	"lameduck/harness"
)

func TestEveryBuiltinExpandsAndIsAcceptedByItsScenario(t *testing.T) {
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			e, err := Builtin(name)
			if err != nil {
				t.Fatal(err)
			}
			if e.Name != name || e.About == "" {
				t.Errorf("name %q, about %q: want the catalogue's name and a sentence", e.Name, e.About)
			}
			plan, err := harness.Expand(e, "test")
			if err != nil {
				t.Fatal(err)
			}
			if want := len(plan.Cells) * e.Repeats; len(plan.Trials) != want || want == 0 {
				t.Errorf("%d trials, want %d", len(plan.Trials), want)
			}
			for _, trial := range plan.Trials {
				scenario, ok := Scenarios()[trial.Setup.Scenario.Name]
				if !ok {
					t.Fatalf("no scenario %q", trial.Setup.Scenario.Name)
				}
				if err := scenario.Check(trial.Setup); err != nil {
					t.Errorf("%s: %v", trial.Cell.Mitigation, err)
				}
			}
		})
	}
}

func TestScaleInHasTheCellsOfTheMainJob(t *testing.T) {
	e, err := Builtin("scale-in")
	if err != nil {
		t.Fatal(err)
	}
	plan, err := harness.Expand(e, "test")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]struct {
		expected     harness.Expected
		onSIGTERM    harness.OnSIGTERM
		sigtermWait  time.Duration
		preStopSleep time.Duration
		grace        time.Duration
	}{
		"instance none pooled":                        {harness.ExpectSome, harness.SIGTERMDrain, 0, 0, 30 * time.Second},
		"instance prestop-sleep-10s pooled":           {harness.ExpectNone, harness.SIGTERMDrain, 0, 10 * time.Second, 30 * time.Second},
		"instance sigterm-wait-10s pooled":            {harness.ExpectNone, harness.SIGTERMWait, 10 * time.Second, 0, 30 * time.Second},
		"instance prestop-sleep-40s-grace-30s pooled": {"", harness.SIGTERMDrain, 0, 40 * time.Second, 30 * time.Second},
		"ip none pooled":                              {harness.ExpectSome, harness.SIGTERMDrain, 0, 0, 30 * time.Second},
		"ip prestop-sleep-25s-grace-60s pooled":       {harness.ExpectNone, harness.SIGTERMDrain, 0, 25 * time.Second, time.Minute},
	}
	if len(plan.Cells) != len(want) || len(plan.Trials) != 18 {
		t.Fatalf("%d cells, %d trials; want %d and 18", len(plan.Cells), len(plan.Trials), len(want))
	}
	for _, trial := range plan.Trials {
		w, ok := want[trial.Cell.String()]
		if !ok {
			t.Fatalf("cell %v is not one of the main job's", trial.Cell)
		}
		got := trial.Setup.Workload
		if x := e.ExpectationFor(trial.Cell); x != w.expected {
			t.Errorf("%s: expected %q, want %q", trial.Cell.Mitigation, x, w.expected)
		}
		if got.OnSIGTERM != w.onSIGTERM || got.SIGTERMWait.Duration != w.sigtermWait ||
			got.PreStopSleep.Duration != w.preStopSleep || got.GracePeriod.Duration != w.grace {
			t.Errorf("%s: %+v, want %+v", trial.Cell.Mitigation, got, w)
		}
	}
}

// The cells of the other built-in experiments, and what is expected of each.
func TestCellsOfTheBuiltins(t *testing.T) {
	for name, want := range map[string]map[string]harness.Expected{
		"baseline": {"instance none pooled": "none", "ip none pooled": "none"},
		"blue-green": {
			"instance none pooled none": "some", "instance none pooled lost-fin": "some",
			"instance drain pooled none": "none", "instance drain pooled lost-fin": "",
			"ip none pooled none": "none", "ip none pooled lost-fin": "none",
		},
		"node-loss": {"instance none pooled": "some"},
		"node-scale-in": {
			"instance none pooled": "some", "instance hold-node-15s pooled": "some",
			"instance hold-node-15s-and-prestop-sleep-10s pooled": "none",
		},
		"pod-kill": {"instance none pooled": "some", "instance prestop-sleep-10s pooled": "some", "ip none pooled": "some"},
		"rolling-update": {
			"instance none pooled": "some", "instance max-unavailable-0 pooled": "some", "instance prestop-sleep-10s pooled": "none",
			"ip none pooled": "some", "ip readiness-gate-and-prestop-sleep-25s pooled": "none",
		},
		"scale-in-cpu": {"instance none pooled": "some", "instance prestop-sleep-10s pooled": "none"},
		"scale-in-metric": {
			"instance none pooled": "some", "instance prestop-sleep-10s pooled": "none", "instance hpa-one-pod-per-5s pooled": "",
		},
		"scale-in-exit": {
			"instance none pooled": "some", "instance prestop-sleep-10s pooled": "some",
			"instance drain-and-prestop-sleep-10s pooled": "none",
		},
	} {
		e, err := Builtin(name)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := harness.Expand(e, "test")
		if err != nil {
			t.Fatal(err)
		}
		got := make(map[string]harness.Expected)
		for _, c := range plan.Cells {
			got[c.String()] = e.ExpectationFor(c)
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: got %v\nwant %v", name, got, want)
		}
	}
	if all := len(Names()); all != 10 {
		t.Errorf("%d built-in experiments, want a test of each", all)
	}
}

// A request costs about a millisecond of CPU in all, so that two cores carry four
// such trials at a time.
func TestBuiltinsSendAHundredRequestsASecond(t *testing.T) {
	for _, name := range Names() {
		if e, err := Builtin(name); err != nil || e.Base.Load.Rate != 100 || e.Repeats != 3 {
			t.Errorf("%s: %d requests/s, %d repeats, error %v; want 100 and 3", name, e.Base.Load.Rate, e.Repeats, err)
		}
	}
}

func TestBuiltinsAreMadeAnew(t *testing.T) {
	first, _ := Builtin("scale-in")
	first.Expect[0].Failed = "changed"
	first.Mitigations[1].Edits[0].To = "changed"
	second, _ := Builtin("scale-in")
	if second.Expect[0].Failed == "changed" || second.Mitigations[1].Edits[0].To == "changed" {
		t.Error("a caller's change reached the catalogue")
	}
}

func TestUnknownExperiment(t *testing.T) {
	_, err := Builtin("scale-out")
	const want = `experiment "scale-out": want one of baseline, blue-green, node-loss, node-scale-in, pod-kill, rolling-update, ` +
		`scale-in, scale-in-cpu, scale-in-exit, scale-in-metric`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A mitigation that writes the grace period which is there already still
// changes the preStop sleep, and must not be taken for one that does nothing.
func TestGraceMitigationIsNotEmptyOnTheSameGrace(t *testing.T) {
	e, _ := Builtin("scale-in")
	m, err := Mitigation("prestop-sleep-40s-grace-30s")
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.Apply(e.Base)
	if err != nil {
		t.Fatal(err)
	}
	if s.Workload.PreStopSleep.Duration != 40*time.Second || s.Workload.GracePeriod != e.Base.Workload.GracePeriod {
		t.Errorf("got %s and %s", s.Workload.PreStopSleep, s.Workload.GracePeriod)
	}
}
