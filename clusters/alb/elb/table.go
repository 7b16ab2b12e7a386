package elb

import (
	"math/rand/v2"
	"net/netip"
	"time"

	"lameduck/clusters/alb/accesslog"
	"lameduck/clusters/alb/proxy"
)

// table is what a node's requests to a group choose from. It is replaced, never
// changed.
type table struct {
	algorithm  Algorithm
	mitigation time.Duration // interval of anomaly mitigation, 0: off
	stickiness Stickiness
	entries    []entry
	byAddr     map[netip.AddrPort]int // of entries; nil without stickiness
	slow       time.Duration          // slow start; 0 if no entry is in it
	// empty is the answer without entries.
	empty proxy.Answer
}

type entry struct {
	nt       *nodeTarget
	state    string    // for the log
	slowFrom time.Time // zero: no slow start
}

// rebuild makes a node's table anew. Callers hold Service.mu.
func (g *group) rebuild(ng *nodeGroup) {
	c := &g.config
	t := &table{algorithm: c.Algorithm, stickiness: c.Stickiness}
	if c.AnomalyMitigation {
		t.mitigation = g.service.settings.AnomalyInterval
	}
	t.entries = g.usable(ng, StateHealthy)
	if len(t.entries) == 0 {
		// Fail-open (D: user guide, Health checks for target groups).
		t.entries = g.usable(ng, StateUnhealthy)
	}
	if len(t.entries) == 0 {
		t.empty = proxy.Answer{Status: 503, Error: accesslog.ErrorNoTarget}
		if len(g.targets) > 0 {
			t.empty = proxy.Answer{Status: c.UnusableStatus, Error: accesslog.ErrorNoUsableTarget}
			orDefault(&t.empty.Status, g.service.settings.UnusableStatus)
		}
	}
	for _, e := range t.entries {
		if c.SlowStart > 0 && !e.slowFrom.IsZero() && time.Since(e.slowFrom) < c.SlowStart {
			t.slow = c.SlowStart
		}
	}
	if c.Stickiness.Duration > 0 {
		t.byAddr = make(map[netip.AddrPort]int, len(t.entries))
		for i, e := range t.entries {
			t.byAddr[e.nt.target.addr] = i
		}
	}
	ng.table.Store(t)
}

func (g *group) rebuildAll() {
	for _, ng := range g.nodes {
		g.rebuild(ng)
	}
}

// usable are the targets that the node knows in a state. A draining one is
// among them until the node's lag is over.
func (g *group) usable(ng *nodeGroup, state State) []entry {
	var entries []entry
	for _, t := range g.order {
		nt := t.nodes[ng.node.index]
		if nt.phase != phaseServing || nt.health.state != state {
			continue
		}
		if entries == nil {
			entries = make([]entry, 0, len(g.order))
		}
		e := entry{nt: nt, state: string(state), slowFrom: nt.health.slowFrom}
		if t.draining {
			e.state = string(StateDraining)
		}
		entries = append(entries, e)
	}
	return entries
}

// pick chooses the target of one request. The table has at least one.
func (ng *nodeGroup) pick(t *table) *entry {
	switch t.algorithm {
	case LeastOutstandingRequests:
		return ng.leastOutstanding(t)
	case WeightedRandom:
		return ng.weightedRandom(t)
	}
	return ng.roundRobin(t)
}

func (ng *nodeGroup) turn(t *table) int {
	return int((ng.next.Add(1) - 1) % uint64(len(t.entries)))
}

// roundRobin takes the next target. One in slow start is passed over more often
// the shorter it has been in it: its share grows linearly (D: user guide, Target
// group attributes, Slow start mode).
func (ng *nodeGroup) roundRobin(t *table) *entry {
	e := &t.entries[ng.turn(t)]
	if t.slow == 0 {
		return e
	}
	now := time.Now()
	for range t.entries {
		if e.slowFrom.IsZero() || rand.N(t.slow) < now.Sub(e.slowFrom) {
			break
		}
		e = &t.entries[ng.turn(t)]
	}
	return e
}

// leastOutstanding takes the target with the fewest requests in flight from
// this node. Equal ones take turns (I).
func (ng *nodeGroup) leastOutstanding(t *table) *entry {
	first := ng.turn(t)
	best, fewest := first, t.entries[first].nt.outstanding.Load()
	for i := first + 1; i < first+len(t.entries) && fewest > 0; i++ {
		at := i % len(t.entries)
		if n := t.entries[at].nt.outstanding.Load(); n < fewest {
			best, fewest = at, n
		}
	}
	return &t.entries[best]
}

// fullShare is the share of a target without anomalies.
const fullShare = 16

// maxDraws bounds the draws of one choice, should all targets have small
// shares.
const maxDraws = 64

// weightedRandom takes any target, evenly unless anomaly mitigation has taken
// from one's share.
func (ng *nodeGroup) weightedRandom(t *table) *entry {
	e := &t.entries[rand.IntN(len(t.entries))]
	if t.mitigation == 0 {
		return e
	}
	ng.mitigate(t, time.Now())
	for range maxDraws {
		if rand.Int32N(fullShare) < e.nt.share.Load() {
			break
		}
		e = &t.entries[rand.IntN(len(t.entries))]
	}
	return e
}
