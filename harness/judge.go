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

// Try counts a trial.
func Try(counts map[Outcome]int) Tried {
	t := Tried{Failed: Failed(counts)}
	for _, n := range counts {
		t.Requests += n
	}
	return t
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
