package reports

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lameduck/harness"
	"lameduck/harness/record"
)

func TestEveryRequestIsCountedOnce(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	outcomes := append(slices.Clone(harness.Outcomes), "of a later version")
	e := anExperiment()
	plan, err := harness.Expand(e, "r")
	if err != nil {
		t.Fatal(err)
	}
	store, err := record.Create(t.TempDir(), harness.Run{Experiment: e, Plan: plan, Started: "2026-03-01T09:20:30Z"})
	if err != nil {
		t.Fatal(err)
	}
	written, valid := 0, 0 // requests; those of the application in valid trials
	byOutcome := make(map[harness.Outcome]int)
	for _, trial := range plan.Trials {
		rec, err := store.Create(trial)
		if err != nil {
			t.Fatal(err)
		}
		verdict := []harness.Verdict{harness.VerdictPass, harness.VerdictFail, harness.VerdictInvalid, ""}[random.IntN(4)]
		counts := make(map[harness.Outcome]int)
		for range random.IntN(500) {
			q := harness.Request{Outcome: outcomes[random.IntN(len(outcomes))], Control: random.IntN(5) == 0,
				Sent: time.Duration(random.IntN(1e9))}
			rec.Request(q)
			written++
			if !q.Control {
				counts[q.Outcome]++
			}
			if !q.Control && (verdict == harness.VerdictPass || verdict == harness.VerdictFail) {
				valid++
				byOutcome[q.Outcome]++
			}
		}
		if verdict == "" {
			err = rec.Abandon()
		} else {
			err = rec.Finish(harness.TrialResult{Trial: trial, Verdict: verdict, Counts: counts})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	r := read(t, store.Dir())
	inTrials, inCells, failed := 0, 0, 0
	got := make(map[harness.Outcome]int)
	for _, trial := range r.Trials {
		inTrials += trial.Requests + trial.Control
		sum := 0
		for _, n := range trial.Outcomes {
			sum += n
		}
		if sum != trial.Requests || trial.Failed != sum-trial.Outcomes[harness.OutcomeOK] {
			t.Errorf("trial %d: %d requests, %d in outcomes, %d failed", trial.Number, trial.Requests, sum, trial.Failed)
		}
	}
	for _, c := range r.Cells {
		inCells += c.Requests
		failed += c.Failed
		perTrial := 0
		for _, n := range c.FailedPerTrial() {
			perTrial += n
		}
		if perTrial != c.Failed {
			t.Errorf("%s: %d failed per trial, %d in all", c.Mitigation, perTrial, c.Failed)
		}
		for outcome, n := range c.Outcomes {
			got[outcome] += n
		}
		if trials := c.Trials + c.Unfinished; trials != e.Repeats {
			t.Errorf("%s: %d trials, want %d", c.Mitigation, trials, e.Repeats)
		}
	}
	if inTrials != written || inCells != valid || valid == 0 {
		t.Errorf("%d requests in trials, want %d; %d in cells, want %d", inTrials, written, inCells, valid)
	}
	if failed != valid-byOutcome[harness.OutcomeOK] {
		t.Errorf("%d failed, want %d", failed, valid-byOutcome[harness.OutcomeOK])
	}
	for outcome, n := range byOutcome {
		if got[outcome] != n {
			t.Errorf("outcome %s: %d, want %d", outcome, got[outcome], n)
		}
	}
}

func TestCellsOfTheFixture(t *testing.T) {
	r := read(t, aRun(t))
	for i, want := range []struct {
		mitigation              string
		trials, invalid, failed int
		perTrial                []int
		worstTrial              int
		bound                   float64
		met                     bool
		exitCode                int
	}{
		{"none", 3, 0, 105, []int{36, 31, 38}, 9, 0, true, 0},
		{"prestop-sleep-10s", 3, 0, 0, []int{0, 0, 0}, 2, 0.6316, true, 0},
		{"sigterm-wait-10s", 3, 1, 0, []int{0, 0}, 3, 0.7764, true, 0},
		{"prestop-sleep-40s-grace-30s", 3, 0, 7, []int{4, 0, 3}, 4, 0, false, 137},
	} {
		c := r.Cells[i]
		if c.Mitigation != want.mitigation || c.Trials != want.trials || c.Invalid != want.invalid || c.Failed != want.failed ||
			!slices.Equal(c.FailedPerTrial(), want.perTrial) || c.WorstTrial != want.worstTrial || c.Met != want.met {
			t.Errorf("got %+v\nwant %+v", c, want)
		}
		if math.Abs(c.UpperBound-want.bound) > 0.0001 {
			t.Errorf("%s: upper bound %f, want %f", c.Mitigation, c.UpperBound, want.bound)
		}
		if len(c.Pods) != 4*c.Valid() {
			t.Errorf("%s: the ends of %d pods, want %d", c.Mitigation, len(c.Pods), 4*c.Valid())
		}
		for _, p := range c.Pods {
			if !p.Exited || !p.Gone || p.ExitCode != want.exitCode || p.AfterGone <= p.AfterExit {
				t.Errorf("%s: %+v", c.Mitigation, p)
			}
		}
	}
	if got, want := r.Cells[1].Phases["scenario"], 14.0; math.Abs(got-want) > 1e-9 {
		t.Errorf("mean scenario %f s, want %f", got, want)
	}
}

func TestDifferentCountsMakeATrialInvalid(t *testing.T) {
	dir := run(t, anExperiment(), func(res *harness.TrialResult) bool {
		if res.Trial.Number == 2 {
			res.Counts[harness.OutcomeOK]--
			res.Counts[harness.Outcome503] = 1
		}
		return true
	}, nil)
	r := read(t, dir)
	const want = "trial 2: the requests on disk (ok 960) are not those that were counted while it ran (ok 959, 503 1); the trial counts as invalid"
	if len(r.Warnings) != 1 || r.Warnings[0] != want {
		t.Errorf("got %q\nwant %q", r.Warnings, want)
	}
	if trial := r.Trials[1]; trial.Verdict != harness.VerdictInvalid || trial.Reason != "its record is damaged: see the warnings" {
		t.Errorf("verdict %s (%s), want invalid", trial.Verdict, trial.Reason)
	}
	if r.Cells[1].Invalid != 1 {
		t.Errorf("%d invalid trials in the cell, want 1", r.Cells[1].Invalid)
	}
}

func TestResultsThatContradictThemselvesAreInvalid(t *testing.T) {
	for want, edit := range map[string]func(*harness.TrialResult){
		`its verdict is "great", which is none`: func(r *harness.TrialResult) { r.Verdict = "great" },
		"rate: too slow": func(r *harness.TrialResult) {
			r.Gates = append(r.Gates, harness.Gate{Name: "rate", Detail: "too slow"})
		},
	} {
		dir := run(t, anExperiment(), func(res *harness.TrialResult) bool {
			if res.Trial.Number == 2 {
				edit(res)
			}
			return true
		}, nil)
		if trial := read(t, dir).Trials[1]; trial.Verdict != harness.VerdictInvalid || trial.Reason != want {
			t.Errorf("verdict %s (%s), want invalid (%s)", trial.Verdict, trial.Reason, want)
		}
	}
}

func TestDamagedRecordIsAnError(t *testing.T) {
	dir := aRun(t)
	path := filepath.Join(dir, "0003-hpa-scale-in-instance-sigterm-wait-10s-pooled", "events.jsonl")
	if err := os.WriteFile(path, []byte("{}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir); err == nil || err.Error() != path+":1: an event without a kind" {
		t.Errorf("got %v", err)
	}
	if _, err := Read(filepath.Dir(dir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestLongestGap(t *testing.T) {
	// at:latency, with ! for a failed request; milliseconds.
	for _, c := range []struct {
		requests string
		want     int
	}{
		{"", 0},
		{"0:5", 0}, // its end is after the last send
		{"0:5 10:5 20:5 30:5", 10},
		{"0:5 10:5! 20:5! 30:5 40:5", 30},
		{"0:5! 10:5! 20:5! 30:5", 30},           // nothing until the last
		{"0:5! 100:5!", 100},                    // nothing at all
		{"0:5 10:5 20:15000! 30:15000!", 15},    // the wait for timeouts after the attack is none
		{"0:5 10:5 20:500! 1000:5!", 985},       // outage at the end
		{"30:5 20:5 10:5 0:5", 10},              // order does not matter
		{"0:100 10:5 20:5 30:5 40:5 50:5", 15},  // a slow answer closes no gap before it
		{"0:5 10:5 20:5! 30:5! 40:5! 50:5", 35}, // the last success ends after the last send
	} {
		var g gapFinder
		for field := range strings.FieldsSeq(c.requests) {
			var at, latency int
			failed := strings.HasSuffix(field, "!")
			if _, err := fmt.Sscanf(strings.TrimSuffix(field, "!"), "%d:%d", &at, &latency); err != nil {
				t.Fatal(err)
			}
			q := harness.Request{Sent: time.Duration(at) * time.Millisecond, Latency: time.Duration(latency) * time.Millisecond, Outcome: harness.OutcomeOK}
			if failed {
				q.Outcome = harness.Outcome502
			}
			g.add(q)
		}
		if got := g.longest(); got != time.Duration(c.want)*time.Millisecond {
			t.Errorf("%q: %s, want %d ms", c.requests, got, c.want)
		}
	}
}

func TestPodEnds(t *testing.T) {
	event := func(at int, kind harness.EventKind, object string, detail ...string) harness.Event {
		e := harness.Event{At: time.Duration(at) * time.Second, Kind: kind, Object: object}
		if len(detail) > 0 {
			e.Detail = map[string]string{"exitCode": detail[0], "reason": "Error"}
		}
		return e
	}
	var p podFinder
	for _, e := range []harness.Event{
		event(1, harness.EventPodDeletionAsked, "before"), // not by the scenario
		event(2, harness.EventMark, harness.MarkScenario),
		event(3, harness.EventPodDeletionAsked, "a"),
		event(3, harness.EventPodDeletionAsked, "b"),
		event(4, harness.EventPodDeletionAsked, "a"), // again: the first counts
		event(4, harness.EventContainerExited, "crashed", "1"),
		event(5, harness.EventContainerExited, "a", "0"),
		event(6, harness.EventContainerExited, "a", "137"), // the first counts
		event(7, harness.EventPodGone, "a"),
		event(8, harness.EventPodDeletionAsked, "c"),
		event(9, harness.EventContainerExited, "c", "unknown"),
		event(9, harness.EventMark, harness.MarkAttackEnd),
		event(10, harness.EventPodDeletionAsked, "tear-down"),
		event(11, harness.EventPodGone, "b"),
	} {
		p.add(e)
	}
	want := []PodEnd{
		{Pod: "a", Exited: true, ExitCode: 0, Reason: "Error", AfterExit: 2 * time.Second, Gone: true, AfterGone: 4 * time.Second},
		{Pod: "b", Gone: true, AfterGone: 8 * time.Second},
		{Pod: "c"},
	}
	if !slices.Equal(p.ends, want) {
		t.Errorf("got %+v\nwant %+v", p.ends, want)
	}
	if groups := endings(p.ends); len(groups) != 2 || groups[0].exitText() != "0" || groups[1].exitText() != "not seen" || groups[1].Pods != 2 {
		t.Errorf("endings %+v", groups)
	}
}

// cell makes a cell with an expectation and the failed requests of its trials.
func cell(name string, x harness.Expected, invalid int, failed ...int) Cell {
	var tried []harness.Tried
	for _, n := range failed {
		tried = append(tried, harness.Tried{Requests: 1000, Failed: n})
	}
	return Cell{
		Cell:   harness.Cell{TargetType: "instance", Mitigation: name, Connections: "pooled"},
		Trials: len(failed) + invalid, Invalid: invalid, PerTrial: tried,
		Expected: x, Met: x != "" && x.Met(tried),
	}
}

func TestJudge(t *testing.T) {
	some, none := harness.ExpectSome, harness.ExpectNone
	for _, c := range []struct {
		name    string
		cells   []Cell
		cut     bool
		code    int
		reasons []string
	}{
		{"as expected", []Cell{cell("a", some, 0, 3, 0, 5), cell("b", none, 1, 0, 0), cell("c", "", 0, 7)}, false, 0, nil},
		{"nothing expected", []Cell{cell("a", "", 0, 3)}, false, 0, nil},
		{"none failed", []Cell{cell("a", some, 0, 3, 0, 0)}, false, 1,
			[]string{"a, instance targets, pooled connections: expected some failed requests, but got 3, 0, 0 in its valid trials"}},
		{"some failed", []Cell{cell("a", none, 0, 0, 1)}, false, 1,
			[]string{"a, instance targets, pooled connections: expected no failed requests, but got 0, 1 in its valid trials"}},
		{"no valid trial", []Cell{cell("a", some, 3), cell("b", none, 0, 0)}, false, 3,
			[]string{"a, instance targets, pooled connections: expected some failed requests, but no trial is valid"}},
		{"a failure outweighs", []Cell{cell("a", some, 3), cell("b", none, 0, 1)}, false, 1, []string{
			"b, instance targets, pooled connections: expected no failed requests, but got 1 in its valid trials",
			"a, instance targets, pooled connections: expected some failed requests, but no trial is valid"}},
		{"nothing valid", []Cell{cell("a", "", 2)}, false, 3, []string{"no trial is valid"}},
		{"no cell", nil, false, 3, []string{"no trial is valid"}},
		{"cut off", []Cell{cell("a", none, 0, 0)}, true, 3, []string{"the run is not complete: interrupted"}},
		{"at most 3 in a trial", []Cell{cell("a", harness.AtMost(3), 0, 3, 0), cell("b", harness.AtMost(3), 0, 0, 4)}, false, 1,
			[]string{"b, instance targets, pooled connections: expected at most 3 failed requests, but got 0, 4 in its valid trials"}},
		{"at most 0.5 %", []Cell{cell("a", harness.AtMostRate(0.5), 0, 5), cell("b", harness.AtMostRate(0.5), 0, 0, 6)}, false, 1,
			[]string{"b, instance targets, pooled connections: expected at most 0.5% of a trial's requests to fail, but got 0 of 1000, 6 of 1000 in its valid trials"}},
		{"cut off and unexpected", []Cell{cell("a", none, 0, 1)}, true, 1,
			[]string{"a, instance targets, pooled connections: expected no failed requests, but got 1 in its valid trials"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Judge(Report{Cells: c.cells, Complete: !c.cut, Reason: "interrupted"})
			if got.Code != c.code || !slices.Equal(got.Reasons, c.reasons) {
				t.Errorf("got %d %q\nwant %d %q", got.Code, got.Reasons, c.code, c.reasons)
			}
		})
	}
}

// The shape that programs rely on.
func TestJSONShape(t *testing.T) {
	var out strings.Builder
	if err := Render(&out, read(t, aRun(t)), FormatJSON, 0); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Schema int
		Cells  []struct {
			Scenario, TargetType, Mitigation, Connections string
			Trials, Invalid, Requests, Failed             int
			Outcomes                                      map[string]int
		}
	}
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil {
		t.Fatal(err)
	}
	if got.Schema != JSONSchema || len(got.Cells) != 4 {
		t.Fatalf("schema %d, %d cells", got.Schema, len(got.Cells))
	}
	third := got.Cells[2]
	if third.Scenario != "hpa-scale-in" || third.TargetType != "instance" || third.Mitigation != "sigterm-wait-10s" ||
		third.Connections != "pooled" || third.Trials != 3 || third.Invalid != 1 || third.Requests != 1960 || third.Failed != 0 {
		t.Errorf("got %+v", third)
	}
	for _, c := range got.Cells {
		sum := 0
		for _, outcome := range harness.Outcomes {
			n, ok := c.Outcomes[string(outcome)]
			if !ok {
				t.Errorf("%s: no outcome %s", c.Mitigation, outcome)
			}
			sum += n
		}
		if sum != c.Requests || c.Requests-c.Outcomes["ok"] != c.Failed {
			t.Errorf("%s: outcomes %v do not add up to %d requests, %d failed", c.Mitigation, c.Outcomes, c.Requests, c.Failed)
		}
	}
}

func TestParseFormat(t *testing.T) {
	for _, name := range []string{"table", "md", "json"} {
		if f, err := ParseFormat(name); err != nil || string(f) != name {
			t.Errorf("%s: %s, %v", name, f, err)
		}
	}
	const want = `format "pdf": want one of table, md, json`
	if _, err := ParseFormat("pdf"); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := Render(&strings.Builder{}, Report{}, "pdf", 0); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A record of format 1 is reported as it was.
func TestFormat1(t *testing.T) {
	r := read(t, filepath.Join("..", "harness", "record", "testdata", "format1"))
	c := r.Cells[0]
	if len(r.Cells) != 1 || c.Valid() != 1 || c.Requests != 20 || c.Failed != 1 || c.Unfinished != 1 || !c.Met || len(r.Warnings) > 0 {
		t.Errorf("got %+v, warnings %v", c, r.Warnings)
	}
	for _, f := range formats {
		var out strings.Builder
		if err := Render(&out, r, f, 0); err != nil || strings.Contains(out.String(), "attempt)") {
			t.Errorf("%s: %v\n%s", f, err, out.String())
		}
	}
}
