package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"lameduck/reports"
)

// outcome is what came of one job.
type outcome struct {
	name, runID string
	dir         string          // "" without a record
	report      *reports.Report // nil without a readable record
	err         error           // why the run could not be done
}

// code is the exit code that the outcome asks for.
func (o outcome) code() int {
	if asked := (exitCode{}); errors.As(o.err, &asked) {
		return asked.code
	}
	if o.err != nil || o.report == nil {
		return exitError
	}
	return reports.Judge(*o.report).Code
}

// bySeverity are exit codes of runs, the worst last.
var bySeverity = []int{exitOK, exitUnexpected, exitNoResult, exitUsage, exitError}

// verdictOf is the worst of the outcomes. The tables already gave the reasons of
// those without an error.
func verdictOf(done []outcome) error {
	worst := exitCode{code: exitOK}
	var errs []error
	for _, code := range bySeverity {
		for _, o := range done {
			if o.code() == code {
				worst.code = code
			}
		}
	}
	for _, o := range done {
		errs = append(errs, o.err)
	}
	if worst.err = errors.Join(errs...); worst.err == nil && worst.code == exitOK {
		return nil
	}
	return worst
}

// printSummary is a line for each of several jobs.
func printSummary(out io.Writer, jobs []*job, done []outcome) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w)
	for i, j := range jobs {
		if i >= len(done) {
			fmt.Fprintf(w, "%s\tnot begun\t\t\n", j.experiment.Name)
			continue
		}
		o := done[i]
		trials := ""
		if o.report != nil {
			valid, invalid := 0, 0
			for _, c := range o.report.Cells {
				valid, invalid = valid+c.Valid(), invalid+c.Invalid
			}
			trials = fmt.Sprintf("%d valid trials, %d invalid", valid, invalid)
		}
		result := map[int]string{
			exitOK: "as expected", exitUnexpected: "not as expected", exitNoResult: "no valid result",
		}[o.code()]
		if result == "" {
			result = "could not be done"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", o.name, result, trials, o.dir)
	}
	return w.Flush()
}
