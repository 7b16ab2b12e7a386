package elb

import (
	"encoding/json"
	"maps"
	"strconv"
	"time"
)

// InForce is a line of a load balancer's settings log: what holds from Time on.
// It is of one of three kinds: the attributes of a load balancer (LoadBalancer
// and Attributes), those of a target group (Group, TargetType, Attributes), or
// that one node has taken over what reaches the nodes one by one (Node, Applied).
type InForce struct {
	Time         time.Time  `json:"time"`
	LoadBalancer string     `json:"loadBalancer,omitempty"` // namespace/ingress
	Group        string     `json:"group,omitempty"`        // namespace/service:port
	TargetType   TargetType `json:"targetType,omitempty"`
	// Attributes by their names in ELBv2, all that have an effect here, with
	// values as DescribeLoadBalancerAttributes and DescribeTargetGroupAttributes
	// give them.
	Attributes map[string]string `json:"attributes,omitempty"`
	Node       string            `json:"node,omitempty"`    // its address
	Applied    string            `json:"applied,omitempty"` // AppliedRules
	Rules      []ForwardRule     `json:"rules,omitempty"`   // with AppliedRules
}

// AppliedRules says that a node has a new set of rules, and their weights.
const AppliedRules = "rules"

// ForwardRule is a rule that forwards, with the weights of its groups; the other
// rules are left out. Priority 0 is the default action.
type ForwardRule struct {
	Priority int           `json:"priority"`
	Forward  []GroupWeight `json:"forward"`
}

// GroupWeight is a group's share of a rule's requests.
type GroupWeight struct {
	Group  string `json:"group"` // "": a Service that does not exist
	Weight int    `json:"weight"`
}

// forwardsOf lists the rules of a load balancer that forward.
func forwardsOf(lb *LoadBalancer) []ForwardRule {
	var all []ForwardRule
	for _, r := range append(lb.Rules[:len(lb.Rules):len(lb.Rules)], Rule{Action: lb.Default}) {
		if len(r.Action.Forward) == 0 {
			continue
		}
		f := ForwardRule{Priority: r.Priority}
		for _, w := range r.Action.Forward {
			f.Forward = append(f.Forward, GroupWeight(w))
		}
		all = append(all, f)
	}
	return all
}

func writeInForce(log Log, l InForce) {
	l.Time = time.Now()
	if line, err := json.Marshal(l); err == nil { // nothing in it can fail
		log.Settings(line)
	}
}

// tellSettings writes the load balancer's attributes if they have changed.
func (b *balancer) tellSettings() {
	is := b.config.attributes()
	if !maps.Equal(is, b.told) {
		b.told = is
		writeInForce(b.log, InForce{LoadBalancer: b.config.Name, Attributes: is})
	}
}

// tellSettings writes the group's attributes if they have changed and there is a
// load balancer to whose log they belong.
func (g *group) tellSettings() {
	is := g.config.attributes()
	if g.owner != nil && !maps.Equal(is, g.told) {
		g.told = is
		writeInForce(g.owner.log, InForce{Group: g.config.Name, TargetType: g.config.Type, Attributes: is})
	}
}

// inSeconds is a time as attributes have it.
func inSeconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }

func (lb *LoadBalancer) attributes() map[string]string {
	return map[string]string{
		"idle_timeout.timeout_seconds": inSeconds(lb.IdleTimeout),
		"client_keep_alive.seconds":    inSeconds(lb.ClientKeepAlive),
	}
}

func (c *TargetGroup) attributes() map[string]string {
	all := map[string]string{
		"deregistration_delay.timeout_seconds":        inSeconds(c.DeregistrationDelay),
		"slow_start.duration_seconds":                 inSeconds(c.SlowStart),
		"load_balancing.algorithm.type":               string(c.Algorithm),
		"load_balancing.algorithm.anomaly_mitigation": "off",
		"stickiness.enabled":                          strconv.FormatBool(c.Stickiness.Duration > 0),
		"stickiness.type":                             "lb_cookie", // also when it is off
	}
	if c.AnomalyMitigation {
		all["load_balancing.algorithm.anomaly_mitigation"] = "on"
	}
	if c.Stickiness.Duration > 0 {
		kind := "lb_cookie"
		if c.Stickiness.AppCookie != "" {
			kind = "app_cookie"
			all["stickiness.app_cookie.cookie_name"] = c.Stickiness.AppCookie
		}
		all["stickiness.type"] = kind
		all["stickiness."+kind+".duration_seconds"] = inSeconds(c.Stickiness.Duration)
	}
	return all
}
