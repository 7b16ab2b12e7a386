package reports

import (
	"time"

	"lameduck/harness"
	"lameduck/harness/record"
)

// Report is what a run directory says.
type Report struct {
	Name string // of the run directory
	Run  harness.Run
	// Complete is false when the run was interrupted or cut off; Reason says why.
	Complete bool
	Reason   string
	Ended    string // RFC 3339, empty when the run was cut off
	Cells    []Cell // in the plan's order
	Trials   []Trial
	// Resumed are the times at which the run was interrupted and taken up again;
	// CutOff is how many trials were cut off then and run anew.
	Resumed []record.Resumption
	CutOff  int
	// Warnings are about the record: it was readable, but something is odd.
	Warnings []string
}

// Cell sums up the trials of one cell. Counts, gap, pods and phases are over
// the valid trials.
type Cell struct {
	harness.Cell
	Trials     int // finished ones, the invalid ones and second attempts included
	Invalid    int // of these
	Unfinished int // planned, but cut off or never started
	Requests   int // to the application; those to the control target are left out
	Failed     int
	Outcomes   map[harness.Outcome]int
	// PerTrial has an entry for each valid trial, in the plan's order.
	PerTrial []harness.Tried
	// WorstTrial is the number of the valid trial with the most failed
	// requests, the first of several, 0 without one.
	WorstTrial  int
	WorstFailed int
	LongestGap  time.Duration // see Trial.LongestGap
	// UpperBound is, when no request failed in any valid trial, the largest
	// share of disruptions with a failure that is compatible with that: with n
	// trials, at 95 % confidence, 1 - 0.05^(1/n). 0 when a request failed or no
	// trial is valid.
	UpperBound float64
	Expected   harness.Expected // "" when nothing is
	Met        bool             // the expectation; false without a valid trial
	// Pods are the ends of the pods that the disruption removed.
	Pods []PodEnd
	// Phases are the mean lengths of a trial's phases, in seconds.
	Phases map[string]float64
}

// FailedPerTrial has one number for each valid trial.
func (c Cell) FailedPerTrial() []int {
	var failed []int
	for _, t := range c.PerTrial {
		failed = append(failed, t.Failed)
	}
	return failed
}

// Valid is the number of trials that count.
func (c Cell) Valid() int { return c.Trials - c.Invalid }

// Clean says whether no request failed, in at least one valid trial.
func (c Cell) Clean() bool { return c.Valid() > 0 && c.Failed == 0 }

// Trial is one attempt of a planned trial.
type Trial struct {
	Number, Repeat int
	Attempt        int // from 1
	Cell           harness.Cell
	State          record.State
	Verdict        harness.Verdict // "" unless complete
	Reason         string          // of an invalid or failed trial
	Requests       int             // to the application
	Control        int             // to the control target
	ControlFailed  int
	Failed         int
	Outcomes       map[harness.Outcome]int
	// LongestGap is the longest time in which no request to the application
	// succeeded: the largest distance between the ends (Sent + Latency) of two
	// successive successful requests. The attack's first send counts as an end
	// before all, and its last send as one after all, so that an outage at
	// either end is seen and the silence after the attack is not.
	LongestGap time.Duration
	Pods       []PodEnd
	Phases     map[string]float64 // seconds
	Retried    int                // requests that the client's transport sent more than once
}

// Valid says whether the trial counts.
func (t Trial) Valid() bool {
	return t.State == record.Complete && t.Verdict != harness.VerdictInvalid
}

// PodEnd is how one pod ended whose deletion was asked for during the
// disruption. Times are from the deletion, as the watchers saw it.
type PodEnd struct {
	Pod string
	// Exited says whether the container's end was seen; without it ExitCode,
	// Reason and AfterExit mean nothing.
	Exited    bool
	ExitCode  int    // 0 after a clean end, 128 + 9 after SIGKILL
	Reason    string // as the kubelet gives it: Completed, Error, OOMKilled ...
	AfterExit time.Duration
	Gone      bool // whether the pod was seen to go, AfterGone after the deletion
	AfterGone time.Duration
}
