package harness

// Failed is the number of requests in counts that did not get what they asked
// for.
func Failed(counts map[Outcome]int) int {
	failed := 0
	for outcome, n := range counts {
		if outcome != OutcomeOK {
			failed += n
		}
	}
	return failed
}

// Met says whether a cell's valid trials are as expected, from the number of
// failed requests in each. ExpectNone wants zero in every trial, ExpectSome at
// least one in more than half of them. Without a valid trial nothing is met.
func (x Expected) Met(failedPerTrial []int) bool {
	if len(failedPerTrial) == 0 {
		return false
	}
	withFailures := 0
	for _, n := range failedPerTrial {
		if n > 0 {
			withFailures++
		}
	}
	switch x {
	case ExpectNone:
		return withFailures == 0
	case ExpectSome:
		return 2*withFailures > len(failedPerTrial)
	}
	return false
}

// ExpectationFor returns what is expected of a cell, "" when nothing is. The
// first expectation that matches decides, so that a list goes from the special
// to the general.
func (e Experiment) ExpectationFor(c Cell) Expected {
	for _, x := range e.Expect {
		if x.Matches(c) {
			return x.Failed
		}
	}
	return ""
}
