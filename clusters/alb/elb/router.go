package elb

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"lameduck/clusters/alb/accesslog"
	"lameduck/clusters/alb/proxy"
)

// rules are a load balancer's rules with their target groups.
type rules struct {
	rules    []rule
	fallback action
}

type rule struct {
	Rule
	action action
}

// action is an Action with its groups.
type action struct {
	Action
	forward []weighted
	total   int // of the weights
}

type weighted struct {
	group  *group // nil: the Service does not exist
	weight int
}

// compile finds the groups of a load balancer's rules. Callers hold Service.mu.
func (s *Service) compile(spec LoadBalancer) (*rules, error) {
	var err error
	find := func(a Action) action {
		made := action{Action: a}
		if len(a.Forward) > MaxGroupsPerAction {
			err = cmp.Or(err, fmt.Errorf("an action forwards to %d target groups; the quota is %d", len(a.Forward), MaxGroupsPerAction))
		}
		for _, f := range a.Forward {
			if f.Weight < 0 || f.Weight > MaxWeight {
				err = cmp.Or(err, fmt.Errorf("weight of target group %s is %d: want 0..%d", f.GroupID, f.Weight, MaxWeight))
			}
			w := weighted{weight: f.Weight}
			if f.GroupID != "" {
				if w.group = s.groups[f.GroupID]; w.group == nil {
					err = cmp.Or(err, fmt.Errorf("%w: %s", ErrTargetGroupNotFound, f.GroupID))
				}
			}
			made.forward = append(made.forward, w)
			made.total += f.Weight
		}
		return made
	}
	r := &rules{fallback: find(spec.Default)}
	for _, x := range spec.Rules {
		r.rules = append(r.rules, rule{x, find(x.Action)})
	}
	return r, err
}

func (r *rules) groups() []*group {
	var all []*group
	add := func(a action) {
		for _, w := range a.forward {
			if w.group != nil && !slices.Contains(all, w.group) {
				all = append(all, w.group)
			}
		}
	}
	add(r.fallback)
	for _, x := range r.rules {
		add(x.action)
	}
	return all
}

// sameRules says whether two load balancers have the same rules, with or without
// regard to the weights of groups.
func sameRules(a, b LoadBalancer, weights bool) bool {
	if !weights {
		a, b = withoutWeights(a), withoutWeights(b)
	}
	return reflect.DeepEqual(a.Rules, b.Rules) && reflect.DeepEqual(a.Default, b.Default)
}

func withoutWeights(lb LoadBalancer) LoadBalancer {
	strip := func(a *Action) {
		a.Forward = slices.Clone(a.Forward)
		for i := range a.Forward {
			a.Forward[i].Weight = 0
		}
	}
	strip(&lb.Default)
	lb.Rules = slices.Clone(lb.Rules)
	for i := range lb.Rules {
		strip(&lb.Rules[i].Action)
	}
	return lb
}

// nodeRouter implements proxy.Router for one node.
type nodeRouter struct {
	node  int
	rules atomic.Pointer[rules]

	mu      sync.Mutex
	pending []*change // on their way, in the order in which they were asked for
	stopped bool
}

type change struct {
	rules *rules
	timer *time.Timer
}

func newNodeRouter(node int) *nodeRouter {
	n := &nodeRouter{node: node}
	n.rules.Store(&rules{})
	return n
}

// set replaces the rules when lag is over. Changes that were asked for before
// and have not arrived by then never do.
func (n *nodeRouter) set(r *rules, lag time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := &change{rules: r}
	n.pending = append(n.pending, c)
	if lag <= 0 {
		n.arrive(c)
		return
	}
	c.timer = time.AfterFunc(lag, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.arrive(c)
	})
}

// arrive makes a change effective unless a later one is. Callers hold mu.
func (n *nodeRouter) arrive(c *change) {
	i := slices.Index(n.pending, c)
	if i < 0 || n.stopped {
		return
	}
	for _, old := range n.pending[:i] {
		old.timer.Stop() // those without a lag have arrived
	}
	n.pending = slices.Delete(n.pending, 0, i+1)
	n.rules.Store(c.rules)
}

func (n *nodeRouter) stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stopped = true
	for _, c := range n.pending {
		c.timer.Stop()
	}
	n.pending = nil
}

// groups are those of the present rules and of those on their way.
func (n *nodeRouter) groups() []*group {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.rules.Load().groups()
	for _, c := range n.pending {
		all = append(all, c.rules.groups()...)
	}
	return all
}

// Route implements proxy.Router.
func (n *nodeRouter) Route(r proxy.Request) proxy.Route {
	rules := n.rules.Load()
	path, query := splitTarget(r.Target())
	host := ""
	for i := range rules.rules {
		x := &rules.rules[i]
		if len(x.Hosts) > 0 && host == "" {
			host = hostName(r.Host())
		}
		if x.matches(r, host, path, query) {
			return x.action.route(n, r, x.Priority, path, query)
		}
	}
	return rules.fallback.route(n, r, 0, path, query)
}

// matches says whether all conditions are fulfilled (user guide, Listener
// rules: condition types). Within one condition one value is enough.
func (x *rule) matches(r proxy.Request, host, path, query string) bool {
	any := func(patterns []string, s string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool { return matchPattern(p, s) })
	}
	if len(x.Hosts) > 0 && !any(x.Hosts, host) || len(x.Paths) > 0 && !any(x.Paths, path) ||
		len(x.Methods) > 0 && !slices.Contains(x.Methods, r.Method()) {
		return false
	}
	for name, patterns := range x.Headers {
		if !slices.ContainsFunc(r.Header(name), func(v string) bool { return any(lower(patterns), strings.ToLower(v)) }) {
			return false
		}
	}
	if len(x.Query) > 0 && !matchesQuery(x.Query, query) {
		return false
	}
	if len(x.Sources) > 0 {
		ip, err := netip.ParseAddr(r.ClientIP())
		if err != nil || !slices.ContainsFunc(x.Sources, func(p netip.Prefix) bool { return p.Contains(ip.Unmap()) }) {
			return false
		}
	}
	return true
}

func lower(patterns []string) []string {
	out := make([]string, len(patterns))
	for i, p := range patterns {
		out[i] = strings.ToLower(p)
	}
	return out
}

// matchesQuery compares without regard to case, as AWS documents.
func matchesQuery(conditions []QueryCondition, query string) bool {
	for pair := range strings.SplitSeq(query, "&") {
		key, value, _ := strings.Cut(pair, "=")
		if k, err := url.QueryUnescape(key); err == nil {
			key = k
		}
		if v, err := url.QueryUnescape(value); err == nil {
			value = v
		}
		for _, c := range conditions {
			if (c.Key == "" || matchPattern(strings.ToLower(c.Key), strings.ToLower(key))) &&
				matchPattern(strings.ToLower(c.Value), strings.ToLower(value)) {
				return true
			}
		}
	}
	return false
}

// route carries the action out.
func (a *action) route(n *nodeRouter, r proxy.Request, priority int, path, query string) proxy.Route {
	to := proxy.Route{Priority: priority}
	switch {
	case a.Fixed != nil:
		to.Action = "fixed-response"
		to.Answer = proxy.Answer{Status: a.Fixed.Status, ContentType: a.Fixed.ContentType, Body: a.Fixed.Body, Fixed: true}
	case a.Redirect != nil:
		to.Action = "redirect"
		to.Answer = proxy.Answer{Status: a.Redirect.Status, Location: a.Redirect.location(r, path, query)}
	case len(a.forward) == 0:
		to.Priority = -1
		to.Answer = proxy.Answer{Status: http.StatusNotFound, Error: accesslog.ErrorNoRule}
	default:
		to.Action = "forward"
		a.choose(n, r, &to)
	}
	return to
}

// choose chooses the group by weight, or as its cookie says, and then the
// target.
func (a *action) choose(n *nodeRouter, r proxy.Request, to *proxy.Route) {
	if a.total == 0 && len(a.forward) > 1 { // all weights are 0: none gets anything
		to.Answer = proxy.Answer{Status: http.StatusServiceUnavailable, Error: accesslog.ErrorNoTarget}
		return
	}
	g := a.forward[0].group
	if len(a.forward) > 1 {
		g = a.weightedGroup(r)
	}
	if g == nil {
		to.Answer = proxy.Answer{Status: http.StatusServiceUnavailable, Error: accesslog.ErrorNoTarget}
		return
	}
	if a.Sticky > 0 {
		to.Cookies = setCookies(g.id, a.Sticky, r.Time(), groupCookie, groupCookieCORS)
	}
	g.nodes[n.node].choose(r, to)
}

func (a *action) weightedGroup(r proxy.Request) *group {
	if a.Sticky > 0 {
		if id := readSticky(r, groupCookie, groupCookieCORS); id != "" {
			for _, w := range a.forward {
				if w.group != nil && w.group.id == id && w.weight > 0 {
					return w.group
				}
			}
		}
	}
	at := rand.IntN(a.total)
	for _, w := range a.forward {
		if at < w.weight {
			return w.group
		}
		at -= w.weight
	}
	return nil // not reached: at is below the sum
}

// location fills in the placeholders of a redirect (user guide, Redirect
// actions); an empty field keeps what the request has.
func (d *Redirect) location(r proxy.Request, path, query string) string {
	fill := strings.NewReplacer("#{protocol}", r.Scheme(), "#{host}", hostName(r.Host()), "#{port}", r.Port(),
		"#{path}", strings.TrimPrefix(path, "/"), "#{query}", query).Replace
	protocol := strings.ToLower(fill(cmp.Or(d.Protocol, "#{protocol}")))
	// The port is always written (user guide, Access logs: example with a redirect).
	target := protocol + "://" + fill(cmp.Or(d.Host, "#{host}")) + ":" + fill(cmp.Or(d.Port, "#{port}"))
	target += "/" + strings.TrimPrefix(fill(cmp.Or(d.Path, "/#{path}")), "/")
	if q := fill(cmp.Or(d.Query, "#{query}")); q != "" {
		target += "?" + q
	}
	return target
}

// splitName splits namespace/ingress.
func splitName(name string) (namespace, ingress string) {
	namespace, ingress, _ = strings.Cut(name, "/")
	return namespace, ingress
}
