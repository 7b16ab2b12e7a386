package harness

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// What the scenario was told to wait for is proven by its events.
func TestWaitsOfTheScenarioAreProven(t *testing.T) {
	blueGreen := func(waits time.Duration) func(*fakeDeployment) Disruption {
		return func(d *fakeDeployment) Disruption {
			d.event(EventCutover, "")
			time.Sleep(waits)
			d.event(EventOldDeleted, "")
			d.delete(6)
			return Disruption{Deleted: 6}
		}
	}
	nodeScaleIn := func(waits time.Duration) func(*fakeDeployment) Disruption {
		return func(d *fakeDeployment) Disruption {
			d.delete(3)
			d.event(EventNodeDrained, "n2")
			time.Sleep(waits)
			d.event(EventNodeRemoved, "n2")
			return Disruption{Deleted: 3}
		}
	}
	keep := func(s *ScenarioSpec) { s.KeepOld = Dur(10 * time.Second) }
	hold := func(s *ScenarioSpec) { s.HoldNode = Dur(10 * time.Second) }
	for name, c := range map[string]struct {
		asked  func(*ScenarioSpec)
		does   func(*fakeDeployment) Disruption
		reason string
	}{
		"kept":          {keep, blueGreen(10 * time.Second), ""},
		"not kept":      {keep, blueGreen(9 * time.Second), "scenario.keepOld live: 9s between cutover and old-deleted, want 10s"},
		"never deleted": {keep, func(*fakeDeployment) Disruption { return Disruption{} }, "scenario.keepOld live: 0s between cutover and old-deleted"},
		"held":          {hold, nodeScaleIn(11 * time.Second), ""},
		"not held":      {hold, nodeScaleIn(time.Second), "scenario.holdNode live: 1s between node-drained and node-removed, want 10s"},
		"not asked for": {func(*ScenarioSpec) {}, blueGreen(0), ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTestWorld()
				w.Scenarios = map[string]Scenario{"fake": fakeScenario{takes: time.Second, does: c.does}}
				e := testExperiment()
				c.asked(&e.Base.Scenario)
				checkReason(t, w, e, c.reason)
			})
		})
	}
}

// checkReason runs the experiment and looks at the first trial: valid without a
// reason, invalid with one that begins as given.
func checkReason(t *testing.T, w *world, e Experiment, reason string) {
	t.Helper()
	results, err := w.run(t, t.Context(), e)
	if err != nil || len(results) == 0 {
		t.Fatalf("got %d results, error %v", len(results), err)
	}
	r := results[0]
	if (r.Verdict == VerdictInvalid) != (reason != "") || !strings.HasPrefix(r.Reason, reason) {
		t.Errorf("verdict %s, reason %q; want %q", r.Verdict, r.Reason, reason)
	}
}

func TestLostPods(t *testing.T) {
	for name, c := range map[string]struct {
		does   func(*fakeDeployment) Disruption
		reason string
	}{
		"lost": {func(d *fakeDeployment) Disruption {
			d.event(EventNodeLost, "n2")
			return Disruption{Lost: 3}
		}, ""},
		"no node was seen to go": {func(*fakeDeployment) Disruption { return Disruption{Lost: 3} },
			"disruption: 0 pods were seen to be deleted, want 0; 3 pods lost with nodes []"},
		"others were deleted": {func(d *fakeDeployment) Disruption {
			d.event(EventNodeLost, "n2")
			d.delete(1)
			return Disruption{Lost: 3}
		}, "disruption: 1 pods were seen to be deleted, want 0; 3 pods lost with nodes [n2]"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTestWorld()
				w.Scenarios = map[string]Scenario{"fake": fakeScenario{takes: time.Second, does: c.does}}
				checkReason(t, w, testExperiment(), c.reason)
			})
		})
	}
}

// The processes of a node that was taken away are gone on purpose; those of
// others are not.
func TestPartsOfNodesThatAreGone(t *testing.T) {
	for name, c := range map[string]struct {
		died   string
		reason string
	}{
		"of the node": {"n2/kubelet", ""},
		"of another":  {"n1/kubelet", "cluster: n1/kubelet: stopped or started anew during the trial"},
		// Its name only begins as that of the node does.
		"of one with a longer name": {"n22/kubelet", "cluster: n22/kubelet: stopped or started anew"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTestWorld()
				looks := 0
				w.world.parts = func() map[string]string {
					parts := map[string]string{"n1/kubelet": "1", "n2/kubelet": "2", "n22/kubelet": "3"}
					if looks++; looks%2 == 0 {
						delete(parts, c.died)
					}
					return parts
				}
				w.Scenarios = map[string]Scenario{"fake": fakeScenario{takes: time.Second, does: func(d *fakeDeployment) Disruption {
					d.event(EventNodeLost, "n2")
					return Disruption{Lost: 3}
				}}}
				checkReason(t, w, testExperiment(), c.reason)
			})
		})
	}
}

// A hook that fails makes a pod stop at once, unless the grace period was over.
func TestFailedPreStopHook(t *testing.T) {
	for name, c := range map[string]struct {
		sleep  time.Duration
		grace  string // seconds, of the deletion
		after  time.Duration
		reason string
	}{
		"failed":              {10 * time.Second, "30", 0, "preStop hook: Pod/app-0: sleep: not found"},
		"failed beyond grace": {40 * time.Second, "30", time.Second, "preStop hook: Pod/app-0: sleep: not found"},
		"cut":                 {40 * time.Second, "30", 29 * time.Second, ""},
		"killed":              {10 * time.Second, "0", 0, ""},
		"not asked for":       {0, "30", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTestWorld()
				w.Scenarios = map[string]Scenario{"fake": fakeScenario{takes: time.Second, does: func(d *fakeDeployment) Disruption {
					d.delete(3)
					d.rec.Event(Event{At: d.clock.Now(), Kind: EventPodDeletionAsked, Object: "app-0", Detail: map[string]string{"grace": c.grace}})
					time.Sleep(c.after)
					d.rec.Event(Event{At: d.clock.Now(), Kind: EventKubernetes, Object: "Pod/app-0",
						Detail: map[string]string{"reason": reasonFailedPreStop, "message": "sleep: not found"}})
					return Disruption{Deleted: 4}
				}}}
				e := testExperiment()
				e.Base.Workload.PreStopSleep = Dur(c.sleep)
				checkReason(t, w, e, c.reason)
			})
		})
	}
}
