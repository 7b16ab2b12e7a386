package harness

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Every test here runs in a bubble with a fake clock (testing/synctest), so
// that windows of seconds take no time.

func testSetup() Setup {
	return Setup{
		Workload: Workload{
			Replicas: 6, OnSIGTERM: SIGTERMDrain, GracePeriod: Dur(30 * time.Second),
			ResponseTime: ResponseTime{P50: Dur(20 * time.Millisecond), P99: Dur(80 * time.Millisecond)}, CPURequest: "50m",
		},
		LoadBalancer: LoadBalancer{TargetType: TargetInstance, IdleTimeout: Dur(time.Minute)},
		Load: Load{
			Rate: 90, ControlRate: 10, Connections: ConnectionsPooled, Timeout: Dur(5 * time.Second),
			Baseline: Dur(5 * time.Second), Settle: Dur(5 * time.Second),
		},
		Scenario: ScenarioSpec{Name: "fake", To: 2, Limit: Dur(time.Minute)},
	}
}

func testExperiment(mitigations ...Mitigation) Experiment {
	if len(mitigations) == 0 {
		mitigations = []Mitigation{{Name: "none"}}
	}
	return Experiment{
		Name: "test", Base: testSetup(), Repeats: 1, Mitigations: mitigations,
		TargetTypes: []TargetType{TargetInstance}, Connections: []Connections{ConnectionsPooled},
	}
}

// world is a runner whose every part behaves, for tests to disturb.
type world struct {
	Runner
	world    *fakeWorld
	attacker *fakeAttacker
	store    *memoryStore
	busy     uint64 // percent
}

func newTestWorld() *world {
	w := &world{world: &fakeWorld{live: asAsked, deletions: 4}, attacker: &fakeAttacker{}, store: &memoryStore{}, busy: 50}
	w.Runner = Runner{
		World: w.world, Attacker: w.attacker, Store: w.store, Parallel: 1, CPU: w.cpu,
		Scenarios: map[string]Scenario{"fake": fakeScenario{takes: 3 * time.Second}},
	}
	return w
}

// cpu reads as a machine that is always equally busy.
func (w *world) cpu() (CPUTimes, bool) {
	ticks := uint64(time.Now().UnixMilli())
	return CPUTimes{Busy: ticks * w.busy, Idle: ticks * (100 - w.busy)}, true
}

func (w *world) run(t *testing.T, ctx context.Context, e Experiment) ([]TrialResult, error) {
	t.Helper()
	plan, err := Expand(e, "id")
	if err != nil {
		t.Fatal(err)
	}
	return w.Run(ctx, e, plan)
}

func TestTrialPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld()
		w.attacker.dirty = 2
		var phases []Phase
		w.Progress = func(p Progress) { phases = append(phases, p.Phase) }
		results, err := w.run(t, t.Context(), testExperiment())
		if err != nil || len(results) != 1 {
			t.Fatalf("got %d results, error %v", len(results), err)
		}
		r := results[0]
		if r.Verdict != VerdictPass || r.Reason != "" {
			t.Errorf("verdict %s (%s), want pass", r.Verdict, r.Reason)
		}
		want := []Phase{PhaseDeploy, PhaseWarmUp, PhaseBaseline, PhaseScenario, PhaseSettle, PhaseDrain, PhaseRemove, PhaseDone}
		if !slices.Equal(phases, want) {
			t.Errorf("phases %v, want %v", phases, want)
		}
		for phase, seconds := range map[Phase]float64{PhaseBaseline: 5, PhaseScenario: 3, PhaseSettle: 5} {
			if got := r.Phases[string(phase)]; got != seconds {
				t.Errorf("phase %s took %g s of the fake clock, want %g", phase, got, seconds)
			}
		}
		if w.attacker.warms != 3 {
			t.Errorf("%d warm-ups, want 3: two with failures, one clean", w.attacker.warms)
		}
		rec := w.store.trials[0]
		var marks []string
		for _, e := range rec.events {
			if e.Kind == EventMark {
				marks = append(marks, e.Object)
			}
		}
		if !slices.Equal(marks, []string{MarkAttack, MarkScenario, MarkScenarioEnd, MarkAttackEnd}) {
			t.Errorf("marks %v", marks)
		}
		app := 0
		for _, q := range rec.requests {
			if !q.Control {
				app++
			}
		}
		if app == 0 || r.Counts[OutcomeOK] != app {
			t.Errorf("counted %v, but %d requests are on record", r.Counts, app)
		}
		if rec.result == nil || rec.abandoned {
			t.Error("the trial's result was not written")
		}
		if w.world.removed != 1 {
			t.Errorf("removed %d times, want once", w.world.removed)
		}
	})
}

// Each case disturbs one thing; the gate that is named must be the one that
// makes the trial invalid, and the deployment must be removed all the same.
func TestInvalidTrials(t *testing.T) {
	failBefore := func(limit time.Duration, control bool, o Outcome) func(time.Duration, bool) Outcome {
		return func(at time.Duration, c bool) Outcome {
			if at < limit && c == control {
				return o
			}
			return OutcomeOK
		}
	}
	for name, c := range map[string]struct {
		disturb func(*world)
		reason  string
	}{
		"not live": {func(w *world) {
			w.world.live = func(s Setup) Live {
				live := asAsked(s)
				live.Pods[3].Settings["workload.preStopSleep"] = "1s"
				return live
			}
		}, "mitigation live: pod app-3: workload.preStopSleep is 1s, want 0s"},
		"pod missing": {func(w *world) {
			w.world.live = func(s Setup) Live {
				live := asAsked(s)
				live.Pods = live.Pods[1:]
				return live
			}
		}, "mitigation live: 5 running pods"},
		"baseline":  {func(w *world) { w.attacker.outcome = failBefore(time.Second, false, Outcome502) }, "clean baseline: "},
		"control":   {func(w *world) { w.attacker.outcome = failBefore(time.Hour, true, OutcomeTimeout) }, "control target: "},
		"generator": {func(w *world) { w.attacker.outcome = generatorLate }, "generator: "},
		"rate":      {func(w *world) { w.attacker.stats = func(s *AttackStats) { s.AchievedRate *= 0.94 } }, "rate: 94.0 requests per second of 100"},
		"lateness":  {func(w *world) { w.attacker.stats = func(s *AttackStats) { s.LatenessP99 = time.Second } }, "lateness: "},
		"pause":     {func(w *world) { w.attacker.stats = func(s *AttackStats) { s.LatenessMax = 151 * time.Millisecond } }, "pauses: the longest was 151ms"},
		"slow control": {func(w *world) {
			w.attacker.edit = func(q *Request) {
				if q.Control {
					q.Latency = 501 * time.Millisecond
				}
			}
		}, "control answers: the control target's slowest answer took 501ms"},
		"part died": {func(w *world) {
			looks := 0 // twice in each of the two attempts
			w.world.parts = func() map[string]string {
				looks++
				return map[string]string{"n1/kubelet": "12", "n1/kube-proxy": map[int]string{1: "13", 0: ""}[looks%2]}
			}
		}, "cluster: n1/kube-proxy: stopped or started anew"},
		"early deletion": {func(w *world) { w.world.early = 1 }, "disruption: 1 pods were deleted before the scenario"},
		"retry":          {func(w *world) { w.attacker.edit = func(q *Request) { q.Attempts = 2 } }, "no retries: "},
		"no disruption":  {func(w *world) { w.world.deletions = 3 }, "disruption: 3 pods"},
		"CPU":            {func(w *world) { w.busy = 100 }, "CPU: 100 % busy on average"},
		"deploy":         {func(w *world) { w.world.deployErr = errors.New("no room") }, "measured: deploy: no room"},
		"warm up":        {func(w *world) { w.attacker.dirty = 1000 }, "measured: warm up: no clean half second"},
		"attack":         {func(w *world) { w.attacker.err = errors.New("worker died") }, "measured: attack: worker died"},
		"scenario": {func(w *world) {
			w.Scenarios = map[string]Scenario{"fake": fakeScenario{err: errors.New("HPA did nothing")}}
		}, "measured: attack: scenario fake: HPA did nothing"},
		"scenario limit": {func(w *world) {
			w.Scenarios = map[string]Scenario{"fake": fakeScenario{takes: time.Hour}}
		}, "measured: attack: scenario fake: context deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTestWorld()
				c.disturb(w)
				results, err := w.run(t, t.Context(), testExperiment())
				// A disturbed trial is tried once more.
				if err != nil || len(results) != 2 {
					t.Fatalf("got %d results, error %v", len(results), err)
				}
				r := results[1]
				if r.Trial.Attempt != 2 || r.Trial.Number != results[0].Trial.Number {
					t.Errorf("the second result is of attempt %d of trial %d", r.Trial.Attempt, r.Trial.Number)
				}
				if r.Verdict != VerdictInvalid || !strings.HasPrefix(r.Reason, c.reason) {
					t.Errorf("verdict %s, reason %q; want invalid, %q", r.Verdict, r.Reason, c.reason)
				}
				if w.world.removed != w.world.deployed {
					t.Errorf("%d deployed, %d removed", w.world.deployed, w.world.removed)
				}
				if w.store.trials[0].result == nil {
					t.Error("the invalid result was not written")
				}
			})
		})
	}
}

// generatorLate fails one kind of request by the generator's fault, after the
// baseline, so that no other gate sees it.
func generatorLate(at time.Duration, control bool) Outcome {
	if at > 7*time.Second && !control {
		return OutcomeGenerator
	}
	return OutcomeOK
}

func TestFailuresAfterTheBaselineAreTheResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld()
		w.attacker.outcome = func(at time.Duration, control bool) Outcome {
			if at > 6*time.Second && at < 6500*time.Millisecond && !control {
				return Outcome502
			}
			return OutcomeOK
		}
		e := testExperiment()
		e.Expect = []Expectation{{Failed: ExpectNone}}
		results, err := w.run(t, t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		r := results[0]
		if r.Verdict != VerdictFail || r.Counts[Outcome502] == 0 {
			t.Errorf("verdict %s, counts %v; want fail with 502s", r.Verdict, r.Counts)
		}
	})
}

func TestInterruptRemovesAndAbandons(t *testing.T) {
	interrupted := errors.New("interrupted")
	// One moment in each phase of the first trial.
	for _, after := range []time.Duration{0, 2 * time.Second, 6 * time.Second, 9 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			w := newTestWorld()
			e := testExperiment()
			e.Repeats = 3
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(after, func() { cancel(interrupted) })
			results, err := w.run(t, ctx, e)
			if !errors.Is(err, interrupted) || len(results) != 0 {
				t.Errorf("after %s: %d results, error %v; want none, interrupted", after, len(results), err)
			}
			if w.world.removed != w.world.deployed {
				t.Errorf("after %s: %d deployed, %d removed", after, w.world.deployed, w.world.removed)
			}
			for _, rec := range w.store.trials {
				if !rec.abandoned || rec.result != nil {
					t.Errorf("after %s: an interrupted trial was recorded as complete", after)
				}
			}
		})
	}
}

func TestFullDiskEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld()
		w.store.failWriteAfter = 50
		e := testExperiment()
		e.Repeats = 3
		results, err := w.run(t, t.Context(), e)
		if !errors.Is(err, errDiskFull) || len(results) != 0 {
			t.Errorf("%d results, error %v; want none and the disk's error", len(results), err)
		}
		if w.world.deployed != 1 || w.world.removed != 1 {
			t.Errorf("%d deployed, %d removed; want one each: the run must stop at the first", w.world.deployed, w.world.removed)
		}
	})
}

func TestParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld()
		w.Parallel = 3
		e := testExperiment()
		e.Repeats = 7
		results, err := w.run(t, t.Context(), e)
		if err != nil || len(results) != 7 {
			t.Fatalf("got %d results, error %v", len(results), err)
		}
		if w.world.most != 3 {
			t.Errorf("%d trials at a time, want 3", w.world.most)
		}
	})
}

func TestRemoveFailureEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld()
		w.world.removeErr = errors.New("namespace is stuck")
		e := testExperiment()
		e.Repeats = 3
		if _, err := w.run(t, t.Context(), e); err == nil || !strings.Contains(err.Error(), "namespace is stuck") {
			t.Errorf("error %v; want the failed removal: what is left would disturb the next trial", err)
		}
	})
}

func TestUnknownScenarioIsRefusedBeforeAnything(t *testing.T) {
	w := newTestWorld()
	e := testExperiment()
	e.Base.Scenario.Name = "earthquake"
	if _, err := w.run(t, t.Context(), e); err == nil || !strings.Contains(err.Error(), `"earthquake"`) {
		t.Errorf("error %v; want one that names the scenario", err)
	}
	if len(w.store.trials) != 0 {
		t.Error("a record was made for a plan that can not run")
	}
}

// The load outlasts the time for which a node of the load balancer may still
// send requests to what is gone. The scenario takes 3 s, and what it does comes
// at its start.
func TestSettleOutlastsTheDeregistrationLag(t *testing.T) {
	drain := func(d *fakeDeployment) Disruption {
		d.event(EventNodeDrained, "n2")
		return Disruption{}
	}
	lose := func(d *fakeDeployment) Disruption {
		d.event(EventNodeLost, "n2")
		return Disruption{Lost: 2}
	}
	for name, c := range map[string]struct {
		edit func(*Setup)
		does func(*fakeDeployment) Disruption
		want float64
	}{
		"instance": {func(*Setup) {}, nil, 5},
		"ip":       {func(s *Setup) { s.LoadBalancer.TargetType = TargetIP }, nil, 20 - 3 + 5},
		"node":     {func(*Setup) {}, drain, 20 - 3 + 5},
		"lost":     {func(*Setup) {}, lose, 12 + 5},
		"local":    {func(s *Setup) { s.LoadBalancer.ExternalTrafficPolicy = TrafficLocal }, nil, 12 + 5},
		"late": {func(s *Setup) {
			s.LoadBalancer.TargetType = TargetIP
			s.Faults = []Fault{{Kind: FaultLateDeregistration, Lag: DurationRange{time.Minute, time.Minute}}}
		}, nil, 60 - 3 + 5},
		"throttled": {func(s *Setup) {
			s.LoadBalancer.TargetType = TargetIP
			s.Faults = []Fault{{Kind: FaultThrottledAPI, Every: Dur(30 * time.Second)}}
		}, nil, 20 - 3 + 30 + 5},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTestWorld()
				w.Scenarios = map[string]Scenario{"fake": fakeScenario{takes: 3 * time.Second, does: c.does}}
				e := testExperiment()
				e.Base.LoadBalancer.DeregistrationLag = DurationRange{5 * time.Second, 20 * time.Second}
				c.edit(&e.Base)
				e.TargetTypes = []TargetType{e.Base.LoadBalancer.TargetType}
				results, err := w.run(t, t.Context(), e)
				if err != nil || len(results) != 1 {
					t.Fatalf("got %d results, error %v", len(results), err)
				}
				if got := results[0].Phases[string(PhaseSettle)]; got != c.want {
					t.Errorf("settled for %g s, want %g", got, c.want)
				}
			})
		})
	}
}
