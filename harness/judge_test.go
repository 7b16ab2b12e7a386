package harness

import "testing"

func TestFailedCountsAllButOK(t *testing.T) {
	counts := map[Outcome]int{OutcomeOK: 1000, Outcome502: 3, OutcomeTimeout: 2, OutcomeGenerator: 1}
	if got := Failed(counts); got != 6 {
		t.Errorf("Failed = %d, want 6", got)
	}
	if got := Failed(nil); got != 0 {
		t.Errorf("Failed(nil) = %d, want 0", got)
	}
}

func TestMet(t *testing.T) {
	for _, c := range []struct {
		x      Expected
		failed []int // of 1000 requests
		want   bool
	}{
		{ExpectNone, nil, false},
		{ExpectSome, nil, false},
		{ExpectNone, []int{0}, true},
		{ExpectNone, []int{0, 0, 1}, false},
		{ExpectSome, []int{1}, true},
		{ExpectSome, []int{0}, false},
		{ExpectSome, []int{5, 0}, false}, // half is not most
		{ExpectSome, []int{5, 0, 1}, true},
		{ExpectSome, []int{5, 0, 0}, false},
		{AtMost(5), []int{5, 0}, true},
		{AtMost(5), []int{0, 6}, false},
		{AtMost(5), nil, false},
		{AtMostRate(0.5), []int{5, 0}, true},
		{AtMostRate(0.5), []int{6, 0}, false},
		{Expected("many"), []int{5}, false},
	} {
		var trials []Tried
		for _, n := range c.failed {
			trials = append(trials, Tried{Requests: 1000, Failed: n})
		}
		if got := c.x.Met(trials); got != c.want {
			t.Errorf("%q.Met(%v) = %t, want %t", c.x, c.failed, got, c.want)
		}
	}
}

func TestExpectedForms(t *testing.T) {
	for _, x := range []Expected{ExpectNone, ExpectSome, AtMost(0), AtMost(12), AtMostRate(0.1), "at most 100%"} {
		if err := x.Check(); err != nil {
			t.Errorf("%q: %v", x, err)
		}
	}
	for _, x := range []Expected{"", "few", "at most", "at most -1", "at most 1.5", "at most NaN%", "at most 101%", "At most 1"} {
		if x.Check() == nil {
			t.Errorf("%q was accepted", x)
		}
	}
}

func TestExpectationForTakesTheFirstMatch(t *testing.T) {
	e := Experiment{Expect: []Expectation{
		{Selector: Selector{TargetType: TargetIP, Mitigation: "none"}, Failed: ExpectNone},
		{Selector: Selector{Mitigation: "none"}, Failed: ExpectSome},
	}}
	for _, c := range []struct {
		cell Cell
		want Expected
	}{
		{Cell{TargetType: TargetIP, Mitigation: "none"}, ExpectNone},
		{Cell{TargetType: TargetInstance, Mitigation: "none"}, ExpectSome},
		{Cell{TargetType: TargetInstance, Mitigation: "other"}, ""},
	} {
		if got := e.ExpectationFor(c.cell); got != c.want {
			t.Errorf("ExpectationFor(%v) = %q, want %q", c.cell, got, c.want)
		}
	}
}
