package record

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"lameduck/harness"
)

const started = "2026-03-01T10:20:30+01:00"

// aRun is a run of two cells, two repeats each.
func aRun() harness.Run {
	setup := harness.Setup{
		Workload: harness.Workload{Replicas: 6, OnSIGTERM: harness.SIGTERMDrain, GracePeriod: harness.Dur(30 * time.Second)},
		Load:     harness.Load{Rate: 300, Connections: harness.ConnectionsPooled},
		Scenario: harness.ScenarioSpec{Name: "hpa-scale-in", To: 2},
	}
	run := harness.Run{
		Tool: "v0", ID: "a1b2", Started: started,
		Experiment:  harness.Experiment{Name: "scale-in", Base: setup, Repeats: 2},
		Environment: harness.Environment{Provider: "embedded", Kubernetes: "v1.37.2", Nodes: 2},
	}
	for _, mitigation := range []string{"none", "prestop-sleep-10s"} {
		run.Plan.Cells = append(run.Plan.Cells, harness.Cell{
			Scenario: "hpa-scale-in", TargetType: harness.TargetInstance, Mitigation: mitigation, Connections: harness.ConnectionsPooled})
	}
	for n := range 4 {
		run.Plan.Trials = append(run.Plan.Trials, harness.Trial{
			Number: n + 1, Repeat: n/2 + 1, Attempt: 1, RunID: run.ID, Cell: run.Plan.Cells[n%2], Setup: setup})
	}
	return run
}

func aRequest(i int) harness.Request {
	at := time.Duration(i) * 3333333
	r := harness.Request{
		ID: fmt.Sprintf("r%d", i), Control: i%30 == 7, Planned: at, Sent: at + 12345,
		Latency: 20*time.Millisecond + time.Duration(i%977)*1000, Outcome: harness.OutcomeOK, Status: 200,
		Pod: fmt.Sprintf("app-7c9d-%d", i%6), Reused: i > 10, Attempts: 1,
	}
	if i%100 == 99 {
		r.Outcome, r.Status, r.Pod, r.Error = harness.Outcome502, 502, "", "answer 502 \"Bad Gateway\"\n"
	}
	return r
}

func anEvent(i int) harness.Event {
	return harness.Event{At: time.Duration(i) * time.Second, Kind: harness.EventContainerExited, Object: "app-1",
		Detail: map[string]string{"exitCode": fmt.Sprint(i)}}
}

func create(t *testing.T, run harness.Run) *Store {
	t.Helper()
	s, err := Create(t.TempDir(), run)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func openTrial(t *testing.T, s *Store, trial harness.Trial) harness.TrialRecord {
	t.Helper()
	rec, err := s.Create(trial)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func reopen(t *testing.T, s *Store) *Reader {
	t.Helper()
	r, err := Open(s.Dir())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func requests(t *testing.T, trial Trial) ([]harness.Request, []Warning) {
	t.Helper()
	var got []harness.Request
	warnings, err := trial.Requests(func(r harness.Request) error { got = append(got, r); return nil })
	if err != nil {
		t.Fatal(err)
	}
	return got, warnings
}

func aResult(trial harness.Trial) harness.TrialResult {
	return harness.TrialResult{
		Trial: trial, Anchor: "2026-03-01T09:20:31.5Z", Verdict: harness.VerdictInvalid, Reason: "rate: too low",
		Gates: []harness.Gate{{Name: "rate", Detail: "too low"}}, Counts: map[harness.Outcome]int{harness.OutcomeOK: 7},
		Phases: map[string]float64{"deploy": 1.5}, Live: harness.Live{Pods: []harness.LivePod{{Name: "app-1", Ready: true}}},
	}
}

func TestRoundTrip(t *testing.T) {
	run := aRun()
	s := create(t, run)
	if got, want := filepath.Base(s.Dir()), "20260301T092030Z-scale-in"; got != want {
		t.Errorf("run directory %s, want %s", got, want)
	}
	rec := openTrial(t, s, run.Plan.Trials[0])
	var wantRequests []harness.Request
	var wantEvents []harness.Event
	for i := range 500 {
		wantRequests, wantEvents = append(wantRequests, aRequest(i)), append(wantEvents, anEvent(i))
		rec.Request(aRequest(i))
		rec.Event(anEvent(i))
	}
	rec.Log(harness.LogLoadBalancer, []byte(`{"lb":1}`))
	rec.Log(harness.LogApp, []byte("not JSON, and with its newline\n"))
	if err := rec.Err(); err != nil {
		t.Fatal(err)
	}
	result := aResult(run.Plan.Trials[0])
	if err := rec.Finish(result); err != nil {
		t.Fatal(err)
	}
	if err := openTrial(t, s, run.Plan.Trials[1]).Abandon(); err != nil {
		t.Fatal(err)
	}
	end := harness.RunEnd{Ended: "2026-03-01T09:30:00Z", Reason: "interrupted"}
	if err := s.Finish(end); err != nil {
		t.Fatal(err)
	}

	r := reopen(t, s)
	run.Schema = harness.SchemaVersion
	if !reflect.DeepEqual(r.Run, run) {
		t.Errorf("run.json: got %+v\nwant %+v", r.Run, run)
	}
	if r.End == nil || *r.End != end || r.Complete() {
		t.Errorf("end %+v, complete %t; want %+v, not complete", r.End, r.Complete(), end)
	}
	if len(r.Warnings) > 0 {
		t.Errorf("warnings: %v", r.Warnings)
	}
	var states []State
	for _, trial := range r.Trials {
		states = append(states, trial.State())
	}
	if want := []State{Complete, Incomplete, NotStarted, NotStarted}; !reflect.DeepEqual(states, want) {
		t.Errorf("states %v, want %v", states, want)
	}
	first := r.Trials[0]
	if got, want := filepath.Base(first.Dir), "0001-hpa-scale-in-instance-none-pooled"; got != want {
		t.Errorf("trial directory %s, want %s", got, want)
	}
	if !reflect.DeepEqual(*first.Result, result) {
		t.Errorf("trial.json: got %+v\nwant %+v", *first.Result, result)
	}
	if got, warnings := requests(t, first); !reflect.DeepEqual(got, wantRequests) || len(warnings) > 0 {
		t.Errorf("%d requests, want %d equal ones; warnings %v", len(got), len(wantRequests), warnings)
	}
	var gotEvents []harness.Event
	warnings, err := first.Events(func(e harness.Event) error { gotEvents = append(gotEvents, e); return nil })
	if err != nil || len(warnings) > 0 || !reflect.DeepEqual(gotEvents, wantEvents) {
		t.Errorf("%d events, want %d equal ones; %v %v", len(gotEvents), len(wantEvents), warnings, err)
	}
	for log, want := range map[string]string{harness.LogLoadBalancer: `{"lb":1}`, harness.LogApp: "not JSON, and with its newline"} {
		var got []string
		if _, err := first.Log(log, func(line []byte) error { got = append(got, string(line)); return nil }); err != nil {
			t.Fatal(err)
		}
		if len(got) != 1 || got[0] != want {
			t.Errorf("log %s: %q, want %q", log, got, want)
		}
	}
	for _, trial := range r.Trials[1:] {
		if got, warnings := requests(t, trial); len(got) > 0 || len(warnings) > 0 {
			t.Errorf("trial %d: %d requests, warnings %v", trial.Number, len(got), warnings)
		}
	}
}

func TestRecordsAfterTheEndAreDropped(t *testing.T) {
	run := aRun()
	s := create(t, run)
	rec := openTrial(t, s, run.Plan.Trials[0])
	rec.Request(aRequest(0))
	if err := rec.Finish(aResult(run.Plan.Trials[0])); err != nil {
		t.Fatal(err)
	}
	rec.Request(aRequest(1)) // a straggler
	if err := rec.Err(); err != nil {
		t.Errorf("a straggler is no failure: %v", err)
	}
	if err := rec.Finish(aResult(run.Plan.Trials[0])); err == nil {
		t.Error("a second Finish was accepted")
	}
	if got, _ := requests(t, reopen(t, s).Trials[0]); len(got) != 1 {
		t.Errorf("%d requests, want 1", len(got))
	}
}

func TestUnknownLogIsAFailure(t *testing.T) {
	run := aRun()
	rec := openTrial(t, create(t, run), run.Plan.Trials[0])
	rec.Log("proxy", []byte("line"))
	const want = `log "proxy": want one of ["lb" "targets" "app"]`
	if err := rec.Finish(aResult(run.Plan.Trials[0])); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// Several trials at once, each written by many goroutines. Every request must
// be there exactly once, and every line whole.
func TestParallelWriters(t *testing.T) {
	const writers, each = 8, 400
	run := aRun()
	s := create(t, run)
	var trials sync.WaitGroup
	for _, trial := range run.Plan.Trials {
		trials.Go(func() {
			rec, err := s.Create(trial)
			if err != nil {
				t.Error(err)
				return
			}
			var wg sync.WaitGroup
			for w := range writers {
				wg.Go(func() {
					for i := range each {
						rec.Request(aRequest(w*each + i))
						rec.Event(anEvent(i))
						rec.Log(harness.LogApp, []byte("{}"))
						_ = rec.Err()
					}
				})
			}
			wg.Wait()
			if err := rec.Finish(aResult(trial)); err != nil {
				t.Error(err)
			}
		})
	}
	trials.Wait()
	for _, trial := range reopen(t, s).Trials {
		got, warnings := requests(t, trial)
		seen := make(map[string]int)
		for _, r := range got {
			seen[r.ID]++
		}
		if len(got) != writers*each || len(seen) != writers*each || len(warnings) > 0 {
			t.Errorf("trial %d: %d requests, %d different, want %d; warnings %v", trial.Number, len(got), len(seen), writers*each, warnings)
		}
	}
}

// More than the buffer holds goes to the file without waiting for the flusher.
func TestLongLogIsWrittenInOrder(t *testing.T) {
	run := aRun()
	s := create(t, run)
	rec := openTrial(t, s, run.Plan.Trials[0])
	const lines = 50000
	pad := strings.Repeat("x", 100)
	for i := range lines {
		rec.Log(harness.LogLoadBalancer, fmt.Appendf(nil, "%d %s", i, pad))
	}
	if err := rec.Finish(aResult(run.Plan.Trials[0])); err != nil {
		t.Fatal(err)
	}
	next := 0
	_, err := reopen(t, s).Trials[0].Log(harness.LogLoadBalancer, func(line []byte) error {
		if want := fmt.Sprintf("%d %s", next, pad); string(line) != want {
			return fmt.Errorf("line %d is %.20q", next, line)
		}
		next++
		return nil
	})
	if err != nil || next != lines {
		t.Errorf("%d lines, %v; want %d", next, err, lines)
	}
}

// fullDisk takes some bytes and then none.
type fullDisk struct {
	file
	left int
}

var errFull = errors.New("no space left on device")

func (d *fullDisk) Write(p []byte) (int, error) {
	if len(p) > d.left {
		return 0, errFull
	}
	d.left -= len(p)
	return d.file.Write(p)
}

func TestFullDiskIsKeptAndReported(t *testing.T) {
	for _, name := range []string{requestsFile, eventsFile, "lb.jsonl", "app.jsonl"} {
		t.Run(name, func(t *testing.T) {
			run := aRun()
			s := create(t, run)
			s.create = func(path string) (file, error) {
				f, err := createFile(path)
				if err == nil && filepath.Base(path) == name {
					return &fullDisk{file: f, left: 10000}, nil
				}
				return f, err
			}
			rec := openTrial(t, s, run.Plan.Trials[0])
			for i := 0; rec.Err() == nil && i < 100000; i++ {
				rec.Request(aRequest(i * 7919))
				rec.Event(anEvent(i))
				rec.Log(harness.LogLoadBalancer, []byte(strings.Repeat("x", 200)))
				rec.Log(harness.LogApp, []byte(strings.Repeat("x", 200)))
			}
			if err := rec.Err(); !errors.Is(err, errFull) || !strings.HasPrefix(err.Error(), "write "+name+": ") {
				t.Errorf("Err() = %v, want the failure and the file's name", err)
			}
			if err := rec.Finish(aResult(run.Plan.Trials[0])); !errors.Is(err, errFull) {
				t.Errorf("Finish() = %v, want the failure", err)
			}
			if got := reopen(t, s).Trials[0].State(); got != Incomplete {
				t.Errorf("the trial is %s", got)
			}
		})
	}
}

func TestCreateRefuses(t *testing.T) {
	run := aRun()
	s := create(t, run)
	parent := filepath.Dir(s.Dir())
	_, err := Create(parent, run)
	want := "run directory " + s.Dir() + " is there already: wait a second and start again, or choose another parent"
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
	if _, err := s.Create(run.Plan.Trials[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(run.Plan.Trials[0]); err == nil {
		t.Error("the same trial was recorded twice")
	}
	run.Started = "yesterday"
	if _, err := Create(parent, run); err == nil || !strings.HasPrefix(err.Error(), "start of the run: ") {
		t.Errorf("got %v", err)
	}
}

func TestPreflight(t *testing.T) {
	parent := filepath.Join(t.TempDir(), "not", "there")
	if err := Preflight(parent); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(parent); err != nil || len(left) > 0 {
		t.Errorf("left behind %v, %v", left, err)
	}
	blocked := filepath.Join(parent, "file")
	if err := os.WriteFile(blocked, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	err := Preflight(filepath.Join(blocked, "runs"))
	if err == nil || !strings.HasSuffix(err.Error(), ": choose another directory for runs") {
		t.Errorf("got %v", err)
	}
}

func TestTrialDirectoryNamesAreSafe(t *testing.T) {
	got := trialDir(harness.Trial{Number: 12, Attempt: 2, Cell: harness.Cell{
		Scenario: "s", TargetType: "ip", Mitigation: "../a b/é", Connections: "new", Faults: "lost FIN"}})
	if want := "0012.2-s-ip-.._a_b__-new-lost_FIN"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
