package harness

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"
)

// fakeWorld deploys nothing and answers what the test wants.
type fakeWorld struct {
	deployErr error
	removeErr error
	live      func(Setup) Live
	deletions int

	mu       sync.Mutex
	deployed int
	removed  int
	most     int // deployments at one time
	parts    func() map[string]string
	early    int      // pods that go before the scenario
	log      []string // what was deployed, removed, configured, broken and mended
	// Whether things can be broken; what Break and mend answer, by kind.
	faulty            bool
	breakErr, mendErr map[FaultKind]error
}

func (w *fakeWorld) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

// configurable is a fakeWorld whose cluster's settings can be changed.
type configurable struct {
	*fakeWorld
	err error
}

// Configure implements Configurable.
func (w configurable) Configure(ctx context.Context, c ClusterSettings) error {
	w.note("configure %q", c.KubeProxyMode)
	if c == (ClusterSettings{}) {
		return ctx.Err() // it must not have ended
	}
	return w.err
}

func (w *fakeWorld) Deploy(_ context.Context, t Trial, clock Clock, rec Recorder) (Deployment, error) {
	if w.deployErr != nil {
		return nil, w.deployErr
	}
	w.note("deploy %d.%d", t.Number, t.Attempt)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deployed++
	w.most = max(w.most, w.deployed-w.removed)
	for i := range w.early {
		rec.Event(Event{At: clock.Now(), Kind: EventPodDeletionAsked, Object: fmt.Sprintf("early-%d", i)})
	}
	d := &fakeDeployment{world: w, trial: t, clock: clock, rec: rec}
	if w.faulty {
		return faultyDeployment{d}, nil
	}
	return d, nil
}

// faultyDeployment is one in which things can be broken.
type faultyDeployment struct{ *fakeDeployment }

// Break implements Faulty.
func (d faultyDeployment) Break(_ context.Context, f Fault) (func(context.Context) error, error) {
	at := func() time.Duration { return d.clock.Now().Round(time.Second) }
	if err := d.world.breakErr[f.Kind]; err != nil {
		return nil, err
	}
	d.world.note("break %s at %s", f.Kind, at())
	return func(ctx context.Context) error {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("mend was given a dead context: %w", err)
		}
		d.world.note("mend %s at %s", f.Kind, at())
		return d.world.mendErr[f.Kind]
	}, nil
}

// Parts implements Parts.
func (w *fakeWorld) Parts(context.Context) (map[string]string, error) {
	if w.parts == nil {
		return nil, nil
	}
	return w.parts(), nil
}

func (w *fakeWorld) Environment(context.Context) (Environment, error) { return Environment{}, nil }

type fakeDeployment struct {
	world *fakeWorld
	trial Trial
	clock Clock
	rec   Recorder
}

func (d *fakeDeployment) Target() Target {
	return Target{URL: "http://lb/", ReadyURL: "http://lb/healthz", ControlURL: "http://lb/control"}
}

func (d *fakeDeployment) Observe(context.Context) (Live, error) {
	return d.world.live(d.trial.Setup), nil
}

func (d *fakeDeployment) WaitPods(context.Context, int) error { return nil }

func (d *fakeDeployment) Remove(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("remove was given a dead context: %w", err)
	}
	// What is removed is seen by the watchers too, and is no disruption.
	d.rec.Event(Event{At: d.clock.Now(), Kind: EventPodDeletionAsked, Object: "app-5"})
	d.world.note("remove %d.%d", d.trial.Number, d.trial.Attempt)
	d.world.mu.Lock()
	defer d.world.mu.Unlock()
	d.world.removed++
	return d.world.removeErr
}

func (d *fakeDeployment) event(kind EventKind, object string) {
	d.rec.Event(Event{At: d.clock.Now(), Kind: kind, Object: object})
}

// delete lets the watchers see that n pods were asked to go.
func (d *fakeDeployment) delete(n int) {
	for i := range n {
		d.event(EventPodDeletionAsked, fmt.Sprintf("app-%d", i))
	}
}

// asAsked shows everything as the setup asks for.
func asAsked(s Setup) Live {
	live := Live{Settings: make(map[string]string)}
	for _, name := range EditableFields() {
		live.Settings[name] = Setting(s, name)
	}
	for i := range s.Workload.Replicas {
		live.Pods = append(live.Pods, LivePod{Name: fmt.Sprintf("app-%d", i), Ready: true, Settings: maps.Clone(live.Settings)})
	}
	return live
}

// fakeScenario takes time and deletes pods.
type fakeScenario struct {
	takes time.Duration
	err   error
	// does, if set, tells what it did instead of deleting pods.
	does func(d *fakeDeployment) Disruption
}

// alone is a scenario that disturbs other trials.
type alone struct{ fakeScenario }

func (alone) Exclusive() bool { return true }

func (fakeScenario) About() string     { return "takes time and deletes pods" }
func (fakeScenario) Check(Setup) error { return nil }

func (s fakeScenario) Run(ctx context.Context, setup Setup, d Deployment) (Disruption, error) {
	did := Disruption{Deleted: setup.Workload.Replicas - setup.Scenario.To}
	dep, ok := d.(*fakeDeployment)
	if !ok {
		dep = d.(faultyDeployment).fakeDeployment
	}
	if s.does != nil {
		did = s.does(dep)
	} else {
		dep.delete(dep.world.deletions)
	}
	select {
	case <-time.After(s.takes):
		return did, s.err
	case <-ctx.Done():
		return did, ctx.Err()
	}
}

// fakeAttacker sends a request every 10 ms of the (fake) clock.
type fakeAttacker struct {
	outcome func(at time.Duration, control bool) Outcome
	edit    func(*Request)
	stats   func(*AttackStats)
	dirty   int // so many warm-ups have failures
	err     error

	mu    sync.Mutex
	warms int
}

func (a *fakeAttacker) Attack(ctx context.Context, spec AttackSpec, each func(Request)) (AttackStats, error) {
	warmUp := spec.IDPrefix != "r"
	if want := map[bool]string{true: "http://lb/healthz", false: "http://lb/"}[warmUp]; spec.Target.URL != want {
		return AttackStats{}, fmt.Errorf("attack %s goes to %s, want %s", spec.IDPrefix, spec.Target.URL, want)
	}
	if warmUp {
		a.mu.Lock()
		a.warms++
		dirty := a.warms <= a.dirty
		a.mu.Unlock()
		if dirty {
			each(Request{ID: spec.IDPrefix + "0", Outcome: Outcome503})
		}
		return AttackStats{}, nil
	}
	if a.err != nil {
		return AttackStats{}, a.err
	}
	spec.Anchor.Monotonic = 0 // the bubble's clock is another
	clock := ClockAt(spec.Anchor)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(spec.Limit.Duration)
	stats := AttackStats{AchievedRate: float64(spec.Load.Rate + spec.Load.ControlRate)}
	for n := 0; ; n++ {
		select {
		case <-tick.C:
			q := Request{ID: fmt.Sprintf("%s%d", spec.IDPrefix, n), Control: n%10 == 0, Sent: clock.Now(), Latency: time.Millisecond, Outcome: OutcomeOK, Attempts: 1}
			if a.outcome != nil {
				q.Outcome = a.outcome(q.Sent, q.Control)
			}
			if a.edit != nil {
				a.edit(&q)
			}
			each(q)
			stats.Sent++
			continue
		case <-ctx.Done():
		case <-limit:
		}
		if a.stats != nil {
			a.stats(&stats)
		}
		return stats, nil
	}
}

// memoryStore keeps records in memory.
type memoryStore struct {
	failWriteAfter int // events and requests; 0: never

	mu     sync.Mutex
	trials []*memoryTrial
}

func (s *memoryStore) Create(Trial) (TrialRecord, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &memoryTrial{store: s}
	s.trials = append(s.trials, t)
	return t, nil
}

func (s *memoryStore) Finish(RunEnd) error { return nil }

var errDiskFull = errors.New("no space left on device")

type memoryTrial struct {
	store *memoryStore

	mu        sync.Mutex
	requests  []Request
	events    []Event
	result    *TrialResult
	abandoned bool
	err       error
}

func (t *memoryTrial) wrote() {
	if n := t.store.failWriteAfter; n > 0 && len(t.requests)+len(t.events) > n {
		t.err = errDiskFull
	}
}

func (t *memoryTrial) Request(q Request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests = append(t.requests, q)
	t.wrote()
}

func (t *memoryTrial) Event(e Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events = append(t.events, e)
	t.wrote()
}

func (t *memoryTrial) Log(string, []byte) {}

func (t *memoryTrial) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

func (t *memoryTrial) Finish(r TrialResult) error { t.result = &r; return t.err }
func (t *memoryTrial) Abandon() error             { t.abandoned = true; return nil }
