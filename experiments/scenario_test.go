package experiments

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lameduck/harness"
)

// able can do everything that a scenario may ask for, and notes what and when.
type able struct {
	*pods
	start time.Time
	err   map[string]error
}

func newAble() *able { return &able{pods: &pods{now: six}, start: time.Now()} }

// note is a call that takes a second.
func (a *able) note(ctx context.Context, call string) error {
	a.calls = append(a.calls, fmt.Sprintf("%s at %s", call, time.Since(a.start)))
	if err := a.err[call]; err != nil {
		return err
	}
	return harness.Sleep(ctx, time.Second)
}

func (a *able) AddGreen(ctx context.Context) error            { return a.note(ctx, "green") }
func (a *able) Cutover(ctx context.Context) error             { return a.note(ctx, "cutover") }
func (a *able) DeleteBlue(ctx context.Context) (int, error)   { return 6, a.note(ctx, "delete") }
func (a *able) Rollout(ctx context.Context) (int, error)      { return 6, a.note(ctx, "rollout") }
func (a *able) KillPods(ctx context.Context, n int) error     { return a.note(ctx, fmt.Sprint("kill ", n)) }
func (a *able) DrainNode(ctx context.Context) (int, error)    { return 3, a.note(ctx, "drain") }
func (a *able) RemoveNode(ctx context.Context) error          { return a.note(ctx, "remove") }
func (a *able) LoseNode(ctx context.Context) (n int, e error) { return 2, a.note(ctx, "lose") }

// scenarioSetup is a setup that the scenario accepts.
func scenarioSetup(name string) harness.Setup {
	s := harness.Setup{
		Workload: harness.Workload{Replicas: 6, GracePeriod: harness.Dur(30 * time.Second), CPURequest: "50m"},
		Scenario: harness.ScenarioSpec{Name: name, Limit: harness.Dur(2 * time.Minute)},
	}
	switch spec := &s.Scenario; name {
	case BaselineName:
		spec.Length = harness.Dur(10 * time.Second)
	case BlueGreenName:
		spec.Shift, spec.KeepOld = harness.ShiftSelector, harness.Dur(15*time.Second)
	case HPAScaleInName:
		spec.To, spec.Drive = 2, harness.DriveBounds
	case NodeLossName:
		spec.Length = harness.Dur(time.Minute)
	case NodeScaleInName:
		spec.HoldNode = harness.Dur(20 * time.Second)
	case PodKillName:
		spec.Pods = 2
	}
	return s
}

func TestScenariosDoTheirStepsInOrder(t *testing.T) {
	for name, want := range map[string]struct {
		calls     string
		did       harness.Disruption
		exclusive bool
	}{
		BaselineName:      {"", harness.Disruption{}, false},
		BlueGreenName:     {"green at 0s, cutover at 1s, delete at 17s", harness.Disruption{Deleted: 6}, false},
		NodeLossName:      {"lose at 0s", harness.Disruption{Lost: 2}, true},
		NodeScaleInName:   {"drain at 0s, remove at 21s, wait 6", harness.Disruption{Deleted: 3}, true},
		PodKillName:       {"kill 2 at 0s", harness.Disruption{Deleted: 2}, false},
		RollingUpdateName: {"rollout at 0s", harness.Disruption{Deleted: 6}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sc, s, d := Scenarios()[name], scenarioSetup(name), newAble()
				if err := sc.Check(s); err != nil {
					t.Fatal(err)
				}
				if p, ok := sc.(harness.Preparer); ok {
					if err := p.Prepare(t.Context(), s, d); err != nil {
						t.Fatal(err)
					}
				}
				did, err := sc.Run(t.Context(), s, d)
				if err != nil || did != want.did {
					t.Errorf("did %+v, error %v; want %+v", did, err, want.did)
				}
				if got := strings.Join(d.calls, ", "); got != want.calls {
					t.Errorf("calls %q, want %q", got, want.calls)
				}
				if x, ok := sc.(harness.Exclusive); (ok && x.Exclusive()) != want.exclusive {
					t.Errorf("exclusive is not %t", want.exclusive)
				}
			})
		})
	}
}

func TestBaselineAndNodeLossLastTheirLength(t *testing.T) {
	for name, want := range map[string]time.Duration{BaselineName: 10 * time.Second, NodeLossName: time.Minute + time.Second} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			if _, err := Scenarios()[name].Run(t.Context(), scenarioSetup(name), newAble()); err != nil || time.Since(start) != want {
				t.Errorf("%s: lasted %s, error %v; want %s", name, time.Since(start), err, want)
			}
		})
	}
}

// A scenario says so when the deployment lacks what it needs.
func TestMissingAbilities(t *testing.T) {
	for name, want := range map[string]string{
		BlueGreenName:     "this deployment cannot have a second set of pods: choose another scenario",
		NodeLossName:      "this cluster's nodes cannot be taken away: choose another scenario, or --provider embedded",
		NodeScaleInName:   "this cluster's nodes cannot be taken away: choose another scenario, or --provider embedded",
		PodKillName:       "this deployment's pods cannot be killed: choose another scenario",
		RollingUpdateName: "this deployment has no rolling update: choose another scenario",
	} {
		sc, s, d := Scenarios()[name], scenarioSetup(name), &pods{now: six}
		if _, err := sc.Run(t.Context(), s, d); err == nil || err.Error() != want {
			t.Errorf("%s: got %v\nwant %s", name, err, want)
		}
		if p, ok := sc.(harness.Preparer); ok {
			if err := p.Prepare(t.Context(), s, d); err == nil || err.Error() != want {
				t.Errorf("prepare %s: got %v\nwant %s", name, err, want)
			}
		}
	}
}

// Each step's error comes back with what was being done.
func TestStepsThatFail(t *testing.T) {
	for _, c := range []struct{ scenario, call, want string }{
		{BlueGreenName, "green", "add Green: refused"},
		{BlueGreenName, "cutover", "cut over to Green: refused"},
		{BlueGreenName, "delete", "delete Blue: refused"},
		{RollingUpdateName, "rollout", "roll out: refused"},
		{PodKillName, "kill 2", "kill pods: refused"},
		{NodeScaleInName, "drain", "drain a node: refused"},
		{NodeScaleInName, "remove", "remove the node: refused"},
		{NodeLossName, "lose", "lose a node: refused"},
	} {
		synctest.Test(t, func(t *testing.T) {
			sc, s, d := Scenarios()[c.scenario], scenarioSetup(c.scenario), newAble()
			d.err = map[string]error{c.call: errors.New("refused")}
			var err error
			if p, ok := sc.(harness.Preparer); ok {
				err = p.Prepare(t.Context(), s, d)
			}
			if err == nil {
				_, err = sc.Run(t.Context(), s, d)
			}
			if err == nil || err.Error() != c.want {
				t.Errorf("%s: got %v, want %s", c.scenario, err, c.want)
			}
		})
	}
}

// Every scenario ends with its context, wherever it is, and names the limit.
func TestScenariosEndWithTheLimit(t *testing.T) {
	for name, sc := range Scenarios() {
		if name == HPAScaleInName { // see TestScenarioErrors
			continue
		}
		for _, after := range []time.Duration{500 * time.Millisecond, 1500 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), after)
				defer cancel()
				start := time.Now()
				_, err := sc.Run(ctx, scenarioSetup(name), newAble())
				done := err == nil && after > time.Second && (name == PodKillName || name == RollingUpdateName) // these are over in a second
				if !done && (!errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "scenario.limit (2m0s) is over") || time.Since(start) != after) {
					t.Errorf("%s after %s: ended after %s with %v", name, after, time.Since(start), err)
				}
			})
		}
	}
}

func TestChecksOfScenarios(t *testing.T) {
	second := harness.Dur(time.Second)
	for _, c := range []struct {
		scenario string
		edit     func(*harness.Setup)
		want     string
	}{
		{BaselineName, func(s *harness.Setup) { s.Scenario.Length = harness.Duration{} }, "scenario.length is 0s: want more than 0s, such as 10s"},
		{BaselineName, func(s *harness.Setup) { s.Scenario.Length = s.Scenario.Limit }, "scenario.limit is 2m0s: want more than scenario.length (2m0s)"},
		{BaselineName, func(s *harness.Setup) { s.Scenario.Length = harness.Dur(-time.Second) },
			"scenario.length is -1s: want 0s or more"},
		{BaselineName, func(s *harness.Setup) { s.Scenario.To, s.Scenario.Pods = 2, 1 },
			"scenario.to has no effect on baseline: leave it out\nscenario.pods has no effect on baseline: leave it out"},
		{BlueGreenName, func(s *harness.Setup) { s.Scenario.Shift = "dns" }, `scenario.shift is "dns": want selector or weights`},
		{BlueGreenName, func(s *harness.Setup) { s.Scenario.KeepOld = harness.Dur(90 * time.Second) },
			"scenario.limit is 2m0s: want more than workload.gracePeriod (30s) and scenario.keepOld (1m30s)"},
		{BlueGreenName, func(s *harness.Setup) { s.Scenario.HoldNode = second }, "scenario.holdNode has no effect on blue-green: leave it out"},
		{HPAScaleInName, func(s *harness.Setup) { s.Scenario.KeepOld = second }, "scenario.keepOld has no effect on hpa-scale-in: leave it out"},
		{NodeLossName, func(s *harness.Setup) {
			s.Scenario.Length, s.Scenario.Limit = harness.Dur(5*time.Minute), harness.Dur(time.Hour)
		},
			"scenario.length is 5m0s: want more than 0s and at most 4m0s; with 1m0s the cluster's own reaction is seen too"},
		{NodeLossName, func(s *harness.Setup) { s.Scenario.Shift = harness.ShiftWeights }, "scenario.shift has no effect on node-loss: leave it out"},
		{NodeScaleInName, func(s *harness.Setup) { s.Workload.PodDisruptionBudget = "6" },
			`workload.podDisruptionBudget is "6": want less than workload.replicas (6), or no pod may be evicted`},
		{NodeScaleInName, func(s *harness.Setup) { s.Workload.PodDisruptionBudget = "100%" },
			`workload.podDisruptionBudget is "100%": want less than 100%, or no pod may be evicted`},
		{NodeScaleInName, func(s *harness.Setup) { s.Scenario.Length = second }, "scenario.length has no effect on node-scale-in: leave it out"},
		{PodKillName, func(s *harness.Setup) { s.Scenario.Pods = 7 }, "scenario.pods is 7: want 1..workload.replicas (6)"},
		{PodKillName, func(s *harness.Setup) { s.Scenario.Drive = harness.DriveCPU }, "scenario.drive has no effect on pod-kill: leave it out"},
		{RollingUpdateName, func(s *harness.Setup) { s.Workload.MinReadySeconds = 90 },
			"scenario.limit is 2m0s: want more than workload.gracePeriod (30s) and workload.minReadySeconds (1m30s)"},
		{RollingUpdateName, func(s *harness.Setup) { s.Scenario.To = 2 }, "scenario.to has no effect on rolling-update: leave it out"},
	} {
		s := scenarioSetup(c.scenario)
		c.edit(&s)
		if err := Scenarios()[c.scenario].Check(s); err == nil || err.Error() != c.want {
			t.Errorf("%s: got %v\nwant %s", c.scenario, err, c.want)
		}
	}
}

func TestEveryScenarioHasOneLineAboutIt(t *testing.T) {
	seen := make(map[string]bool)
	for name, sc := range Scenarios() {
		about := sc.About()
		if about == "" || strings.Contains(about, "\n") || seen[about] {
			t.Errorf("%s: about %q: want a line of its own", name, about)
		}
		seen[about] = true
		if err := sc.Check(scenarioSetup(name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
