package elb

import (
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"lameduck/clusters/alb/accesslog"
	"lameduck/clusters/alb/proxy"
)

// router is a load balancer's rules on one node. It implements proxy.Router.
type router struct {
	node  *node
	rules atomic.Pointer[ruleset]
	// version of the rules that the node has; changes may overtake each other.
	version int
}

// ruleset is never changed.
type ruleset struct {
	rules    []compiledRule // in order of priority
	fallback action
	groups   []*group // all that are named
}

type compiledRule struct {
	conditions
	priority int
	action   action
}

// action is an Action on one node.
type action struct {
	kind   string // as the access log names it
	shares []share
	total  int // of weights
	sticky time.Duration
	answer proxy.Answer // a fixed response, or when there is nothing else
	// redirect, if it is one.
	redirect *Redirect
}

type share struct {
	group  *nodeGroup // nil: the Service does not exist
	name   string
	weight int
}

// compile makes the rules of one node. groups has all that are named.
func compile(lb *LoadBalancer, node *node, groups map[string]*group) *ruleset {
	set := &ruleset{groups: slices.Collect(maps.Values(groups))}
	for _, r := range lb.Rules {
		set.rules = append(set.rules, compiledRule{conditions: compileConditions(r), priority: r.Priority, action: compileAction(r.Action, node, groups)})
	}
	set.fallback = compileAction(lb.Default, node, groups)
	return set
}

func compileAction(a Action, node *node, groups map[string]*group) action {
	switch {
	case a.Fixed != nil:
		return action{kind: "fixed-response", answer: proxy.Answer{Status: a.Fixed.Status, ContentType: a.Fixed.ContentType, Body: a.Fixed.Body, Fixed: true}}
	case a.Redirect != nil:
		r := a.Redirect.withDefaults()
		return action{kind: "redirect", redirect: &r}
	case len(a.Forward) == 0:
		return action{answer: proxy.Answer{Status: 404, Error: accesslog.ErrorNoRule}}
	}
	// 503 if all weights are 0, or the Service does not exist.
	c := action{kind: "forward", sticky: a.Sticky, answer: proxy.Answer{Status: 503, Error: accesslog.ErrorNoTarget}}
	for _, w := range a.Forward {
		s := share{name: w.Group, weight: w.Weight}
		if g := groups[w.Group]; g != nil {
			s.group = g.nodes[node.index]
		}
		if len(a.Forward) == 1 {
			s.weight = 1 // a weight means nothing without others
		}
		c.shares = append(c.shares, s)
		c.total += s.weight
	}
	return c
}

// Route implements proxy.Router.
func (r *router) Route(req proxy.Request) proxy.Route {
	set := r.rules.Load()
	s := subject{req: req}
	for i := range set.rules {
		if rule := &set.rules[i]; rule.match(&s) {
			return rule.action.route(rule.priority, req)
		}
	}
	priority := 0
	if set.fallback.kind == "" {
		priority = -1
	}
	return set.fallback.route(priority, req)
}

func (a *action) route(priority int, req proxy.Request) proxy.Route {
	route := proxy.Route{Priority: priority, Action: a.kind, Answer: a.answer}
	switch {
	case a.redirect != nil:
		route.Answer = a.redirect.answer(req)
	case len(a.shares) > 0:
		a.forward(&route, req)
	}
	return route
}

// forward chooses a group, and one of its targets. There is no second choice:
// a group without targets answers 503 while others have some (D: user guide,
// Listener rules, Forward actions).
func (a *action) forward(route *proxy.Route, req proxy.Request) {
	s := a.stickyShare(req)
	if s == nil {
		s = a.draw()
	}
	if s == nil {
		return
	}
	route.Group = s.name
	if s.group == nil {
		return
	}
	s.group.route(route, req)
	if a.sticky > 0 && route.Target != nil {
		now := time.Now()
		route.Cookies = append(route.Cookies, setCookies(groupCookie, makeToken(s.name, now.Add(a.sticky)), req.Scheme(), now.Add(a.sticky))...)
	}
}

// draw chooses a group by weight, at random (how AWS does it is not published).
// nil if all weights are 0.
func (a *action) draw() *share {
	if len(a.shares) == 1 {
		return &a.shares[0]
	}
	if a.total == 0 {
		return nil
	}
	n := rand.IntN(a.total)
	for i := range a.shares {
		if n -= a.shares[i].weight; n < 0 {
			return &a.shares[i]
		}
	}
	panic("unreachable: the weights add up to the total")
}

// stickyShare is the group that the client is bound to. A group whose weight
// has become 0 keeps nobody (I: or no switch between groups would ever end).
func (a *action) stickyShare(req proxy.Request) *share {
	if a.sticky == 0 {
		return nil
	}
	cookies, now := req.Header("Cookie"), time.Now()
	for _, name := range [...]string{groupCookie, groupCookie + corsSuffix} {
		bound := readToken(cookieValue(cookies, name), now)
		for i := range a.shares {
			if s := &a.shares[i]; bound != "" && s.name == bound && s.weight > 0 {
				return s
			}
		}
	}
	return nil
}

// route chooses a target of the group.
func (ng *nodeGroup) route(route *proxy.Route, req proxy.Request) {
	t := ng.table.Load()
	if len(t.entries) == 0 {
		route.Answer = t.empty
		return
	}
	var e *entry
	if t.stickiness.Duration == 0 {
		e = ng.pick(t)
	} else {
		now := time.Now()
		if e = ng.stick(t, req.Header("Cookie"), now); e == nil {
			e = ng.pick(t)
		}
		ng.setTargetCookies(route, t, e, req.Scheme(), now)
	}
	e.nt.outstanding.Add(1)
	route.Target, route.State, route.Answer = e.nt, e.state, proxy.Answer{}
}
