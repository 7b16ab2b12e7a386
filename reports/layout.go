package reports

import (
	"slices"
	"strings"
	"unicode/utf8"

	"lameduck/harness"
)

// layout is the table of cells while it is fitted into a terminal.
type layout struct {
	cells []Cell
	own   []harness.Outcome // with a column of their own
	left  map[string]bool   // heads of columns that are left out
	short bool              // long names of mitigations are broken
}

// maxName is how long a line of a mitigation's name may be once it is broken.
const maxName = 18

// fitTable makes the table of cells no wider than the terminal, if that can
// be done without a loss; same are the columns that it left out because they
// say the same in every row.
func fitTable(cells []Cell, width int) (table string, same []string, err error) {
	l := &layout{cells: cells, own: slices.Clone(ownColumn), left: make(map[string]bool)}
	if table, err = l.table(); err != nil {
		return "", nil, err
	}
	for _, squeeze := range squeezes {
		if width <= 0 || widest(table) <= width {
			break
		}
		squeeze(l)
		if table, err = l.table(); err != nil {
			return "", nil, err
		}
	}
	for _, col := range columns(l.cells, l.own) {
		if text, ok := col.constant(cells); ok && l.left[col.head] {
			same = append(same, col.head+" "+text)
		}
	}
	return table, same, nil
}

// squeezes make a table narrower, those that cost a reader least first.
var squeezes = []func(*layout){
	leaveConstant("503"), leaveConstant("504"), leaveConstant("timeout"), leaveConstant("other"), leaveConstant("502"),
	leaveConstant("invalid"), leaveConstant("conns"), leaveConstant("faults"), leaveConstant("target"), leaveConstant("trials"),
	func(l *layout) { l.short = true },
	// The failures of these go to the column "other", which the verdict spells out.
	fold(harness.Outcome503), fold(harness.Outcome504), fold(harness.OutcomeTimeout),
	// Every invalid trial is named below the table.
	func(l *layout) { l.left["invalid"] = true },
}

// leaveConstant leaves a column out if it says the same in every row.
func leaveConstant(head string) func(*layout) {
	return func(l *layout) {
		for _, col := range columns(l.cells, l.own) {
			if _, ok := col.constant(l.cells); ok && col.head == head {
				l.left[head] = true
			}
		}
	}
}

// fold puts the requests of an outcome into the column "other".
func fold(outcome harness.Outcome) func(*layout) {
	return func(l *layout) {
		if l.left[string(outcome)] {
			return
		}
		l.own = slices.DeleteFunc(l.own, func(o harness.Outcome) bool { return o == outcome })
		delete(l.left, "other")
	}
}

func (l *layout) table() (string, error) {
	cols := slices.DeleteFunc(columns(l.cells, l.own), func(col column) bool { return l.left[col.head] })
	texts := rows(cols, l.cells)
	if l.short {
		for i, col := range cols {
			for _, row := range texts {
				if col.head == "mitigation" {
					row[i] = breakName(row[i])
				}
			}
		}
	}
	return plainTable(heads(cols), alignments(cols), texts)
}

// breakName breaks a name after hyphens into lines of at most maxName.
func breakName(name string) string {
	var out strings.Builder
	column := 0
	for part := range strings.SplitAfterSeq(name, "-") {
		if column > 0 && column+len(part) > maxName {
			out.WriteByte('\n')
			column = 0
		}
		out.WriteString(part)
		column += len(part)
	}
	return out.String()
}

func widest(table string) int {
	width := 0
	for line := range strings.Lines(table) {
		width = max(width, utf8.RuneCountInString(strings.TrimRight(line, "\n")))
	}
	return width
}
