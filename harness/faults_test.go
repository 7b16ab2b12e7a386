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

// breaks are the steps of the log that are about faults.
func breaks(log []string) []string {
	return slices.DeleteFunc(slices.Clone(log), func(line string) bool {
		return !strings.HasPrefix(line, "break ") && !strings.HasPrefix(line, "mend ")
	})
}

// The baseline takes 5 s, the scenario 3 s and the settling 5 s after the 12 s in
// which health checks notice what a lost deregistration did not tell.
func TestFaultsBeginWithTheScenarioAndEndInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld()
		w.world.faulty = true
		e := testExperiment()
		e.Base.Faults = []Fault{
			{Kind: FaultDropFIN},
			{Kind: FaultLinkDown, For: Dur(2 * time.Second)},
			{Kind: FaultPausedKubelet, For: Dur(time.Hour)},
			{Kind: FaultLostDeregistration}, // is deployed
		}
		results, err := w.run(t, t.Context(), e)
		if err != nil || len(results) != 1 || results[0].Verdict != VerdictPass {
			t.Fatalf("got %+v, error %v", results, err)
		}
		got := breaks(w.world.log)
		want := []string{"break drop-fin at 5s", "break link-down at 5s", "break paused-kubelet at 5s", "mend link-down at 7s"}
		if !slices.Equal(got[:min(len(got), 4)], want) {
			t.Errorf("steps %q, want %q first", got, want)
		}
		for _, line := range []string{"mend drop-fin at 25s", "mend paused-kubelet at 25s"} {
			if !slices.Contains(got, line) {
				t.Errorf("steps %q lack %q", got, line)
			}
		}
		if len(got) != 6 {
			t.Errorf("steps %q, want each fault once", got)
		}
		events := make(map[EventKind]int)
		for _, ev := range w.store.trials[0].events {
			events[ev.Kind]++
		}
		if events[EventFault] != 3 || events[EventFaultMended] != 3 {
			t.Errorf("%d begun and %d mended faults are on record, want 3 each", events[EventFault], events[EventFaultMended])
		}
		if i := slices.Index(w.world.log, "remove 1.1"); i != len(w.world.log)-1 {
			t.Errorf("removed before all was mended: %q", w.world.log)
		}
	})
}

// Whatever ends a trial, what was broken is mended.
func TestFaultsAreMendedInEveryCase(t *testing.T) {
	interrupted := errors.New("interrupted")
	for name, c := range map[string]struct {
		disturb func(w *world, cancel context.CancelCauseFunc)
		reason  string // of the invalid trial; "": the run ends
		mended  string
	}{
		"Ctrl-C": {func(_ *world, cancel context.CancelCauseFunc) {
			time.AfterFunc(6*time.Second, func() { cancel(interrupted) })
		}, "", "mend drop-fin at 6s"},
		"scenario fails": {func(w *world, _ context.CancelCauseFunc) {
			w.Scenarios = map[string]Scenario{"fake": fakeScenario{takes: time.Second, err: errors.New("no")}}
		}, "measured: attack: scenario fake: no", "mend drop-fin at 6s"},
		"second fault can not begin": {func(w *world, _ context.CancelCauseFunc) {
			w.world.breakErr = map[FaultKind]error{FaultLinkDown: errors.New("no such link")}
		}, "measured: attack: scenario fake: fault link-down: no such link", "mend drop-fin at 5s"},
		"load stops": {func(w *world, _ context.CancelCauseFunc) {
			w.Attacker = stopsEarly{w.attacker}
		}, "measured: attack: " + errStoppedEarly.Error(), "mend drop-fin at 7s"},
		"mending fails": {func(w *world, _ context.CancelCauseFunc) {
			w.world.mendErr = map[FaultKind]error{FaultDropFIN: errors.New("table is gone")}
		}, "measured: attack: mend fault drop-fin: table is gone", "mend drop-fin at 13s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTestWorld()
				w.world.faulty = true
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				c.disturb(w, cancel)
				e := testExperiment()
				e.Base.Faults = []Fault{{Kind: FaultDropFIN}, {Kind: FaultLinkDown}}
				results, err := w.run(t, ctx, e)
				if c.reason == "" {
					if !errors.Is(err, interrupted) {
						t.Errorf("error %v, want interrupted", err)
					}
				} else if err != nil || len(results) == 0 || results[0].Verdict != VerdictInvalid || results[0].Reason != c.reason {
					t.Errorf("results %+v, error %v; want invalid: %s", results, err, c.reason)
				}
				got := breaks(w.world.log)
				if !slices.Contains(got, c.mended) {
					t.Errorf("steps %q, want %q", got, c.mended)
				}
				if begun := strings.Count(strings.Join(got, " "), "break "); 2*begun != len(got) {
					t.Errorf("steps %q: want each fault mended once", got)
				}
				if w.world.removed != w.world.deployed {
					t.Errorf("%d deployed, %d removed", w.world.deployed, w.world.removed)
				}
			})
		})
	}
}

// stopsEarly ends the load in the middle of the scenario.
type stopsEarly struct{ Attacker }

func (a stopsEarly) Attack(ctx context.Context, spec AttackSpec, each func(Request)) (AttackStats, error) {
	ctx, cancel := context.WithTimeout(ctx, 7*time.Second)
	defer cancel()
	return a.Attacker.Attack(ctx, spec, each)
}

func TestFaultsWhereNothingCanBeBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld()
		e := testExperiment()
		e.Base.Faults = []Fault{{Kind: FaultDropFIN}}
		results, err := w.run(t, t.Context(), e)
		if err != nil || len(results) == 0 || !strings.Contains(results[0].Reason, "fault drop-fin: nothing can be broken on this cluster") {
			t.Errorf("got %+v, error %v", results, err)
		}
	})
}

func TestFaultsThatAreRefused(t *testing.T) {
	second, lag := Dur(time.Second), DurationRange{time.Second, 2 * time.Second}
	for _, c := range []struct {
		fault Fault
		want  string // "": accepted
	}{
		{Fault{Kind: FaultDropFIN}, ""},
		{Fault{Kind: FaultDropFIN, For: second}, ""},
		{Fault{Kind: FaultPacketLoss, Share: 0.1}, ""},
		{Fault{Kind: FaultSlowAPIServer, Share: 0.9, For: second}, ""},
		{Fault{Kind: FaultLateDeregistration, Lag: lag}, ""},
		{Fault{Kind: FaultLostDeregistration}, ""},
		{Fault{Kind: FaultThrottledAPI, Every: second}, ""},
		{Fault{Kind: FaultLinkDown}, ""},
		{Fault{Kind: FaultPausedAPIServer}, ""},
		{Fault{Kind: FaultPausedKubelet}, ""},
		{Fault{Kind: FaultPausedKubeProxy}, ""},
		{Fault{Kind: "dns-down"}, `kind is "dns-down": want one of [drop-fin late-deregistration link-down lost-deregistration packet-loss ` +
			`paused-api-server paused-kube-proxy paused-kubelet slow-api-server throttled-api]`},
		{Fault{Kind: FaultDropFIN, For: Dur(-1)}, "for is -1ns: want 0s or more"},
		{Fault{Kind: FaultLostDeregistration, For: second}, "for is 1s: want 0s or more, and none with lost-deregistration"},
		{Fault{Kind: FaultDropFIN, Share: 0.5, Every: second}, "share has no effect on drop-fin: leave it out"},
		{Fault{Kind: FaultPacketLoss, Share: 0.5, Lag: lag}, "lag has no effect on packet-loss: leave it out"},
		{Fault{Kind: FaultLinkDown, Every: second}, "every has no effect on link-down: leave it out"},
		{Fault{Kind: FaultPacketLoss}, "share is 0: want more than 0 and less than 1"},
		{Fault{Kind: FaultSlowAPIServer, Share: 1}, "share is 1: want more than 0 and less than 1"},
		{Fault{Kind: FaultLateDeregistration}, "lag is 0s: want more than 0s and at most 1h"},
		{Fault{Kind: FaultLateDeregistration, Lag: DurationRange{0, 2 * time.Hour}}, "lag is 0s..2h0m0s: want more than 0s and at most 1h"},
		{Fault{Kind: FaultThrottledAPI}, "every is 0s: want 1s..1h"},
	} {
		err := c.fault.validate()
		if (c.want == "") != (err == nil) || (err != nil && !strings.HasPrefix(err.Error(), c.want)) {
			t.Errorf("%+v: got %v, want %q", c.fault, err, c.want)
		}
	}
	e := testExperiment()
	e.Base.Faults = []Fault{{Kind: FaultDropFIN}, {Kind: FaultThrottledAPI}}
	if _, err := Expand(e, "id"); err == nil || err.Error() != "faults[1]: every is 0s: want 1s..1h" {
		t.Errorf("got %v, want the fault's place", err)
	}
}

// Which faults are shared and which are deployed decides what runs in parallel
// and who breaks: a change of either is one of behaviour.
func TestKindsOfFaults(t *testing.T) {
	for _, kind := range FaultKinds() {
		f := Fault{Kind: kind}
		deployed := slices.Contains([]FaultKind{FaultLateDeregistration, FaultLostDeregistration, FaultThrottledAPI}, kind)
		if shared := deployed || kind == FaultDropFIN; f.Shared() != shared || f.Deployed() != deployed {
			t.Errorf("%s: shared %t, deployed %t; want %t and %t", kind, f.Shared(), f.Deployed(), shared, deployed)
		}
	}
}

// In IP mode the load outlasts a deregistration that a fault makes late.
func TestSettleOutlastsALateDeregistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld()
		e := testExperiment()
		e.TargetTypes = []TargetType{TargetIP}
		e.Base.LoadBalancer.DeregistrationLag = DurationRange{5 * time.Second, 20 * time.Second}
		e.Base.Faults = []Fault{{Kind: FaultLateDeregistration, Lag: DurationRange{30 * time.Second, time.Minute}}}
		results, err := w.run(t, t.Context(), e)
		if err != nil || len(results) != 1 {
			t.Fatalf("got %d results, error %v", len(results), err)
		}
		if got, want := results[0].Phases[string(PhaseSettle)], 60.0-3+5; got != want {
			t.Errorf("settled for %g s, want %g", got, want)
		}
	})
}
