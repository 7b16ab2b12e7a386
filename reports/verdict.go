package reports

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"lameduck/harness"
)

// option is one mitigation over all its cells, which is what a reader can
// choose. A mitigation without edits is the setup as it is.
type option struct {
	harness.Mitigation
	trials   int // valid ones
	failing  int // those of them with a failure
	unknown  bool
	requests int
	failed   int
	outcomes map[harness.Outcome]int
	worst    int
	gap      time.Duration
	scenario float64 // mean length of the disruption, in seconds
}

// clean says whether no request failed, and every cell has a valid trial.
func (o option) clean() bool { return !o.unknown && o.trials > 0 && o.failed == 0 }

// options are the mitigations of a run, in the experiment's order.
func options(r Report) []option {
	var out []option
	for _, m := range r.Run.Experiment.Mitigations {
		o, tried := option{Mitigation: m, outcomes: make(map[harness.Outcome]int)}, false
		for _, c := range r.Cells {
			if c.Mitigation != m.Name {
				continue
			}
			tried = true
			o.unknown = o.unknown || c.Valid() == 0
			o.trials += c.Valid()
			for _, t := range c.PerTrial {
				if t.Failed > 0 {
					o.failing++
				}
			}
			o.requests += c.Requests
			o.failed += c.Failed
			for outcome, n := range c.Outcomes {
				o.outcomes[outcome] += n
			}
			o.worst, o.gap = max(o.worst, c.WorstFailed), max(o.gap, c.LongestGap)
			o.scenario += c.Phases[string(harness.PhaseScenario)] * float64(c.Valid())
		}
		if o.trials > 0 {
			o.scenario /= float64(o.trials)
		}
		if tried {
			out = append(out, o)
		}
	}
	return out
}

// verdict says in two sentences what failed without help, and what stopped it
// at what cost.
func verdict(r Report) (first, second string) {
	var bare *option
	var clean, leaky, unknown []option
	for _, o := range options(r) {
		switch {
		case len(o.Edits) == 0:
			bare = &o // "none" by name
		case o.clean():
			clean = append(clean, o)
		case o.failed > 0:
			leaky = append(leaky, o)
		default:
			unknown = append(unknown, o)
		}
	}
	if bare != nil && !disrupts(r) {
		bare.scenario = 0 // its length says nothing
	}
	clauses := slices.Concat(cleanClauses(clean, bare), leakyClauses(leaky), unknownClauses(unknown))
	if len(clauses) == 0 {
		return bareSentence(r, bare), "No mitigation was tried."
	}
	second = strings.Join(clauses, "; ")
	return bareSentence(r, bare), strings.ToUpper(second[:1]) + second[1:] + "."
}

// leastTrials is how many valid trials a recommendation needs, with and without
// the mitigation. Fewer may differ by chance.
const leastTrials = 2

// recommended is the mitigation to choose: of those without a failure the one
// with the shortest disruption, because its length is what they cost. Lengths
// that differ by less than a second or a tenth count as the same; then the
// experiment's order decides. ok is false when nothing helped, when nothing had
// to, and when there is too little to go by: most of at least leastTrials trials
// without a mitigation must have failures, and as many with it none. One that
// shortens the grace period is not recommended: it may cut what was not tried.
func recommended(r Report) (o option, ok bool) {
	var clean []option
	needed := false
	shortest := math.Inf(1)
	for _, o := range options(r) {
		switch {
		case len(o.Edits) == 0:
			needed = o.trials >= leastTrials && 2*o.failing > o.trials
		case o.clean() && o.trials >= leastTrials && !shortensGrace(r.Run.Experiment.Base, o.Mitigation):
			clean = append(clean, o)
			shortest = min(shortest, o.scenario)
		}
	}
	for _, o := range clean {
		if needed && o.scenario <= shortest+max(1, shortest/10) {
			return o, true
		}
	}
	return option{}, false
}

func shortensGrace(base harness.Setup, m harness.Mitigation) bool {
	to, err := m.Apply(base)
	return err != nil || to.Workload.GracePeriod.Duration < base.Workload.GracePeriod.Duration
}

func bareSentence(r Report, o *option) string {
	switch {
	case o == nil:
		return "The run has no cell without a mitigation, so it can not tell what one is good for."
	case o.trials == 0:
		return "What happens without a mitigation is not known: no such trial is valid."
	case o.failed == 0:
		return fmt.Sprintf("Without a mitigation no request failed in %s (so at most %s of such %s have a failure, at 95 %% confidence).",
			count(o.trials, "trial"), boundText(upperBound(o.trials)), occasions(r))
	}
	return fmt.Sprintf("Without a mitigation %d of %d requests failed in %s (%s), up to %d in one trial, with at most %s between two successes.",
		o.failed, o.requests, count(o.trials, "trial"), failures(o.outcomes), o.worst, secondsText(o.gap))
}

// cleanClauses is one clause about all mitigations without a failure.
func cleanClauses(clean []option, bare *option) []string {
	if len(clean) == 0 {
		return nil
	}
	var names []string
	for i, o := range clean {
		about := count(o.trials, "trial")
		if bare != nil && bare.scenario > 0 && o.scenario > 0 {
			about += fmt.Sprintf(", %.1f s", o.scenario)
			if i == 0 {
				about = fmt.Sprintf("%s, disruption %.1f s instead of %.1f s", count(o.trials, "trial"), o.scenario, bare.scenario)
			}
		}
		names = append(names, fmt.Sprintf("%s (%s)", o.Name, about))
	}
	return []string{"no request failed with " + joinAnd(names)}
}

func leakyClauses(leaky []option) []string {
	var clauses []string
	for _, o := range leaky {
		clauses = append(clauses, fmt.Sprintf("with %s %d of %d still failed (%s)", o.Name, o.failed, o.requests, failures(o.outcomes)))
	}
	return clauses
}

func unknownClauses(unknown []option) []string {
	if len(unknown) == 0 {
		return nil
	}
	var names []string
	for _, o := range unknown {
		names = append(names, o.Name)
	}
	return []string{"too few valid trials to tell about " + joinAnd(names)}
}
