package harness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// together says how many trials were under way at once at most, and whether the
// log has a trial that was not alone from its deployment to its removal.
func together(log []string) (most int, shared bool) {
	running := 0
	for _, line := range log {
		switch what, _, _ := strings.Cut(line, " "); what {
		case "deploy":
			running++
			shared = shared || running > 1
			most = max(most, running)
		case "remove":
			running--
		}
	}
	return most, shared
}

func TestExclusiveScenariosRunAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld()
		w.Parallel = 3
		w.Scenarios = map[string]Scenario{"fake": alone{fakeScenario{takes: time.Second}}}
		e := testExperiment()
		e.Repeats = 4
		results, err := w.run(t, t.Context(), e)
		if err != nil || len(results) != 4 {
			t.Fatalf("got %d results, error %v", len(results), err)
		}
		if _, shared := together(w.world.log); shared {
			t.Errorf("trials were not alone: %q", w.world.log)
		}
	})
}

// A fault that others would notice keeps its trials alone; those with a fault of
// their own pods run beside each other.
func TestOnlyUnsharedFaultsRunAlone(t *testing.T) {
	for kind, want := range map[FaultKind]bool{FaultDropFIN: true, FaultLinkDown: false} {
		synctest.Test(t, func(t *testing.T) {
			w := newTestWorld()
			w.Parallel, w.world.faulty = 3, true
			e := testExperiment()
			e.Repeats = 4
			e.Base.Faults = []Fault{{Kind: kind}}
			if results, err := w.run(t, t.Context(), e); err != nil || len(results) != 4 {
				t.Fatalf("got %d results, error %v", len(results), err)
			}
			if most, shared := together(w.world.log); shared != want || (want && most != 3) {
				t.Errorf("%s: %d trials at a time", kind, most)
			}
		})
	}
}

func nftables() Mitigation {
	return Mitigation{"nftables", []Edit{{"cluster.kubeProxyMode", KubeProxyNFTables}}}
}

// The cluster is changed while no trial is under way, no more often than needed,
// and set back at the end.
func TestClusterSettingsChangeBetweenTrials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld()
		w.Parallel, w.World = 2, configurable{fakeWorld: w.world}
		e := testExperiment(nftables(), Mitigation{Name: "none"}, Mitigation{"sleep", []Edit{{"workload.preStopSleep", "1s"}}})
		e.Repeats = 2
		if results, err := w.run(t, t.Context(), e); err != nil || len(results) != 6 {
			t.Fatalf("got %d results, error %v", len(results), err)
		}
		running := 0
		var configured []string
		for _, line := range w.world.log {
			switch what, rest, _ := strings.Cut(line, " "); what {
			case "deploy":
				running++
			case "remove":
				running--
			case "configure":
				if running > 0 {
					t.Errorf("configured while %d trials were under way: %q", running, w.world.log)
				}
				configured = append(configured, rest)
			}
		}
		if want := []string{`"nftables"`, `""`, `"nftables"`, `""`}; !slices.Equal(configured, want) {
			t.Errorf("configured %q, want %q", configured, want)
		}
	})
}

func TestClusterSettingsAreSetBackInEveryCase(t *testing.T) {
	interrupted := errors.New("interrupted")
	for name, c := range map[string]struct {
		disturb func(w *world, cancel context.CancelCauseFunc)
		want    string
	}{
		"Ctrl-C": {func(_ *world, cancel context.CancelCauseFunc) {
			time.AfterFunc(6*time.Second, func() { cancel(interrupted) })
		}, "interrupted"},
		"failed change": {func(w *world, _ context.CancelCauseFunc) {
			w.World = configurable{w.world, errors.New("node n2 did not restart")}
		}, "change the cluster's settings: node n2 did not restart"},
		"failed removal": {func(w *world, _ context.CancelCauseFunc) { w.world.removeErr = errors.New("stuck") }, "remove trial 1: stuck"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTestWorld()
				w.World = configurable{fakeWorld: w.world}
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				c.disturb(w, cancel)
				if _, err := w.run(t, ctx, testExperiment(nftables())); err == nil || err.Error() != c.want {
					t.Errorf("error %v, want %s", err, c.want)
				}
				if last := w.world.log[len(w.world.log)-1]; last != `configure ""` {
					t.Errorf("the last step was %q, want the settings to be set back: %q", last, w.world.log)
				}
			})
		})
	}
}

func TestSettingsOfAClusterThatHasNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld()
		_, err := w.run(t, t.Context(), testExperiment(nftables()))
		if err == nil || !strings.Contains(err.Error(), "cannot be changed: leave them out") || w.world.deployed != 0 {
			t.Errorf("error %v, %d deployed; want none and a reason", err, w.world.deployed)
		}
	})
}

// A trial that was disturbed is tried once more, after all others; one that is
// valid is not.
func TestInvalidTrialsAreTriedOnceMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld()
		tries := make(map[string]int)
		w.world.live = func(s Setup) Live {
			live := asAsked(s)
			sleep := s.Workload.PreStopSleep.String()
			tries[sleep]++
			if sleep == "2s" || (sleep == "1s" && tries[sleep] == 1) {
				live.Pods = nil
			}
			return live
		}
		e := testExperiment()
		e.Mitigations = nil
		for i := 1; i <= 3; i++ { // never in the first try, never at all, always valid
			e.Mitigations = append(e.Mitigations, Mitigation{fmt.Sprint("sleep-", i), []Edit{{"workload.preStopSleep", fmt.Sprintf("%ds", i)}}})
		}
		results, err := w.run(t, t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range results {
			got = append(got, fmt.Sprintf("%d.%d %s", r.Trial.Number, r.Trial.Attempt, r.Verdict))
		}
		want := []string{"1.1 invalid", "2.1 invalid", "3.1 pass", "1.2 pass", "2.2 invalid"}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
