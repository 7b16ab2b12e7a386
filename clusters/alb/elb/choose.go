package elb

import (
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"lameduck/clusters/alb/accesslog"
	"lameduck/clusters/alb/proxy"
)

// choose fills in the target of one request, or the answer if there is none.
func (n *nodeView) choose(r proxy.Request, to *proxy.Route) {
	to.Group = n.group.name
	s := n.serving.Load()
	if len(s.targets) == 0 {
		if s.empty {
			to.Answer = proxy.Answer{Status: http.StatusServiceUnavailable, Error: accesslog.ErrorNoTarget}
		} else {
			to.Answer = proxy.Answer{Status: s.unusable, Error: accesslog.ErrorNoUsableTarget}
		}
		return
	}
	var chosen *nodeTarget
	if s.sticky > 0 {
		chosen = s.stuck(r)
	}
	if chosen == nil {
		chosen = n.pick(s, r.Time())
	}
	if s.sticky > 0 {
		to.Cookies = append(to.Cookies, targetCookies(chosen.addr, s.sticky, r.Time())...)
	}
	chosen.outstanding.Add(1)
	to.Target, to.State = chosen, string(chosen.state(s))
}

// slowStartTries bounds how often another target is looked for in place of one
// that is in slow start.
const slowStartTries = 8

func (n *nodeView) pick(s *serving, now time.Time) *nodeTarget {
	if len(s.targets) == 1 {
		return s.targets[0]
	}
	var t *nodeTarget
	for range slowStartTries {
		switch s.algorithm {
		case LeastOutstandingRequests:
			t = n.leastOutstanding(s)
		case WeightedRandom:
			t = s.weightedRandom(now)
		default:
			t = s.targets[(n.next.Add(1)-1)%uint64(len(s.targets))]
		}
		if s.slowStart <= 0 || t.admits(s.slowStart, now) {
			break
		}
	}
	return t
}

// admits says whether a target in slow start takes this request: its share grows
// linearly (user guide, Target group attributes: slow start mode).
func (nt *nodeTarget) admits(slowStart time.Duration, now time.Time) bool {
	since := nt.healthySince.Load()
	if since == 0 {
		return true
	}
	age := now.UnixNano() - since
	return age >= int64(slowStart) || rand.Float64() < float64(age)/float64(slowStart)
}

// leastOutstanding begins at another target each time, so that equals take
// turns.
func (n *nodeView) leastOutstanding(s *serving) *nodeTarget {
	start := int(n.next.Add(1) % uint64(len(s.targets)))
	best := s.targets[start]
	least := best.outstanding.Load()
	for i := 1; i < len(s.targets) && least > 0; i++ {
		t := s.targets[(start+i)%len(s.targets)]
		if o := t.outstanding.Load(); o < least {
			best, least = t, o
		}
	}
	return best
}

// weightedRandom chooses any target, one that is anomalous less often. AWS
// documents that weighted random with anomaly mitigation shifts traffic away
// from targets with more errors than others, not how (U).
func (s *serving) weightedRandom(now time.Time) *nodeTarget {
	t := s.targets[rand.IntN(len(s.targets))]
	if s.mitigates && t.anomaly.seen(now) && rand.Float64() < anomalyShift {
		t = s.targets[rand.IntN(len(s.targets))]
	}
	return t
}

const (
	anomalyShift  = 0.8              // of an anomalous target's share
	anomalyWindow = 10 * time.Second // over which errors are counted
	anomalyLeast  = 5                // errors in it, at least
)

// anomaly counts a target's errors in the present window.
type anomaly struct {
	window           atomic.Int64 // number of the window
	requests, errors atomic.Int64
}

// count notes the end of a request. Errors are answers of 5xx and none at all.
func (a *anomaly) count(status int) {
	a.roll(time.Now())
	a.requests.Add(1)
	if status == 0 || status >= 500 {
		a.errors.Add(1)
	}
}

func (a *anomaly) roll(now time.Time) {
	window := now.UnixNano() / int64(anomalyWindow)
	if old := a.window.Load(); old != window && a.window.CompareAndSwap(old, window) {
		a.requests.Store(0)
		a.errors.Store(0)
	}
}

// seen says whether more than half of the window's requests were errors.
func (a *anomaly) seen(now time.Time) bool {
	a.roll(now)
	errors := a.errors.Load()
	return errors >= anomalyLeast && 2*errors > a.requests.Load()
}
