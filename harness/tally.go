package harness

import (
	"maps"
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
	killed         map[string]bool             // pods that were deleted without a grace period
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
	return &tally{rec: rec, byOutcome: make(map[Outcome]int), first: make(map[EventKind]time.Duration), killed: make(map[string]bool), scenarioAt: -1}
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
	if e.Kind == EventNodeRemoved || e.Kind == EventNodeLost {
		t.gone = append(t.gone, e.Object)
	}
	// What fails in the tidying up, or is cut because the pod is killed, was not
	// there to help.
	if e.Kind == EventKubernetes && e.Detail["reason"] == reasonFailedPreStop && !t.isOver && !t.killed[strings.TrimPrefix(e.Object, "Pod/")] {
		t.failedHook = e.Object + ": " + e.Detail["message"]
	}
	if e.Kind == EventPodDeletionAsked && e.Detail["grace"] == "0" {
		t.killed[e.Object] = true
	}
	if e.Kind != EventPodDeletionAsked {
		return
	}
	switch {
	case t.isOver:
	case t.scenarioAt < 0:
		t.early++
	default:
		t.deletions++
		t.lastDelete = e.At
	}
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

// lastDeletion is when the last pod's deletion was asked for, 0 if none was.
func (t *tally) lastDeletion() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lastDelete
}

func (t *tally) counts() map[Outcome]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.byOutcome)
}
