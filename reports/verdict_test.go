package reports

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lameduck/harness"
)

// measured is a cell of a mitigation whose disruption took some seconds.
func measured(name string, trials, failed int, seconds float64) Cell {
	c := Cell{Cell: harness.Cell{Mitigation: name}, Trials: trials, Requests: 1000 * trials, Failed: failed,
		WorstFailed: failed, Outcomes: map[harness.Outcome]int{harness.Outcome502: failed},
		Phases: map[string]float64{string(harness.PhaseScenario): seconds}}
	for i := range trials {
		n := (failed + i) / trials // spread
		c.PerTrial = append(c.PerTrial, harness.Tried{Requests: 1000, Failed: n})
	}
	return c
}

// reportOf is a report of the main experiment's mitigations with given cells.
func reportOf(cells ...Cell) Report {
	r := Report{Run: harness.Run{Experiment: anExperiment()}, Cells: cells, Complete: true}
	var kept []harness.Mitigation
	for _, m := range r.Run.Experiment.Mitigations {
		for _, c := range cells {
			if c.Mitigation == m.Name {
				kept = append(kept, m)
				break
			}
		}
	}
	r.Run.Experiment.Mitigations = kept
	return r
}

func TestVerdict(t *testing.T) {
	const sleep, wait = "prestop-sleep-10s", "sigterm-wait-10s"
	for _, c := range []struct {
		name          string
		cells         []Cell
		first, second string
		recommended   string
	}{
		{"both help", []Cell{measured("none", 3, 7, 4), measured(sleep, 3, 0, 14.8), measured(wait, 1, 0, 14)},
			"Without a mitigation 7 of 3000 requests failed in 3 trials (7 x 502), up to 7 in one trial, with at most 0.00 s between two successes.",
			"No request failed with prestop-sleep-10s (3 trials, disruption 14.8 s instead of 4.0 s) and sigterm-wait-10s (1 trial, 14.0 s).", sleep},
		{"the shorter one", []Cell{measured("none", 3, 7, 4), measured(sleep, 3, 0, 24), measured(wait, 3, 0, 14)},
			"Without a mitigation 7 of 3000", "No request failed with ", wait},
		{"one helps", []Cell{measured("none", 3, 7, 4), measured(sleep, 3, 2, 14), measured(wait, 3, 0, 14)},
			"Without a mitigation 7 of 3000", "No request failed with sigterm-wait-10s (3 trials, disruption 14.0 s instead of 4.0 s); " +
				"with prestop-sleep-10s 2 of 3000 still failed (2 x 502).", wait},
		{"none helps", []Cell{measured("none", 3, 7, 4), measured(sleep, 3, 2, 14)},
			"Without a mitigation 7 of 3000", "With prestop-sleep-10s 2 of 3000 still failed (2 x 502).", ""},
		{"one is not known", []Cell{measured("none", 3, 7, 4), measured(sleep, 0, 0, 0)},
			"Without a mitigation 7 of 3000", "Too few valid trials to tell about prestop-sleep-10s.", ""},
		{"known in one cell only", []Cell{measured("none", 3, 7, 4), measured(sleep, 3, 0, 14), measured(sleep, 0, 0, 0)},
			"Without a mitigation 7 of 3000", "Too few valid trials to tell about prestop-sleep-10s.", ""},
		{"nothing was needed", []Cell{measured("none", 3, 0, 4), measured(sleep, 3, 0, 14)},
			"Without a mitigation no request failed in 3 trials (so at most 64 % of such disruptions have a failure, at 95 % confidence).",
			"No request failed with prestop-sleep-10s", ""},
		{"only none", []Cell{measured("none", 1, 7, 4)}, "Without a mitigation 7 of 1000", "No mitigation was tried.", ""},
		{"none is not known", []Cell{measured("none", 0, 0, 0), measured(sleep, 3, 0, 14)},
			"What happens without a mitigation is not known: no such trial is valid.", "No request failed with prestop-sleep-10s (3 trials).", ""},
		{"without none", []Cell{measured(sleep, 3, 0, 14)},
			"The run has no cell without a mitigation, so it can not tell what one is good for.", "No request failed with prestop-sleep-10s (3 trials).", ""},
		{"too little to go by", []Cell{measured("none", 1, 7, 4), measured(sleep, 1, 0, 14)},
			"Without a mitigation 7 of 1000", "No request failed with prestop-sleep-10s", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := reportOf(c.cells...)
			first, second := verdict(r)
			if !strings.HasPrefix(first, c.first) || !strings.HasPrefix(second, c.second) {
				t.Errorf("got\n%s\n%s\nwant\n%s\n%s", first, second, c.first, c.second)
			}
			o, ok := recommended(r)
			if ok != (c.recommended != "") || o.Name != c.recommended {
				t.Errorf("recommended %q, want %q", o.Name, c.recommended)
			}
		})
	}
}

// However narrow the terminal, a table says the same; from 76 columns on the
// one of the fixture fits.
func TestTableFits(t *testing.T) {
	cells := read(t, aRun(t)).Cells
	for width := 40; width < 160; width += 6 {
		table, same, err := fitTable(cells, width)
		if err != nil {
			t.Fatal(err)
		}
		if width >= 76 && widest(table) > width {
			t.Errorf("width %d: the table has %d columns\n%s", width, widest(table), table)
		}
		all := table + strings.Join(same, "\n")
		for _, want := range []string{"105", "5400", "instance", "pooled", "0.96 s", "none ok"} {
			if !strings.Contains(all, want) {
				t.Errorf("width %d: no %s in\n%s", width, want, all)
			}
		}
	}
}

func TestWrap(t *testing.T) {
	for _, c := range []struct {
		width int
		want  string
	}{
		{0, "one two  three\n"},
		{7, "one two\n  three\n"},
		{5, "one\n  two\n  three\n"},
		{80, "one two three\n"},
	} {
		if got := wrap("one two  three", c.width, "  "); got != c.want {
			t.Errorf("width %d: %q, want %q", c.width, got, c.want)
		}
	}
}

func TestBoundIsRoundedUp(t *testing.T) {
	for n, want := range map[int]string{1: "95 %", 2: "78 %", 3: "64 %", 5: "46 %", 58: "6 %", 300: "1 %"} {
		if got := boundText(upperBound(n)); got != want {
			t.Errorf("%d trials: %s (%f), want %s", n, got, upperBound(n), want)
		}
	}
	for n := 1; n < 100; n++ {
		var percent int
		if _, err := fmt.Sscanf(boundText(upperBound(n)), "%d %%", &percent); err != nil {
			t.Fatal(err)
		}
		if share := float64(percent) / 100; share < upperBound(n)-1e-9 {
			t.Errorf("%d trials: %d %% is less than the bound %f", n, percent, upperBound(n))
		}
	}
}

// What helps with one target type is not recommended for another.
func TestVerdictsAreGivenForEachTargetType(t *testing.T) {
	const sleep = "prestop-sleep-10s"
	var cells []Cell
	for target, failedWithSleep := range map[harness.TargetType]int{harness.TargetInstance: 0, harness.TargetIP: 9} {
		none, helped := measured("none", 3, 7, 4), measured(sleep, 3, failedWithSleep, 14)
		none.TargetType, helped.TargetType = target, target
		cells = append(cells, none, helped)
	}
	r := reportOf(cells...)
	got := verdicts(r)
	if len(got) != 2 {
		t.Fatalf("%d verdicts, want 2", len(got))
	}
	for _, v := range got {
		instance := strings.HasPrefix(v[0], "Instance targets: without a mitigation 7 of 3000")
		ip := strings.HasPrefix(v[0], "IP targets: without a mitigation 7 of 3000")
		if !instance && !ip || instance != strings.HasPrefix(v[1], "No request failed with "+sleep) || ip != strings.HasPrefix(v[1], "With "+sleep+" 9 of 3000") {
			t.Errorf("verdict %q", v)
		}
	}
	if o, ok := recommended(r.of(group{target: harness.TargetInstance})); !ok || o.Name != sleep {
		t.Errorf("instance: recommended %q, want %q", o.Name, sleep)
	}
	if o, ok := recommended(r.of(group{target: harness.TargetIP})); ok {
		t.Errorf("ip: recommended %q, want none", o.Name)
	}
}

// Where nothing is done to the pods, nothing is called a disruption.
func TestVerdictOfTheBaseline(t *testing.T) {
	r := reportOf(measured("none", 3, 0, 20), measured("prestop-sleep-10s", 3, 0, 20))
	r.Run.Experiment.Base.Scenario = harness.ScenarioSpec{Name: "baseline", Length: harness.Dur(20 * time.Second)}
	first, second := verdict(r)
	all := first + second + bounds(r)
	if strings.Contains(all, "disruption") || !strings.Contains(first, "(so at most 64 % of such trials have a failure,") {
		t.Errorf("got %s", all)
	}
}

func TestScenarioText(t *testing.T) {
	setup := anExperiment().Base
	for want, spec := range map[string]harness.ScenarioSpec{
		"hpa-scale-in from 6 to 2 pods, driven by bounds":                            {Name: "hpa-scale-in", To: 2, Drive: harness.DriveBounds},
		"blue-green, traffic moved by weights, the old pods kept for 30s after that": {Name: "blue-green", Shift: harness.ShiftWeights, KeepOld: harness.Dur(30 * time.Second)},
		"node-scale-in, the empty node kept for 5s":                                  {Name: "node-scale-in", HoldNode: harness.Dur(5 * time.Second)},
		"pod-kill, 1 pod killed":                                                     {Name: "pod-kill", Pods: 1},
		"rolling-update":                                                             {Name: "rolling-update"},
		"baseline, nothing is done for 20s":                                          {Name: "baseline", Length: harness.Dur(20 * time.Second)},
	} {
		setup.Scenario = spec
		if got := scenarioText(setup); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestWorkloadText(t *testing.T) {
	for want, app := range map[string]harness.App{
		"3 pods of the image shop:1, grace period 30s":                   {Image: "shop:1"},
		"3 pods of manifests of your own, Service web, grace period 30s": {Manifests: "kind: Service", Service: "web"},
	} {
		w := harness.Workload{Replicas: 3, App: &app, GracePeriod: harness.Dur(30 * time.Second)}
		if got := workloadText(w); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
