package harness

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestExpandInterleavesRepeats(t *testing.T) {
	e := testExperiment(Mitigation{Name: "none"}, Mitigation{Name: "sleep", Edits: []Edit{{"workload.preStopSleep", "10s"}}})
	e.Connections = []Connections{ConnectionsPooled, ConnectionsNew}
	e.Repeats = 2
	plan, err := Expand(e, "id")
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Cells) != 4 || len(plan.Trials) != 8 {
		t.Fatalf("%d cells, %d trials; want 4 and 8", len(plan.Cells), len(plan.Trials))
	}
	for i, trial := range plan.Trials {
		if trial.Number != i+1 || trial.Repeat != i/4+1 || trial.Cell != plan.Cells[i%4] {
			t.Errorf("trial %d is repeat %d of %v: repeats are not interleaved", trial.Number, trial.Repeat, trial.Cell)
		}
		want := time.Duration(0)
		if trial.Cell.Mitigation == "sleep" {
			want = 10 * time.Second
		}
		if got := trial.Setup.Workload.PreStopSleep.Duration; got != want {
			t.Errorf("trial %d: preStop sleep %s, want %s", trial.Number, got, want)
		}
	}
}

func TestExpandRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*Experiment)
		want string // every line of it must be in the error
	}{
		"no repeats":    {func(e *Experiment) { e.Repeats = 0 }, "repeats is 0: want 1..1000"},
		"no mitigation": {func(e *Experiment) { e.Mitigations = nil }, "mitigations: want at least one"},
		"target type":   {func(e *Experiment) { e.TargetTypes = []TargetType{"pod"} }, `targetTypes: "pod": want instance or ip`},
		"connections":   {func(e *Experiment) { e.Connections = []Connections{"old"} }, `connections: "old": want pooled, new or long-lived`},
		"expectation":   {func(e *Experiment) { e.Expect = []Expectation{{Failed: "few"}} }, `expect[0].failed is "few": want none, some, "at most N"`},
		"lost expect": {func(e *Experiment) {
			e.Expect = []Expectation{{Selector: Selector{Mitigation: "x"}, Failed: ExpectNone}}
		}, "expect[0]: matches no cell"},
		"lost exclude":    {func(e *Experiment) { e.Exclude = []Selector{{Mitigation: "x"}} }, "exclude[0]: matches no cell"},
		"all excluded":    {func(e *Experiment) { e.Exclude = []Selector{{}} }, "exclude: leaves no cell"},
		"lag":             {func(e *Experiment) { e.Base.LoadBalancer.DeregistrationLag.Max = 2 * time.Hour }, "loadBalancer.deregistrationLag is 0s..2h0m0s: want at most 1h"},
		"twice":           {func(e *Experiment) { e.Mitigations = append(e.Mitigations, e.Mitigations[0]) }, `is there twice: name each mitigation`},
		"grace":           {func(e *Experiment) { e.Base.Workload.GracePeriod = Dur(1500 * time.Millisecond) }, "workload.gracePeriod is 1.5s: want whole seconds"},
		"wait without":    {func(e *Experiment) { e.Base.Workload.OnSIGTERM = SIGTERMWait }, `workload.sigtermWait is 0s with onSigterm "wait"`},
		"rate":            {func(e *Experiment) { e.Base.Load.Rate = 100000 }, "load.rate is 100000: want 1..5000"},
		"idle timeout":    {func(e *Experiment) { e.Base.LoadBalancer.IdleTimeout = Dur(2 * time.Hour) }, "loadBalancer.idleTimeout is 2h0m0s: want 1s..4000s"},
		"several at once": {func(e *Experiment) { e.Repeats = -1; e.Base.Load.Rate = 0 }, "repeats is -1\nload.rate is 0"},
		"field": {func(e *Experiment) {
			e.Mitigations = []Mitigation{{"m", []Edit{{"workload.prestop", "1s"}}}}
		}, `mitigation m: field "workload.prestop": want one of cluster.kubeProxyMinSyncPeriod, cluster.kubeProxyMode`},
		"value": {func(e *Experiment) {
			e.Mitigations = []Mitigation{{"m", []Edit{{"workload.preStopSleep", "ten"}}}}
		}, `mitigation m: workload.preStopSleep: duration "ten": want a number with a unit`},
		"many trials":     {func(e *Experiment) { e.Repeats = 1000; e.Mitigations = manyMitigations(6) }, "repeats: 6 cells x 1000 repeats are 6000 trials: want at most 5000"},
		"many cells":      {func(e *Experiment) { e.Mitigations = manyMitigations(5001) }, "vary: makes 5001 cells: want at most 5000"},
		"fault twice":     {func(e *Experiment) { e.Base.Faults = []Fault{{Kind: FaultDropFIN}, {Kind: FaultDropFIN}} }, "faults[1]: drop-fin is there twice: one would undo the other"},
		"paused for ever": {func(e *Experiment) { e.Base.Faults = []Fault{{Kind: FaultPausedAPIServer}} }, "faults[0]: for is 0s with paused-api-server: want more than 0s and less than scenario.limit (1m0s)"},
		"long settle":     {func(e *Experiment) { e.Base.Load.Settle = Dur(2 * time.Hour) }, "load.settle is 2h0m0s: want at most 1h"},
		"changes nothing": {func(e *Experiment) {
			e.Mitigations = []Mitigation{{"m", []Edit{{"workload.gracePeriod", "30s"}}}}
		}, "mitigation m changes nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			e := testExperiment()
			c.edit(&e)
			_, err := Expand(e, "id")
			if err == nil {
				t.Fatal("accepted")
			}
			for want := range strings.Lines(c.want) {
				if want = strings.TrimSpace(want); !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
		})
	}
}

// manyMitigations are n different ones.
func manyMitigations(n int) []Mitigation {
	var all []Mitigation
	for i := range n {
		all = append(all, Mitigation{fmt.Sprintf("m%d", i), []Edit{{"workload.preStopSleep", fmt.Sprintf("%ds", i+1)}}})
	}
	return all
}

func TestDropUnmatched(t *testing.T) {
	e := testExperiment()
	e.Expect = []Expectation{{Selector: Selector{Mitigation: "gone"}, Failed: ExpectNone}, {Selector: Selector{Mitigation: "none"}, Failed: ExpectSome}}
	e = e.DropUnmatched()
	if len(e.Expect) != 1 || e.Expect[0].Mitigation != "none" {
		t.Errorf("kept %v", e.Expect)
	}
}

func TestCheckLiveNamesEveryDifference(t *testing.T) {
	s := testSetup()
	live := asAsked(s)
	if diffs := CheckLive(s, live); len(diffs) != 0 {
		t.Errorf("what is as asked for differs: %v", diffs)
	}
	live.Pods[1].Settings["workload.onSigterm"] = "exit"
	delete(live.Pods[1].Settings, "workload.gracePeriod")
	live.Settings["loadBalancer.idleTimeout"] = "30s"
	diffs := CheckLive(s, live)
	want := []string{
		"loadBalancer.idleTimeout is 30s, want 1m0s",
		"pod app-1: workload.gracePeriod is not known, want 30s",
		"pod app-1: workload.onSigterm is exit, want drain",
	}
	if !slices.Equal(diffs, want) {
		t.Errorf("differences %q, want %q", diffs, want)
	}
}

func TestClocksOfTwoProcessesAgree(t *testing.T) {
	c := NewClock()
	anchor := c.Anchor()
	if anchor.Monotonic == 0 {
		t.Skip("no clock that processes share")
	}
	// The wall clock is stepped meanwhile.
	anchor.Wall = anchor.Wall.Add(time.Minute)
	other := ClockAt(anchor)
	// Both readings are between the same two of the first clock.
	before := c.Now()
	between := other.Now()
	after := c.Now()
	const reading = time.Millisecond // two clocks take time to read; the step is a minute
	if between < before-reading || between > after+reading {
		t.Errorf("the second clock reads %s between %s and %s of the first", between, before, after)
	}
}

func TestExclude(t *testing.T) {
	e := testExperiment()
	e.TargetTypes = []TargetType{TargetInstance, TargetIP}
	e.Mitigations = append(e.Mitigations, Mitigation{"sleep", []Edit{{"workload.preStopSleep", "7s"}}})
	e.Exclude = []Selector{{TargetType: TargetIP, Mitigation: e.Mitigations[0].Name}}
	p, err := Expand(e, "id")
	if err != nil {
		t.Fatal(err)
	}
	var cells []string
	for _, c := range p.Cells {
		cells = append(cells, c.String())
	}
	first := e.Mitigations[0].Name
	if want := []string{"instance " + first + " pooled", "instance sleep pooled", "ip sleep pooled"}; !slices.Equal(cells, want) {
		t.Errorf("cells %q, want %q", cells, want)
	}
}

func TestDurationRange(t *testing.T) {
	for text, want := range map[string]DurationRange{
		"17s":     {17 * time.Second, 17 * time.Second},
		"5s..20s": {5 * time.Second, 20 * time.Second},
		"0s":      {},
	} {
		var r DurationRange
		if err := r.UnmarshalText([]byte(text)); err != nil || r != want || r.String() != text {
			t.Errorf("%q reads as %v and writes as %q, error %v", text, r, r, err)
		}
	}
	for _, text := range []string{"", "5", "20s..5s", "-1s", "1s..", "1s..2s..3s"} {
		var r DurationRange
		if err := r.UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%q reads as %v, error %v; want an error that names it", text, r, err)
		}
	}
}

func cellsOf(t *testing.T, e Experiment) (Plan, []string) {
	t.Helper()
	p, err := Expand(e, "id")
	if err != nil {
		t.Fatal(err)
	}
	var cells []string
	for _, c := range p.Cells {
		cells = append(cells, c.String())
	}
	return p, cells
}

// Fault sets take the place of the base's faults. Those that need the cluster
// for themselves come last.
func TestFaultSets(t *testing.T) {
	e := testExperiment()
	e.Base.Faults = []Fault{{Kind: FaultPausedKubelet}}
	e.FaultSets = []FaultSet{
		{Name: "link", Faults: []Fault{{Kind: FaultLinkDown}}},
		{Name: "none"},
		{Name: "lost-fin", Faults: []Fault{{Kind: FaultDropFIN}}},
	}
	e.Expect = []Expectation{{Selector{Faults: "none"}, ExpectNone}, {Selector{}, ExpectSome}}
	p, cells := cellsOf(t, e)
	if want := []string{"instance none pooled none", "instance none pooled lost-fin", "instance none pooled link"}; !slices.Equal(cells, want) {
		t.Fatalf("cells %q, want %q", cells, want)
	}
	for i, want := range [][]Fault{nil, {{Kind: FaultDropFIN}}, {{Kind: FaultLinkDown}}} {
		if got := p.Trials[i].Setup.Faults; !slices.Equal(got, want) {
			t.Errorf("%s: faults %v, want %v", cells[i], got, want)
		}
	}
	if x, y := e.ExpectationFor(p.Cells[0]), e.ExpectationFor(p.Cells[1]); x != ExpectNone || y != ExpectSome {
		t.Errorf("expected %q and %q, want none and some", x, y)
	}
	e.FaultSets, e.Expect = nil, nil
	p, cells = cellsOf(t, e)
	if len(cells) != 1 || !slices.Equal(p.Trials[0].Setup.Faults, e.Base.Faults) {
		t.Errorf("without sets: cells %q, faults %v; want the base's", cells, p.Trials[0].Setup.Faults)
	}
	e.FaultSets = []FaultSet{{Faults: []Fault{{Kind: FaultDropFIN}}}}
	if _, err := Expand(e, "id"); err == nil || !strings.Contains(err.Error(), "faultSets[0].name: want a name") {
		t.Errorf("got %v", err)
	}
}

// A mitigation that changes the target type makes a cell of the new one.
func TestMitigationByTargetType(t *testing.T) {
	e := testExperiment(Mitigation{Name: "none"}, Mitigation{"ip-targets", []Edit{{"loadBalancer.targetType", "ip"}}})
	e.Expect = []Expectation{{Selector{TargetType: TargetIP}, ExpectNone}, {Selector{TargetType: TargetInstance}, ExpectSome}}
	p, cells := cellsOf(t, e)
	if want := []string{"instance none pooled", "ip ip-targets pooled"}; !slices.Equal(cells, want) {
		t.Errorf("cells %q, want %q", cells, want)
	}
	if s := p.Trials[1].Setup; s.LoadBalancer.TargetType != TargetIP || e.ExpectationFor(p.Cells[1]) != ExpectNone {
		t.Errorf("target type %s, expected %q; want ip and none", s.LoadBalancer.TargetType, e.ExpectationFor(p.Cells[1]))
	}
	// Beside cells that have IP targets anyway it would change nothing there.
	e.TargetTypes = append(e.TargetTypes, TargetIP)
	if _, err := Expand(e, "id"); err == nil || !strings.Contains(err.Error(), "mitigation ip-targets changes nothing") {
		t.Errorf("got %v", err)
	}
	e.Exclude = []Selector{{TargetType: TargetIP, Mitigation: "ip-targets"}}
	if _, cells = cellsOf(t, e); !slices.Equal(cells, []string{"instance none pooled", "ip ip-targets pooled", "ip none pooled"}) {
		t.Errorf("cells %q", cells)
	}
}

// Cells that need the same cluster are side by side.
func TestCellsAreGroupedByCluster(t *testing.T) {
	e := testExperiment(nftables(), Mitigation{Name: "none"}, Mitigation{"slow", []Edit{{"cluster.kubeProxyMinSyncPeriod", "10s"}}})
	e.Connections = []Connections{ConnectionsPooled, ConnectionsNew}
	_, cells := cellsOf(t, e)
	want := []string{"instance none pooled", "instance none new", "instance slow pooled", "instance slow new", "instance nftables pooled", "instance nftables new"}
	if !slices.Equal(cells, want) {
		t.Errorf("cells %q, want %q", cells, want)
	}
}

// The number of long-lived connections is about the cells that have them.
func TestExpandLongLivedBesideOthers(t *testing.T) {
	e := testExperiment()
	e.Connections = []Connections{ConnectionsPooled, ConnectionsLongLived}
	e.Base.Load.LongLived = 7
	plan, err := Expand(e, "id")
	if err != nil {
		t.Fatal(err)
	}
	for _, trial := range plan.Trials {
		want := 0
		if trial.Cell.Connections == ConnectionsLongLived {
			want = 7
		}
		if got := trial.Setup.Load.LongLived; got != want {
			t.Errorf("%s: %d long-lived connections, want %d", trial.Cell, got, want)
		}
	}
}
