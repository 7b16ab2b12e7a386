package harness

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Limits of the gates. They are about the measurement, not about what is
// measured: beyond them the generator or the machine may itself have caused
// what was counted.
const (
	minAchievedShare = 0.95
	maxLatenessP99   = 50 * time.Millisecond
	// A burst of failures may be over in 50 ms, so one long pause of the generator
	// can jump over it, and one of the load balancer can hide it.
	maxLateness      = 150 * time.Millisecond
	maxControlAnswer = 500 * time.Millisecond
	maxSaturated     = 0.25 // share of one-second samples
)

// gates says whether the trial's figures can be believed.
func (t *trialRun) gates() []Gate {
	s, stats := t.trial.Setup, t.result.Stats
	t.tally.mu.Lock()
	defer t.tally.mu.Unlock()

	var gates []Gate
	gate := func(name string, ok bool, format string, args ...any) {
		gates = append(gates, Gate{Name: name, OK: ok, Detail: fmt.Sprintf(format, args...)})
	}
	live := t.result.Live
	diffs := CheckLive(s, live)
	ready := 0
	for _, p := range live.Pods {
		if p.Ready {
			ready++
		}
	}
	if len(diffs) > 0 {
		gate("mitigation live", false, "%s (%d differences in all)", diffs[0], len(diffs))
	} else {
		gate("mitigation live", len(live.Pods) == s.Workload.Replicas && ready == len(live.Pods),
			"%d running pods show the setup's settings, %d of them are ready, want %d", len(live.Pods), ready, s.Workload.Replicas)
	}
	// The kubelet goes on at once when a hook fails, for example because the image
	// has no command of that name. Manifests may have a hook of their own.
	if s.Workload.PreStopSleep.Duration > 0 || s.Workload.App != nil {
		gate("preStop hook", t.tally.failedHook == "", "%s", cmp.Or(t.tally.failedHook, "no hook was reported as failed"))
	}
	// What the scenario itself was told can only be seen in what it did.
	for _, w := range []struct {
		field      string
		want       time.Duration
		from, till EventKind
	}{
		{"scenario.keepOld", s.Scenario.KeepOld.Duration, EventCutover, EventOldDeleted},
		{"scenario.holdNode", s.Scenario.HoldNode.Duration, EventNodeDrained, EventNodeRemoved},
	} {
		if w.want == 0 {
			continue
		}
		from, begun := t.tally.first[w.from]
		till, ended := t.tally.first[w.till]
		gate(w.field+" live", begun && ended && till-from >= w.want,
			"%s between %s and %s, want %s", (till - from).Round(time.Millisecond), w.from, w.till, w.want)
	}

	// What was in flight when the scenario began and fails later counts as its
	// doing: from the outside the two can not be told apart.
	early, how := 0, make(map[Outcome]int)
	for _, f := range t.tally.failures {
		if f.ended <= t.tally.scenarioAt {
			early++
			how[f.outcome]++
		}
	}
	gate("clean baseline", early == 0, "%d failed requests before the scenario began%s", early, outcomesText(how))

	asked := float64(s.Load.Rate + s.Load.ControlRate)
	gate("rate", stats.AchievedRate >= minAchievedShare*asked,
		"%.1f requests per second of %.0f asked", stats.AchievedRate, asked)
	gate("lateness", stats.LatenessP99 <= maxLatenessP99,
		"sent %s late at p99, limit %s", stats.LatenessP99.Round(time.Microsecond), maxLatenessP99)
	gate("pauses", stats.LatenessMax <= maxLateness, "the longest was %s, limit %s", stats.LatenessMax.Round(time.Microsecond), maxLateness)
	gate("control answers", t.tally.slowestControl <= maxControlAnswer,
		"the control target's slowest answer took %s, limit %s", t.tally.slowestControl.Round(time.Microsecond), maxControlAnswer)
	gate("control target", len(t.tally.badControl) == 0 && t.tally.control > 0,
		"%d of %d requests to the control target failed", len(t.tally.badControl), t.tally.control)
	gate("generator", t.tally.byOutcome[OutcomeGenerator] == 0,
		"%d requests failed by the generator's own fault", t.tally.byOutcome[OutcomeGenerator])
	gate("no retries", t.tally.retried == 0, "%d requests were sent more than once", t.tally.retried)

	want := t.result.Disruption
	switch {
	case t.tally.early > 0:
		gate("disruption", false, "%d pods were deleted before the scenario began", t.tally.early)
	case want.Lost > 0:
		gate("disruption", t.tally.deletions == want.Deleted && len(t.tally.gone) > 0,
			"%d pods were seen to be deleted, want %d; %d pods lost with nodes %v", t.tally.deletions, want.Deleted, want.Lost, t.tally.gone)
	default:
		gate("disruption", t.tally.deletions == want.Deleted, "%d pods were seen to be deleted, want %d", t.tally.deletions, want.Deleted)
	}
	if changed := changedParts(t.partsBefore, t.partsAfter, t.tally.gone); len(changed) > 0 {
		gate("cluster", false, "%s: stopped or started anew during the trial", strings.Join(changed, ", "))
	} else if t.partsBefore != nil {
		gate("cluster", true, "all %d processes of the cluster went on", len(t.partsBefore))
	}
	gate("CPU", t.cpu.saturated <= maxSaturated, "%s", t.cpu)
	return gates
}

// outcomesText lists failures by outcome: " (3 x 502, 1 x timeout)", or nothing.
func outcomesText(counts map[Outcome]int) string {
	var parts []string
	for _, o := range Outcomes {
		if n := counts[o]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d x %s", n, o))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// changedParts are the processes that are not the same before and after, but
// for those of nodes that the scenario took away.
func changedParts(before, after map[string]string, gone []string) []string {
	var changed []string
	for _, name := range slices.Sorted(maps.Keys(before)) {
		host, _, _ := strings.Cut(name, "/")
		if after[name] != before[name] && !slices.Contains(gone, host) {
			changed = append(changed, name)
		}
	}
	return changed
}
