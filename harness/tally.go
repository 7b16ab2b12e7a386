package harness

import (
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"
)

// tally passes everything on to a trial's record and keeps what the gates ask
// for. It is the only state that the load, the watchers and the runner share.
type tally struct {
	rec Recorder

	mu        sync.Mutex
	byOutcome map[Outcome]int
	control   int // requests to the control target
	// slowestControl is the longest time that an answer of the control target took.
	slowestControl time.Duration
	failures       []failure // of the application
	badControl     []failure // of the control target
	retried        int       // requests for which the transport used two connections
	scenarioAt     time.Duration
	lastDelete     time.Duration // when the last pod's deletion was seen
	early          int           // pods whose deletion was asked for before the scenario
	deletions      int           // pods whose deletion was asked for between scenario and over
	isOver         bool
	first          map[EventKind]time.Duration // when a kind of event came first
	gone           []string                    // nodes that were taken away
	last           map[EventKind]time.Duration // when it came last
	deleted        map[string]Event            // the deletions of pods, by name
	failedHook     string                      // what the kubelet says of a preStop hook that failed
}

// reasonFailedPreStop is the reason of the kubelet's Event about a preStop hook
// that failed (pkg/kubelet/events, FailedPreStopHook).
const reasonFailedPreStop = "FailedPreStopHook"

type failure struct {
	ended   time.Duration
	outcome Outcome
}

func newTally(rec Recorder) *tally {
	return &tally{rec: rec, byOutcome: make(map[Outcome]int), first: make(map[EventKind]time.Duration), last: make(map[EventKind]time.Duration), deleted: make(map[string]Event), scenarioAt: -1}
}

// Request implements Recorder.
func (t *tally) Request(q Request) {
	t.rec.Request(q)
	t.mu.Lock()
	defer t.mu.Unlock()
	if q.Attempts > 1 {
		t.retried++
	}
	f := failure{q.Sent + q.Latency, q.Outcome}
	if q.Control {
		t.control++
		t.slowestControl = max(t.slowestControl, q.Latency)
		if q.Failed() {
			t.badControl = append(t.badControl, f)
		}
		return
	}
	t.byOutcome[q.Outcome]++
	if q.Failed() {
		t.failures = append(t.failures, f)
	}
}

// Event implements Recorder.
func (t *tally) Event(e Event) {
	t.rec.Event(e)
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, seen := t.first[e.Kind]; !seen {
		t.first[e.Kind] = e.At
	}
	t.last[e.Kind] = max(t.last[e.Kind], e.At)
	if e.Kind == EventNodeRemoved || e.Kind == EventNodeLost {
		t.gone = append(t.gone, e.Object)
	}
	if e.Kind == EventKubernetes && e.Detail["reason"] == reasonFailedPreStop {
		t.hookFailed(e)
	}
	if e.Kind != EventPodDeletionAsked {
		return
	}
	t.deleted[e.Object] = e
	switch {
	case t.isOver:
	case t.scenarioAt < 0:
		t.early++
	default:
		t.deletions++
		t.lastDelete = e.At
	}
}

// cutTolerance is by how much earlier than the end of the grace period the Event
// about a hook that is cut there may be seen.
const cutTolerance = 2 * time.Second

// hookFailed notes a preStop hook that failed by itself: not in the tidying up,
// and not because the grace period was over, as it is at once for a killed pod.
func (t *tally) hookFailed(e Event) {
	deletion, asked := t.deleted[strings.TrimPrefix(e.Object, "Pod/")]
	if t.isOver || !asked {
		return
	}
	grace, err := strconv.Atoi(deletion.Detail["grace"])
	if err == nil && e.At-deletion.At >= time.Duration(grace)*time.Second-cutTolerance {
		return
	}
	t.failedHook = e.Object + ": " + e.Detail["message"] + " (does the image have the command? the sleep action needs none)"
}

// Log implements Recorder.
func (t *tally) Log(log string, line []byte) { t.rec.Log(log, line) }

// scenario notes when the disruption began.
func (t *tally) scenario(at time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.scenarioAt = at
}

// over notes that what is deleted from now on is the harness's tidying up.
func (t *tally) over() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.isOver = true
}

func (t *tally) counts() map[Outcome]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.byOutcome)
}
