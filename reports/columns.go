package reports

import (
	"cmp"
	"fmt"
	"slices"

	"lameduck/harness"
)

// column is one column of the table of cells.
type column struct {
	head  string
	right bool // numbers
	text  func(Cell) string
}

// ownColumn are the failures with a column of their own; the others share one.
var ownColumn = []harness.Outcome{harness.Outcome502, harness.Outcome503, harness.Outcome504, harness.OutcomeTimeout}

// columns of the table of cells, in order, with a column for each outcome in
// own, and one for faults if a cell has any. A dash is a zero, except in the column "failed": there it says that no
// trial was valid.
func columns(cells []Cell, own []harness.Outcome) []column {
	cols := []column{
		{"target", false, func(c Cell) string { return string(c.TargetType) }},
		{"mitigation", false, func(c Cell) string { return c.Mitigation }},
		{"conns", false, func(c Cell) string { return string(c.Connections) }},
		{"faults", false, func(c Cell) string { return cmp.Or(c.Faults, "-") }},
		{"trials", true, func(c Cell) string { return orDash(c.Trials) }},
		{"invalid", true, func(c Cell) string { return orDash(c.Invalid) }},
		{"requests", true, func(c Cell) string { return orDash(c.Requests) }},
		{"failed", true, failedCell},
	}
	if !anyFaults(cells) {
		cols = slices.DeleteFunc(cols, func(col column) bool { return col.head == "faults" })
	}
	for _, outcome := range own {
		cols = append(cols, column{string(outcome), true, func(c Cell) string { return orDash(c.Outcomes[outcome]) }})
	}
	return append(cols,
		column{"other", true, otherCell(own)},
		column{"worst", true, func(c Cell) string { return orDash(c.WorstFailed) }},
		column{"gap", true, gapCell},
		column{"expected", false, expectedCell},
	)
}

func anyFaults(cells []Cell) bool {
	return slices.ContainsFunc(cells, func(c Cell) bool { return c.Faults != "" })
}

func failedCell(c Cell) string {
	if c.Valid() == 0 {
		return "-"
	}
	return fmt.Sprint(c.Failed)
}

func otherCell(own []harness.Outcome) func(Cell) string {
	return func(c Cell) string {
		n := c.Failed
		for _, outcome := range own {
			n -= c.Outcomes[outcome]
		}
		return orDash(n)
	}
}

func gapCell(c Cell) string {
	if c.Valid() == 0 {
		return "-"
	}
	return secondsText(c.LongestGap)
}

func expectedCell(c Cell) string {
	switch {
	case c.Expected == "":
		return "-"
	case c.Valid() == 0:
		return string(c.Expected) + " not known"
	case c.Met:
		return string(c.Expected) + " ok"
	}
	return string(c.Expected) + " FAILED"
}

// constant says whether a column says the same in every row, and what.
func (col column) constant(cells []Cell) (string, bool) {
	if len(cells) == 0 {
		return "", false
	}
	text := col.text(cells[0])
	for _, c := range cells {
		if col.text(c) != text {
			return "", false
		}
	}
	return text, true
}

// rows are the texts of some columns, a row for each cell.
func rows(cols []column, cells []Cell) [][]string {
	out := make([][]string, len(cells))
	for i, c := range cells {
		for _, col := range cols {
			out[i] = append(out[i], col.text(c))
		}
	}
	return out
}
