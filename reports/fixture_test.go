package reports

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"lameduck/harness"
	"lameduck/harness/record"
)

// The fixture is a run of the main experiment as it could have been, smaller:
// written through package record, so that these tests read what runs write.

func anExperiment() harness.Experiment {
	return harness.Experiment{
		Name:  "scale-in",
		About: "HPA scale-in from 6 pods to 2 behind an instance-mode load balancer",
		Base: harness.Setup{
			Workload: harness.Workload{
				Replicas: 6, OnSIGTERM: harness.SIGTERMDrain, GracePeriod: harness.Dur(30 * time.Second),
				ResponseTime: harness.ResponseTime{
					P50: harness.Dur(20 * time.Millisecond), P99: harness.Dur(80 * time.Millisecond),
					SlowShare: 0.01, Slow: harness.Dur(4 * time.Second)},
				KeepAlive: harness.Dur(75 * time.Second), CPURequest: "50m",
			},
			LoadBalancer: harness.LoadBalancer{IdleTimeout: harness.Dur(time.Minute), DeregistrationDelay: harness.Dur(30 * time.Second)},
			Load: harness.Load{Rate: 40, Timeout: harness.Dur(15 * time.Second), ControlRate: 4,
				Baseline: harness.Dur(5 * time.Second), Settle: harness.Dur(5 * time.Second)},
			Scenario: harness.ScenarioSpec{Name: "hpa-scale-in", To: 2, Drive: harness.DriveBounds, Limit: harness.Dur(2 * time.Minute)},
		},
		TargetTypes: []harness.TargetType{harness.TargetInstance},
		Connections: []harness.Connections{harness.ConnectionsPooled},
		Mitigations: []harness.Mitigation{
			{Name: "none"},
			{Name: "prestop-sleep-10s", Edits: []harness.Edit{{Field: "workload.preStopSleep", To: "10s"}}},
			{Name: "sigterm-wait-10s", Edits: []harness.Edit{
				{Field: "workload.onSigterm", To: "wait"}, {Field: "workload.sigtermWait", To: "10s"}}},
			{Name: "prestop-sleep-40s-grace-30s", Edits: []harness.Edit{
				{Field: "workload.preStopSleep", To: "40s"}, {Field: "workload.gracePeriod", To: "30s"}}},
		},
		Repeats: 3,
		Expect: []harness.Expectation{
			{Selector: harness.Selector{Mitigation: "none"}, Failed: harness.ExpectSome},
			{Selector: harness.Selector{Mitigation: "prestop-sleep-10s"}, Failed: harness.ExpectNone},
			{Selector: harness.Selector{Mitigation: "sigterm-wait-10s"}, Failed: harness.ExpectNone},
		},
	}
}

// behaviour is what the trials of one mitigation look like.
type behaviour struct {
	scenario time.Duration // from its start to its end
	exit     time.Duration // of a pod, after its deletion
	exitCode int
	burst    time.Duration // when failures begin, after the scenario's start
	failed   []int         // per repeat
	outcomes []harness.Outcome
}

var behaviours = map[string]behaviour{
	"none": {4 * time.Second, 300 * time.Millisecond, 0, 50 * time.Millisecond, []int{36, 31, 38},
		[]harness.Outcome{harness.Outcome502, harness.Outcome502, harness.Outcome502, harness.Outcome504, harness.OutcomeReset}},
	"prestop-sleep-10s": {14 * time.Second, 10300 * time.Millisecond, 0, 0, []int{0, 0, 0}, nil},
	"sigterm-wait-10s":  {14500 * time.Millisecond, 10400 * time.Millisecond, 0, 0, []int{0, 0, 0}, nil},
	"ip-targets":        {12 * time.Second, 300 * time.Millisecond, 0, 0, []int{0, 0}, nil},
	"prestop-sleep-40s-grace-30s": {35 * time.Second, 32100 * time.Millisecond, 137, 31 * time.Second, []int{4, 0, 3},
		[]harness.Outcome{harness.Outcome502}},
}

// run writes the fixture. finish may change a result before it is written, or
// say that the trial gets none; nil finishes all.
func run(t testing.TB, e harness.Experiment, finish func(*harness.TrialResult) bool, end *harness.RunEnd) string {
	t.Helper()
	store, plan := newRun(t, e)
	for _, trial := range plan.Trials {
		writeTrial(t, store, trial, finish)
	}
	if end != nil {
		if err := store.Finish(*end); err != nil {
			t.Fatal(err)
		}
	}
	return store.Dir()
}

func newRun(t testing.TB, e harness.Experiment) (*record.Store, harness.Plan) {
	t.Helper()
	plan, err := harness.Expand(e, "0301092030")
	if err != nil {
		t.Fatal(err)
	}
	store, err := record.Create(t.TempDir(), harness.Run{
		Tool: "v0.1", ID: "0301092030", Experiment: e, Plan: plan, Started: "2026-03-01T09:20:30Z",
		Command: "lameduck run scale-in --nodes 2",
		Environment: harness.Environment{Provider: "embedded", Kubernetes: "v1.37.2", Nodes: 2, Kernel: "6.18.5", Cores: 2,
			OS: "Debian GNU/Linux 12", Details: map[string]string{"kube-proxy": "iptables"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return store, plan
}

func writeTrial(t testing.TB, store *record.Store, trial harness.Trial, finish func(*harness.TrialResult) bool) {
	t.Helper()
	rec, err := store.Create(trial)
	if err != nil {
		t.Fatal(err)
	}
	b := behaviours[trial.Cell.Mitigation]
	load := trial.Setup.Load
	start := load.Baseline.Duration
	counts := writeRequests(rec, trial, b)
	mark := func(at time.Duration, name string) {
		rec.Event(harness.Event{At: at, Kind: harness.EventMark, Object: name})
	}
	mark(0, harness.MarkAttack)
	mark(start, harness.MarkScenario)
	for i := range 4 {
		pod := fmt.Sprintf("app-5d8f7c9b6d-%d", i)
		asked := start + time.Duration(200+i)*time.Millisecond
		jitter := time.Duration(i*trial.Repeat) * 10 * time.Millisecond
		rec.Event(harness.Event{At: asked, Kind: harness.EventPodDeletionAsked, Object: pod, Detail: map[string]string{"grace": "30"}})
		reason := "Completed"
		if b.exitCode != 0 {
			reason = "Error"
		}
		rec.Event(harness.Event{At: asked + b.exit + jitter, Kind: harness.EventContainerExited, Object: pod,
			Detail: map[string]string{"exitCode": strconv.Itoa(b.exitCode), "reason": reason}})
		rec.Event(harness.Event{At: asked + b.exit + jitter + 500*time.Millisecond, Kind: harness.EventPodGone, Object: pod})
	}
	mark(start+b.scenario, harness.MarkScenarioEnd)
	mark(start+b.scenario+load.Settle.Duration, harness.MarkAttackEnd)
	// Tearing down deletes the others: not part of the disruption.
	rec.Event(harness.Event{At: start + b.scenario + load.Settle.Duration + time.Second,
		Kind: harness.EventPodDeletionAsked, Object: "app-5d8f7c9b6d-5"})
	result := harness.TrialResult{
		Trial: trial, Anchor: "2026-03-01T09:21:00Z", Verdict: harness.VerdictPass, Counts: counts,
		Phases: map[string]float64{"deploy": 2.5, "baseline": 5, "scenario": b.scenario.Seconds(), "settle": 5},
	}
	if finish != nil && !finish(&result) {
		if err := rec.Abandon(); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err := rec.Finish(result); err != nil {
		t.Fatal(err)
	}
}

// writeRequests records an open loop of load.Rate to the application and
// load.ControlRate to the control target.
func writeRequests(rec harness.Recorder, trial harness.Trial, b behaviour) map[harness.Outcome]int {
	random := rand.New(rand.NewPCG(1, uint64(trial.Number)))
	load := trial.Setup.Load
	length := load.Baseline.Duration + b.scenario + load.Settle.Duration
	counts := make(map[harness.Outcome]int)
	failed := b.failed[trial.Repeat-1]
	step := time.Second / time.Duration(load.Rate+load.ControlRate)
	for i := range int(length / step) {
		planned := time.Duration(i) * step
		q := harness.Request{
			ID: fmt.Sprintf("r%d", i), Planned: planned, Sent: planned + time.Duration(random.IntN(200))*time.Microsecond,
			Latency: time.Duration(20e6 * math.Exp(0.6*random.NormFloat64())), Outcome: harness.OutcomeOK, Status: 200,
			Pod: fmt.Sprintf("app-5d8f7c9b6d-%d", random.IntN(6)), Attempts: 1,
			Control: i%(load.Rate/load.ControlRate+1) == 0,
		}
		if failed > 0 && !q.Control && planned >= load.Baseline.Duration+b.burst {
			q.Outcome, q.Latency, q.Pod = b.outcomes[failed%len(b.outcomes)], time.Millisecond, ""
			failed--
		}
		if !q.Control {
			counts[q.Outcome]++
		}
		rec.Request(q)
	}
	return counts
}

// aRun is the fixture with one invalid trial, ended as planned.
func aRun(t testing.TB) string {
	return run(t, anExperiment(), func(res *harness.TrialResult) bool {
		if res.Trial.Number == 7 {
			res.Verdict, res.Reason = harness.VerdictInvalid, "rate: 33.2 requests per second of 44 asked"
		}
		return true
	}, &harness.RunEnd{Ended: "2026-03-01T09:27:10Z", Complete: true})
}

// aMatrixRun is a run with faults, of another scenario and with a mitigation
// that changes the target type. It was interrupted once; two trials were
// invalid, of which one was valid when it was tried again.
func aMatrixRun(t testing.TB) string {
	e := anExperiment()
	e.Name, e.About, e.Repeats = "blue-green", "Blue/green deployment while the end of connections gets lost", 2
	e.Base.Scenario = harness.ScenarioSpec{Name: "blue-green", Shift: harness.ShiftSelector, KeepOld: harness.Dur(10 * time.Second),
		Limit: harness.Dur(2 * time.Minute)}
	e.Base.Load.BodySize = 100
	e.Mitigations = []harness.Mitigation{{Name: "none"}, {Name: "ip-targets", Edits: []harness.Edit{{Field: "loadBalancer.targetType", To: "ip"}}}}
	e.FaultSets = []harness.FaultSet{{Name: "none"}, {Name: "lost-fin", Faults: []harness.Fault{
		{Kind: harness.FaultDropFIN}, {Kind: harness.FaultPacketLoss, Share: 0.01, For: harness.Dur(5 * time.Second)}}}}
	e.Expect = []harness.Expectation{
		{Selector: harness.Selector{Mitigation: "ip-targets"}, Failed: harness.AtMost(0)},
		{Selector: harness.Selector{Faults: "lost-fin"}, Failed: harness.ExpectSome},
		{Selector: harness.Selector{Faults: "none"}, Failed: harness.AtMostRate(1.5)},
	}
	store, plan := newRun(t, e)
	for _, trial := range plan.Trials {
		if trial.Number == 6 {
			writeTrial(t, store, trial, func(*harness.TrialResult) bool { return false })
			resumeRun(t, store)
		}
		disturbed := func(res *harness.TrialResult) bool {
			if res.Trial.Number == 3 || res.Trial.Number == 2 && res.Trial.Attempt == 1 {
				res.Verdict, res.Reason = harness.VerdictInvalid, "pauses: the longest was 230ms, limit 150ms"
			}
			return true
		}
		writeTrial(t, store, trial, disturbed)
		if trial.Number == 2 || trial.Number == 3 {
			trial.Attempt = 2
			writeTrial(t, store, trial, disturbed)
		}
	}
	if err := store.Finish(harness.RunEnd{Ended: "2026-03-02T10:00:00Z", Complete: true}); err != nil {
		t.Fatal(err)
	}
	return store.Dir()
}

func resumeRun(t testing.TB, store *record.Store) {
	t.Helper()
	r, err := record.Open(store.Dir())
	if err != nil {
		t.Fatal(err)
	}
	err = store.Resume(r, record.Resumption{ID: "0302095000", Tool: "v0.2", Started: "2026-03-02T09:50:00Z", Differs: []string{"kernel is 6.19, was 6.18.5"}})
	if err != nil {
		t.Fatal(err)
	}
}

// aCutRun is the fixture interrupted in its eighth trial; the ninth has a torn
// record, and the rest was never started.
func aCutRun(t testing.TB) string {
	dir := run(t, anExperiment(), func(res *harness.TrialResult) bool { return res.Trial.Number < 8 },
		&harness.RunEnd{Ended: "2026-03-01T09:24:02Z", Reason: "interrupted"})
	entries, err := filepath.Glob(filepath.Join(dir, "00*"))
	if err != nil || len(entries) != 12 {
		t.Fatalf("%d trials, %v", len(entries), err)
	}
	for _, trial := range entries[9:] {
		if err := os.RemoveAll(trial); err != nil {
			t.Fatal(err)
		}
	}
	torn := filepath.Join(entries[8], "requests.jsonl.zst")
	info, err := os.Stat(torn)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(torn, info.Size()-3); err != nil {
		t.Fatal(err)
	}
	return dir
}

func read(t testing.TB, dir string) Report {
	t.Helper()
	r, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
