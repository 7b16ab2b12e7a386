package reports

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"lameduck/harness"
	"lameduck/harness/record"
)

// readTrial counts the requests of one trial and finds how its pods ended.
func readTrial(t record.Trial) (Trial, []string, error) {
	out := Trial{
		Number: t.Number, Repeat: t.Repeat, Attempt: t.Attempt, Cell: t.Cell, State: t.State(),
		Outcomes: make(map[harness.Outcome]int),
	}
	var gaps gapFinder
	torn, err := t.Requests(func(q harness.Request) error {
		if q.Attempts > 1 {
			out.Retried++
		}
		if q.Control {
			out.Control++
			if q.Failed() {
				out.ControlFailed++
			}
			return nil
		}
		out.Requests++
		out.Outcomes[q.Outcome]++
		gaps.add(q)
		return nil
	})
	if err != nil {
		return Trial{}, nil, err
	}
	out.Failed = harness.Failed(out.Outcomes)
	out.LongestGap = gaps.longest()

	var pods podFinder
	tornEvents, err := t.Events(func(e harness.Event) error { pods.add(e); return nil })
	if err != nil {
		return Trial{}, nil, err
	}
	out.Pods = pods.ends

	var warnings []string
	for _, w := range slices.Concat(torn, tornEvents) {
		warnings = append(warnings, w.String())
	}
	if t.Result != nil {
		out.Verdict, out.Reason, out.Phases = t.Result.Verdict, t.Result.Reason, t.Result.Phases
		warnings = append(warnings, crossCheck(out, *t.Result)...)
		out.distrust(*t.Result, len(warnings) > 0)
	}
	return out, warnings, nil
}

// distrust makes a trial invalid whose record is not whole, or whose result does
// not follow from its gates: its figures are not those that were measured.
func (t *Trial) distrust(r harness.TrialResult, damaged bool) {
	failed := slices.IndexFunc(r.Gates, func(g harness.Gate) bool { return !g.OK })
	known := slices.Contains([]harness.Verdict{harness.VerdictPass, harness.VerdictFail, harness.VerdictInvalid}, r.Verdict)
	switch {
	case r.Verdict == harness.VerdictInvalid:
	case !known:
		t.Verdict, t.Reason = harness.VerdictInvalid, fmt.Sprintf("its verdict is %q, which is none", r.Verdict)
	case failed >= 0:
		t.Verdict, t.Reason = harness.VerdictInvalid, fmt.Sprintf("%s: %s", r.Gates[failed].Name, r.Gates[failed].Detail)
	case damaged:
		t.Verdict, t.Reason = harness.VerdictInvalid, "its record is damaged: see the warnings"
	}
}

// gapFinder finds the longest time without a success (see Trial.LongestGap).
type gapFinder struct {
	any         bool
	first, last time.Duration // sends
	successes   []time.Duration
}

func (g *gapFinder) add(q harness.Request) {
	if !g.any {
		g.any, g.first, g.last = true, q.Sent, q.Sent
	}
	g.first, g.last = min(g.first, q.Sent), max(g.last, q.Sent)
	if !q.Failed() {
		g.successes = append(g.successes, q.Sent+q.Latency)
	}
}

func (g *gapFinder) longest() time.Duration {
	slices.Sort(g.successes)
	longest, before := time.Duration(0), g.first
	for _, at := range g.successes {
		// An answer that comes after the last send ends the window there.
		at = min(at, g.last)
		longest, before = max(longest, at-before), at
	}
	return max(longest, g.last-before)
}

// podFinder follows the pods whose deletion was asked for between the start of
// the scenario and the end of the attack. Later ones are the tearing down.
type podFinder struct {
	disrupted, over bool
	asked           map[string]time.Duration
	index           map[string]int // in ends
	ends            []PodEnd
}

func (p *podFinder) add(e harness.Event) {
	switch e.Kind {
	case harness.EventMark:
		p.disrupted = p.disrupted || e.Object == harness.MarkScenario
		p.over = p.over || e.Object == harness.MarkAttackEnd
	case harness.EventPodDeletionAsked:
		if _, again := p.index[e.Object]; !p.disrupted || p.over || again {
			return
		}
		if p.index == nil {
			p.asked, p.index = make(map[string]time.Duration), make(map[string]int)
		}
		p.asked[e.Object], p.index[e.Object] = e.At, len(p.ends)
		p.ends = append(p.ends, PodEnd{Pod: e.Object})
	case harness.EventContainerExited:
		i, ok := p.index[e.Object]
		if !ok || p.ends[i].Exited {
			return
		}
		code, err := strconv.Atoi(e.Detail["exitCode"])
		if err != nil {
			return
		}
		end := &p.ends[i]
		end.Exited, end.ExitCode, end.Reason, end.AfterExit = true, code, e.Detail["reason"], e.At-p.asked[e.Object]
	case harness.EventPodGone:
		i, ok := p.index[e.Object]
		if !ok || p.ends[i].Gone {
			return
		}
		p.ends[i].Gone, p.ends[i].AfterGone = true, e.At-p.asked[e.Object]
	}
}
