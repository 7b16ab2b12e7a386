package elb

import "time"

// Anomaly mitigation compares the share of failed requests (statuses 5xx, no
// connection, no answer) of each target with that of the others, and takes
// requests from a target that has clearly more (D: user guide, Target group
// attributes, Automatic Target Weights). AWS does not publish how; the numbers
// here are our own (U).
const (
	// anomalyTargets is how many healthy targets it needs (D).
	anomalyTargets = 3
	// anomalyRequests is how many answers of a target are judged at once.
	anomalyRequests = 8
	// anomalyMargin is how far the failed share must be above the others'.
	anomalyMargin = 0.1
)

// mitigate judges the targets if the interval has passed since it last did. An
// anomalous target's share halves each time; it grows back in the same way when
// it fails no more than others.
func (ng *nodeGroup) mitigate(t *table, now time.Time) {
	last := ng.judged.Load()
	if now.UnixNano()-last < int64(t.mitigation) || !ng.judged.CompareAndSwap(last, now.UnixNano()) {
		return
	}
	var answers, errors int64
	for _, e := range t.entries {
		answers += e.nt.answers.Load()
		errors += e.nt.errors.Load()
	}
	for _, e := range t.entries {
		nt := e.nt
		a, f := nt.answers.Load(), nt.errors.Load()
		if a < anomalyRequests {
			continue // they count the next time
		}
		others := 0.0
		if answers > a {
			others = float64(errors-f) / float64(answers-a)
		}
		share := nt.share.Load()
		if len(t.entries) >= anomalyTargets && float64(f)/float64(a) > others+anomalyMargin {
			nt.share.Store(max(1, share/2))
		} else {
			nt.share.Store(min(fullShare, share*2))
		}
		// What is answered meanwhile counts the next time.
		nt.answers.Add(-a)
		nt.errors.Add(-f)
	}
}
