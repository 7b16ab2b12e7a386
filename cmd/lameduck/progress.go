package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"lameduck/harness"
)

// progress writes one line per thing that happened, with the time since the
// start. It is an io.Writer for the lines of others.
type progress struct {
	mu     sync.Mutex
	out    io.Writer
	start  time.Time
	trials int
	done   int
}

func newProgress(out io.Writer) *progress {
	return &progress{out: out, start: time.Now()}
}

// begin starts a run with so many trials.
func (p *progress) begin(trials int) { p.trials, p.done = trials, 0 }

func (p *progress) printf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, "%6.1fs  %s\n", time.Since(p.start).Seconds(), fmt.Sprintf(format, args...))
}

// Write prints complete lines.
func (p *progress) Write(lines []byte) (int, error) {
	for line := range strings.Lines(string(lines)) {
		p.printf("%s", strings.TrimRight(line, "\n"))
	}
	return len(lines), nil
}

// trial is a harness.Runner's Progress.
func (p *progress) trial(now harness.Progress) {
	t := now.Trial
	name := fmt.Sprintf("trial %d (%s, repeat %d)", t.Number, t.Cell, t.Repeat)
	if t.Attempt > 1 {
		name = "again: " + name
	}
	switch now.Phase {
	case harness.PhaseDeploy:
		p.printf("%s: deploying", name)
	case harness.PhaseScenario:
		p.printf("%s: under load, %s begins", name, t.Cell.Scenario)
	case harness.PhaseDone:
		p.done++
		if now.Result.Verdict == harness.VerdictInvalid && t.Attempt < harness.MaxAttempts {
			p.trials++ // it is tried again
		}
		p.printf("%s: %s [%d of %d done]", name, summary(*now.Result), p.done, p.trials)
	}
}

func summary(r harness.TrialResult) string {
	failed := harness.Failed(r.Counts)
	state := map[harness.Verdict]string{harness.VerdictPass: "valid", harness.VerdictFail: "valid, not as expected"}[r.Verdict]
	if state == "" {
		state = string(r.Verdict)
	}
	s := fmt.Sprintf("%s, %d requests, %d failed", state, failed+r.Counts[harness.OutcomeOK], failed)
	if r.Reason != "" {
		s += " (" + r.Reason + ")"
	}
	return s
}
