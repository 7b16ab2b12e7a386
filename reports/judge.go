package reports

import (
	"fmt"

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
				cellName(c.Cell), expectedText(c.Expected), listText(c.FailedPerTrial)))
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
	if x == harness.ExpectNone {
		return "no failed requests"
	}
	return string(x) + " failed requests"
}

// incompleteText says that the run did not go through to its end; "" if it did.
func incompleteText(r Report) string {
	if r.Complete {
		return ""
	}
	return "the run is not complete: " + r.Reason
}
