package elb

import (
	"encoding/json"
	"time"
)

// health is what one node's checks have found out about a target.
type health struct {
	state               State // initial, healthy or unhealthy
	reason, description string
	passed, failed      int // checks in a row
	// slowFrom is when slow start began; zero: no slow start.
	slowFrom time.Time
}

func newHealth() health {
	return health{state: StateInitial, reason: ReasonInitialHealthChecking, description: "Initial health checks in progress"}
}

// observe counts a check. One that passes is enough for a new target (D: user
// guide, Health checks for target groups); as many in a row as the threshold
// says for one that was unhealthy. It says whether the state has changed.
func (h *health) observe(o outcome, thresholds HealthCheck) (changed bool) {
	if o.reason == "" {
		h.passed, h.failed = h.passed+1, 0
		if h.state == StateHealthy || h.state == StateUnhealthy && h.passed < thresholds.Healthy {
			return false
		}
		h.state, h.reason, h.description = StateHealthy, "", ""
		return true
	}
	h.passed, h.failed = 0, h.failed+1
	if h.state != StateUnhealthy && h.failed < thresholds.Unhealthy {
		return false
	}
	changed = h.state != StateUnhealthy
	h.state, h.reason, h.description = StateUnhealthy, o.reason, o.description
	h.slowFrom = time.Time{}
	return changed
}

// shows is a target's state on one node.
func (g *group) shows(nt *nodeTarget) TargetHealth {
	h := TargetHealth{Target: nt.target.addr}
	set := func(s State, reason, description string) { h.State, h.Reason, h.Description = s, reason, description }
	switch {
	case nt.phase == phaseGone:
		set(StateUnused, ReasonNotRegistered, "Target is not registered to the target group")
	case nt.target.draining:
		set(StateDraining, ReasonDeregistrationInProgress, "Target deregistration is in progress")
	case nt.target.unusable:
		set(StateUnused, ReasonIPUnusable, "The IP address is in use by a load balancer")
	case !nt.node.used:
		set(StateUnused, ReasonNotInUse, "Target group is not configured to receive traffic from the load balancer")
	case nt.phase != phaseServing:
		set(StateInitial, ReasonRegistrationInProgress, "Target registration is in progress")
	default:
		set(nt.health.state, nt.health.reason, nt.health.description)
	}
	return h
}

// show tells of a target's state on one node, and over all, if it has changed.
// Callers rebuild the node's table when they are done.
func (g *group) show(nt *nodeTarget, detail string) {
	if was, is := nt.shown, g.shows(nt); was != is {
		nt.shown = is
		if was.State != is.State || was.Reason != is.Reason {
			g.tell(is, nt.node.node.name, detail)
		}
	}
	t := nt.target
	was, is := t.shown, overall(t)
	t.shown = is
	if was.State == is.State && was.Reason == is.Reason {
		return
	}
	g.count(was.State, -1)
	g.count(is.State, +1)
	if g.owner != nil {
		g.owner.metrics.Hosts(g.config.Name, g.healthy, g.unhealthy)
	}
	g.tell(is, "", detail)
}

func (g *group) tell(h TargetHealth, node, detail string) {
	if detail == "" {
		detail = h.Description
	}
	c := StateChange{
		Time: time.Now(), Group: g.config.Name, Target: h.Target, Node: node, LoadBalancer: g.loadBalancer,
		State: h.State, Reason: h.Reason, Detail: detail,
	}
	g.service.outputs.States(c)
	if b := g.service.balancers[g.loadBalancer]; b != nil {
		if line, err := json.Marshal(c); err == nil { // nothing in it can fail
			b.log.Target(line)
		}
	}
}

func (g *group) count(s State, n int) {
	switch s {
	case StateHealthy:
		g.healthy += n
	case StateUnhealthy:
		g.unhealthy += n
	}
}

// overall is a target's state over all nodes: the worst of them (I: AWS shows
// one state and does not say how it is made; a readiness gate is for the whole
// load balancer, so healthy must mean healthy everywhere).
func overall(t *target) TargetHealth {
	worst := t.nodes[0].shown
	for _, nt := range t.nodes[1:] {
		if rank(nt.shown.State) > rank(worst.State) {
			worst = nt.shown
		}
	}
	worst.Target = t.addr
	return worst
}

// rank orders states by how far they are from healthy. A target is unused only
// when it is on every node.
func rank(s State) int {
	switch s {
	case StateHealthy:
		return 1
	case StateInitial:
		return 2
	case StateUnhealthy:
		return 3
	case StateDraining:
		return 4
	}
	return 0 // unused, or not told yet
}
