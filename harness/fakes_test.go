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
	early    int // pods that go before the scenario
}

func (w *fakeWorld) Deploy(_ context.Context, t Trial, clock Clock, rec Recorder) (Deployment, error) {
	if w.deployErr != nil {
		return nil, w.deployErr
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deployed++
	w.most = max(w.most, w.deployed-w.removed)
	for i := range w.early {
		rec.Event(Event{At: clock.Now(), Kind: EventPodDeletionAsked, Object: fmt.Sprintf("early-%d", i)})
	}
	return &fakeDeployment{world: w, trial: t, clock: clock, rec: rec}, nil
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
	d.world.mu.Lock()
	defer d.world.mu.Unlock()
	d.world.removed++
	return d.world.removeErr
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
}

func (fakeScenario) About() string     { return "takes time and deletes pods" }
func (fakeScenario) Check(Setup) error { return nil }

func (s fakeScenario) Run(ctx context.Context, setup Setup, d Deployment) (Disruption, error) {
	did := Disruption{Deleted: setup.Workload.Replicas - setup.Scenario.To}
	dep := d.(*fakeDeployment)
	for i := range dep.world.deletions {
		dep.rec.Event(Event{At: dep.clock.Now(), Kind: EventPodDeletionAsked, Object: fmt.Sprintf("app-%d", i)})
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
