package reports

import (
	"fmt"
	"strings"

	"lameduck/harness"
)

// Exit codes of a judged run.
const (
	CodeAsExpected = 0
	CodeUnexpected = 1 // an expectation failed
	CodeNoResult   = 3 // nothing valid to judge by
)

// Result is a judged report.
type Result struct {
	Code int
	// Reasons are one sentence each; none with CodeAsExpected.
	Reasons []string
}

// Judge says whether a run is as its experiment expects. A cell whose valid
// trials contradict its expectation makes it CodeUnexpected, whatever else is
// wrong. Otherwise it is CodeNoResult when a cell with an expectation has no
// valid trial, when no trial at all is valid, or when the run did not go
// through to its end.
func Judge(r Report) Result {
	var unexpected, unknown []string
	valid := 0
	for _, c := range r.Cells {
		valid += c.Valid()
		switch {
		case c.Expected == "":
		case c.Valid() == 0:
			unknown = append(unknown, fmt.Sprintf("%s: expected %s, but no trial is valid", cellName(c.Cell), expectedText(c.Expected)))
		case !c.Met:
			unexpected = append(unexpected, fmt.Sprintf("%s: expected %s, but got %s in its valid trials",
				cellName(c.Cell), expectedText(c.Expected), gotText(c)))
		}
	}
	switch {
	case len(unexpected) > 0:
		return Result{CodeUnexpected, append(unexpected, unknown...)}
	case len(unknown) > 0:
		return Result{CodeNoResult, unknown}
	case valid == 0:
		return Result{CodeNoResult, []string{"no trial is valid"}}
	case !r.Complete:
		return Result{CodeNoResult, []string{incompleteText(r)}}
	}
	return Result{Code: CodeAsExpected}
}

func expectedText(x harness.Expected) string {
	switch {
	case x == harness.ExpectNone:
		return "no failed requests"
	case x.IsRate():
		return string(x) + " of a trial's requests to fail"
	}
	return string(x) + " failed requests"
}

// gotText is what the valid trials of a cell had, in the terms of what was
// expected.
func gotText(c Cell) string {
	if !c.Expected.IsRate() {
		return listText(c.FailedPerTrial())
	}
	var shares []string
	for _, t := range c.PerTrial {
		shares = append(shares, fmt.Sprintf("%d of %d", t.Failed, t.Requests))
	}
	return strings.Join(shares, ", ")
}

// incompleteText says that the run did not go through to its end; "" if it did.
func incompleteText(r Report) string {
	if r.Complete {
		return ""
	}
	return "the run is not complete: " + r.Reason
}
