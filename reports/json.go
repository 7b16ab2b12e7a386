package reports

import (
	"encoding/json"
	"io"
	"math"
	"time"

	"lameduck/harness"
)

// JSONSchema is the version of the JSON report. Keys are only added while it
// stays the same.
const JSONSchema = 1

// jsonReport is the JSON report. Lengths are in seconds, times are RFC 3339.
type jsonReport struct {
	Schema     int    `json:"schema"` // JSONSchema
	Tool       string `json:"tool"`   // version of lameduck that made the record
	Run        string `json:"run"`    // name of the run directory
	ID         string `json:"id"`
	Experiment string `json:"experiment"`
	About      string `json:"about"`
	Started    string `json:"started"`
	Ended      string `json:"ended,omitempty"`
	Complete   bool   `json:"complete"`         // the run went through to its end
	Reason     string `json:"reason,omitempty"` // why it did not
	// ExitCode is that of lameduck run: 0 as expected, 1 an expectation failed,
	// 3 no valid result; Reasons says why it is not 0.
	ExitCode int      `json:"exitCode"`
	Reasons  []string `json:"reasons"`
	Warnings []string `json:"warnings"` // about the record
	// Recommended are the mitigations without failures that cost least, by target
	// type ("instance") or, if there are any, target type and faults ("instance,
	// faults drop-fin"). No entry where none is known or none is needed.
	Recommended map[string]string   `json:"recommended"`
	Environment harness.Environment `json:"environment"`
	// Resumed are the RFC 3339 times at which an interrupted run was taken up again.
	Resumed []string    `json:"resumed,omitempty"`
	Cells   []jsonCell  `json:"cells"`
	Trials  []jsonTrial `json:"trials"`
}

// jsonCell is one cell. Counts, gap, pods and phases are over valid trials.
type jsonCell struct {
	harness.Cell       // scenario, targetType, mitigation, connections, faults (if there are any)
	Trials       int   `json:"trials"`         // finished ones, invalid ones and second attempts included
	Invalid      int   `json:"invalid"`        // of these
	Unfinished   int   `json:"unfinished"`     // planned, but cut off or never started
	Requests     int   `json:"requests"`       // to the application
	Failed       int   `json:"failed"`         // of these
	PerTrial     []int `json:"failedPerTrial"` // one number per valid trial
	// Outcomes has every outcome, those with zero requests too.
	Outcomes   map[harness.Outcome]int `json:"outcomes"`
	WorstTrial int                     `json:"worstTrial"` // number of a trial, 0 without a valid one
	Worst      int                     `json:"worstFailed"`
	Gap        float64                 `json:"longestGapSeconds"` // without a success
	// UpperBound95 is, when no request failed, the largest share of
	// disruptions with a failure that fits to that; null when one failed.
	UpperBound95 *float64           `json:"upperBound95"`
	Expected     string             `json:"expected,omitempty"` // none, some, at most N, at most P%
	Met          *bool              `json:"met"`                // null without an expectation or a valid trial
	Pods         []jsonPods         `json:"pods"`
	Phases       map[string]float64 `json:"phaseSeconds"` // means
}

// jsonPods are removed pods that ended alike. Seconds are from the deletion.
type jsonPods struct {
	Pods        int        `json:"pods"`
	ExitCode    *int       `json:"exitCode"` // null when the end was not seen
	Reason      string     `json:"reason,omitempty"`
	ExitSeconds [2]float64 `json:"exitSeconds"` // shortest and longest
	GoneSeconds [2]float64 `json:"goneSeconds"`
}

// jsonTrial is one attempt of a planned trial.
type jsonTrial struct {
	Number  int `json:"number"`
	Repeat  int `json:"repeat"`
	Attempt int `json:"attempt"` // 2 for the repetition of an invalid one
	harness.Cell
	State    string                  `json:"state"`             // complete, incomplete, not started
	Verdict  harness.Verdict         `json:"verdict,omitempty"` // pass, fail, invalid; only of a complete trial
	Reason   string                  `json:"reason,omitempty"`
	Requests int                     `json:"requests"`
	Control  int                     `json:"controlRequests"`
	Failed   int                     `json:"failed"`
	Outcomes map[harness.Outcome]int `json:"outcomes"`
	Gap      float64                 `json:"longestGapSeconds"`
	Phases   map[string]float64      `json:"phaseSeconds,omitempty"`
}

func writeJSON(w io.Writer, r Report) error {
	result := Judge(r)
	out := jsonReport{
		Schema: JSONSchema, Tool: r.Run.Tool, Run: r.Name, ID: r.Run.ID,
		Experiment: r.Run.Experiment.Name, About: r.Run.Experiment.About,
		Started: r.Run.Started, Ended: r.Ended, Complete: r.Complete, Reason: r.Reason,
		ExitCode: result.Code, Reasons: orEmpty(result.Reasons), Warnings: orEmpty(r.Warnings),
		Environment: r.Run.Environment, Cells: []jsonCell{}, Trials: []jsonTrial{}, Recommended: make(map[string]string),
	}
	for _, g := range groups(r) {
		if o, ok := recommended(r.of(g)); ok {
			out.Recommended[g.key()] = o.Name
		}
	}
	for _, c := range r.Cells {
		out.Cells = append(out.Cells, jsonFromCell(c))
	}
	for _, on := range r.Resumed {
		out.Resumed = append(out.Resumed, on.Started)
	}
	for _, t := range r.Trials {
		out.Trials = append(out.Trials, jsonTrial{
			Number: t.Number, Repeat: t.Repeat, Attempt: t.Attempt, Cell: t.Cell, State: string(t.State), Verdict: t.Verdict, Reason: t.Reason,
			Requests: t.Requests, Control: t.Control, Failed: t.Failed, Outcomes: allOutcomes(t.Outcomes),
			Gap: secondsOf(t.LongestGap), Phases: rounded(t.Phases),
		})
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(out)
}

func jsonFromCell(c Cell) jsonCell {
	out := jsonCell{
		Cell: c.Cell, Trials: c.Trials, Invalid: c.Invalid, Unfinished: c.Unfinished,
		Requests: c.Requests, Failed: c.Failed, PerTrial: orEmpty(c.FailedPerTrial()), Outcomes: allOutcomes(c.Outcomes),
		WorstTrial: c.WorstTrial, Worst: c.WorstFailed, Gap: secondsOf(c.LongestGap),
		Expected: string(c.Expected), Pods: []jsonPods{}, Phases: rounded(c.Phases),
	}
	if c.Clean() {
		out.UpperBound95 = &c.UpperBound
	}
	if c.Expected != "" && c.Valid() > 0 {
		out.Met = &c.Met
	}
	for _, e := range endings(c.Pods) {
		pods := jsonPods{Pods: e.Pods, Reason: e.Reason,
			ExitSeconds: [2]float64{secondsOf(e.First), secondsOf(e.Last)},
			GoneSeconds: [2]float64{secondsOf(e.GoneEarliest), secondsOf(e.GoneLast)}}
		if e.Exited {
			pods.ExitCode = &e.ExitCode
		}
		out.Pods = append(out.Pods, pods)
	}
	return out
}

// allOutcomes has a number for every outcome, so that readers need not ask
// whether a key is there.
func allOutcomes(counts map[harness.Outcome]int) map[harness.Outcome]int {
	all := make(map[harness.Outcome]int)
	for _, outcome := range orderedOutcomes(counts) {
		all[outcome] = counts[outcome]
	}
	return all
}

// orEmpty makes a nil slice [] in JSON.
func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// secondsOf and rounded are to the millisecond; more is noise.
func secondsOf(d time.Duration) float64 { return round(d.Seconds()) }

func rounded(seconds map[string]float64) map[string]float64 {
	out := make(map[string]float64, len(seconds))
	for phase, s := range seconds {
		out[phase] = round(s)
	}
	return out
}

func round(s float64) float64 { return math.Round(s*1000) / 1000 }
