package reports

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"lameduck/harness"
	"lameduck/harness/record"
)

// Read opens a run directory and summarizes it.
func Read(dir string) (Report, error) {
	r, err := record.Open(dir)
	if err != nil {
		return Report{}, err
	}
	return Summarize(r)
}

// Summarize counts every request of a run. It streams: what it holds of a
// trial is eight bytes per successful request, for the gaps. An error means
// that a file is damaged; what is only cut off is a warning in the report.
func Summarize(r *record.Reader) (Report, error) {
	rep := Report{Name: filepath.Base(r.Dir), Run: r.Run, Complete: r.Complete(), Resumed: r.Resumed, CutOff: len(r.CutOff)}
	switch {
	case r.End == nil:
		rep.Reason = "it was cut off before its end"
	default:
		rep.Ended, rep.Reason = r.End.Ended, r.End.Reason
	}
	for _, w := range r.Warnings {
		rep.Warnings = append(rep.Warnings, w.String())
	}

	trials := make([]Trial, len(r.Trials))
	warnings := make([][]string, len(r.Trials))
	errs := make([]error, len(r.Trials))
	limit := make(chan struct{}, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for i, t := range r.Trials {
		limit <- struct{}{}
		wg.Go(func() {
			trials[i], warnings[i], errs[i] = readTrial(t)
			<-limit
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return Report{}, err
		}
	}
	rep.Trials = trials
	rep.Warnings = append(rep.Warnings, slices.Concat(warnings...)...)
	for _, cell := range r.Run.Plan.Cells {
		rep.Cells = append(rep.Cells, sumUp(cell, r.Run.Experiment, trials))
	}
	return rep, nil
}

// sumUp makes a cell of its trials.
func sumUp(id harness.Cell, e harness.Experiment, trials []Trial) Cell {
	c := Cell{
		Cell: id, Expected: e.ExpectationFor(id),
		Outcomes: make(map[harness.Outcome]int), Phases: make(map[string]float64),
	}
	for _, t := range trials {
		switch {
		case t.Cell != id:
			continue
		case t.State != record.Complete:
			c.Unfinished++
			continue
		}
		c.Trials++
		if !t.Valid() {
			c.Invalid++
			continue
		}
		if len(c.PerTrial) == 0 || t.Failed > c.WorstFailed {
			c.WorstTrial, c.WorstFailed = t.Number, t.Failed
		}
		c.PerTrial = append(c.PerTrial, harness.Tried{Requests: t.Requests, Failed: t.Failed})
		c.Requests += t.Requests
		c.Failed += t.Failed
		for outcome, n := range t.Outcomes {
			c.Outcomes[outcome] += n
		}
		c.LongestGap = max(c.LongestGap, t.LongestGap)
		c.Pods = append(c.Pods, t.Pods...)
		for phase, seconds := range t.Phases {
			c.Phases[phase] += seconds
		}
	}
	for phase := range c.Phases {
		c.Phases[phase] /= float64(c.Valid())
	}
	if c.Clean() {
		c.UpperBound = upperBound(c.Valid())
	}
	c.Met = c.Expected != "" && c.Expected.Met(c.PerTrial)
	return c
}

// upperBound is the exact 95 % bound (Clopper-Pearson) for a share when none
// of n trials showed it.
func upperBound(n int) float64 { return 1 - math.Pow(0.05, 1/float64(n)) }

// crossCheck compares what the runner counted with what is on disk.
func crossCheck(t Trial, result harness.TrialResult) []string {
	if maps.Equal(withoutZeros(t.Outcomes), withoutZeros(result.Counts)) {
		return nil
	}
	return []string{fmt.Sprintf("trial %s: the requests on disk (%s) are not those that were counted while it ran (%s); the trial counts as invalid",
		t.name(), outcomesText(t.Outcomes), outcomesText(result.Counts))}
}

func withoutZeros(counts map[harness.Outcome]int) map[harness.Outcome]int {
	kept := maps.Clone(counts)
	maps.DeleteFunc(kept, func(_ harness.Outcome, n int) bool { return n == 0 })
	return kept
}
