package conformance

import (
	"fmt"
	"strings"
	"time"

	"lameduck/clusters/alb/elb"
)

func annotationFacts() []Fact {
	return []Fact{
		{"4-ingress-defaults", 4, Source, controllerSource, "an Ingress's health checks: 15 s, 5 s, thresholds 2 and 2, code 200, path /", ingressDefaults},
		{"4-check-annotations", 4, Source, controllerSource, "annotations set path, port, interval, timeout, thresholds and codes", checkAnnotations},
		{"4-check-ranges", 4, Documented, apiReference, "interval 5..300, timeout 2..120, thresholds 2..10, codes 200..499: others are refused with the range", checkRanges},
		{"2-attribute-defaults", 2, Documented, guideAttributes, "idle timeout 60 s, client keep-alive 3600 s, deregistration delay 300 s", attributeDefaults},
		{"2-attribute-ranges", 2, Documented, guideAttributes, "idle timeout 1..4000, client keep-alive 60..604800: others are refused with the range", lbRanges},
		{"4-group-attributes", 4, Source, controllerSource, "target-group-attributes set delay, slow start, algorithm, anomaly mitigation and stickiness", groupAttributes},
		{"5-group-ranges", 5, Documented, guideTargetGroups, "delay 0..3600, slow start 30..900 or off, stickiness 1..604800: others are refused with the range", groupRanges},
		{"4-weight-annotation", 4, Documented, guideRules, "weights of an action are 0..999, for up to 5 groups: others are refused", actionRanges},
		{"5-lag-annotations", 5, Unknown, notPublished, "an Ingress may override what AWS does not publish, by annotations of our own", lagAnnotations},
	}
}

// groupWith is the group that an Ingress with annotations gets.
func groupWith(t *T, a annotated) elb.TargetGroup {
	return newWorld(t, node("a", "198.18.0.11"), service("app"), ingress("app", a)).group(t)
}

func wantCheck(t *T, got, want elb.HealthCheck) {
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("health check %+v, want %+v", got, want)
	}
}

func ingressDefaults(t *T) {
	wantCheck(t, groupWith(t, nil).HealthCheck, elb.HealthCheck{
		Protocol: elb.HTTP, Path: "/", Interval: 15 * time.Second, Timeout: 5 * time.Second, Healthy: 2, Unhealthy: 2, Codes: []elb.CodeRange{{Low: 200, High: 200}},
	})
}

func checkAnnotations(t *T) {
	wantCheck(t, groupWith(t, annotated{
		"healthcheck-path": "/ready?x=1", "healthcheck-port": "8081", "healthcheck-interval-seconds": "10", "healthcheck-timeout-seconds": "3",
		"healthy-threshold-count": "4", "unhealthy-threshold-count": "5", "success-codes": "200,300-399",
	}).HealthCheck, elb.HealthCheck{
		Protocol: elb.HTTP, Path: "/ready?x=1", Port: 8081, Interval: 10 * time.Second, Timeout: 3 * time.Second, Healthy: 4, Unhealthy: 5,
		Codes: []elb.CodeRange{{Low: 200, High: 200}, {Low: 300, High: 399}},
	})
}

func attributeDefaults(t *T) {
	w := newWorld(t, node("a", "198.18.0.11"), service("app"), ingress("app", nil))
	if lb := w.loadBalancer(t); lb.IdleTimeout != time.Minute || lb.ClientKeepAlive != time.Hour {
		t.Errorf("idle timeout %s, client keep-alive %s; want 1m, 1h", lb.IdleTimeout, lb.ClientKeepAlive)
	}
	if g := w.group(t); g.DeregistrationDelay != 5*time.Minute || g.Algorithm != elb.RoundRobin || g.SlowStart != 0 || g.Stickiness.Duration != 0 {
		t.Errorf("group %+v, want 5m, round_robin, without slow start and stickiness", g)
	}
}

func groupAttributes(t *T) {
	g := groupWith(t, annotated{"target-group-attributes": "deregistration_delay.timeout_seconds=0,slow_start.duration_seconds=30," +
		"load_balancing.algorithm.type=round_robin,stickiness.enabled=true,stickiness.type=lb_cookie,stickiness.lb_cookie.duration_seconds=60"})
	if g.DeregistrationDelay != 0 || g.SlowStart != 30*time.Second || g.Algorithm != elb.RoundRobin || g.Stickiness.Duration != time.Minute {
		t.Errorf("group %+v", g)
	}
	g = groupWith(t, annotated{"target-group-attributes": "load_balancing.algorithm.type=weighted_random,load_balancing.algorithm.anomaly_mitigation=on"})
	if g.Algorithm != elb.WeightedRandom || !g.AnomalyMitigation {
		t.Errorf("algorithm %s, anomaly mitigation %v", g.Algorithm, g.AnomalyMitigation)
	}
	if g := groupWith(t, annotated{"target-group-attributes": "load_balancing.algorithm.type=least_outstanding_requests"}); g.Algorithm != elb.LeastOutstandingRequests {
		t.Errorf("algorithm %s", g.Algorithm)
	}
}

// valueRange is what an annotation, or an attribute within one, accepts.
type valueRange struct {
	annotation, attribute string
	low, high             int
	says                  string // how the range is told; "": low..high
}

// check tries both ends of the range and what is beyond them.
func (r valueRange) check(t *T) {
	value := func(n int) annotated {
		text := fmt.Sprint(n)
		if r.attribute != "" {
			text = r.attribute + "=" + text
			if strings.HasPrefix(r.attribute, "stickiness.") {
				text = "stickiness.enabled=true,stickiness.type=lb_cookie," + text
			}
		}
		return annotated{r.annotation: text}
	}
	says := r.says
	if says == "" {
		says = fmt.Sprintf("%d..%d", r.low, r.high)
	}
	for _, n := range []int{r.low, r.high} {
		a := value(n)
		if r.annotation == "healthcheck-interval-seconds" {
			a["healthcheck-timeout-seconds"] = "2" // which must be shorter
		}
		newWorld(t, node("a", "198.18.0.11"), service("app"), ingress("app", a)).group(t)
	}
	for _, n := range []int{r.low - 1, r.high + 1} {
		w := newWorld(t, node("a", "198.18.0.11"), service("app"), ingress("app", value(n)))
		w.event("Warning", "FailedBuildModel", r.annotation, r.attribute, fmt.Sprint(n), says)
	}
}

func checkRanges(t *T) {
	for _, r := range []valueRange{
		{annotation: "healthcheck-interval-seconds", low: 5, high: 300},
		{annotation: "healthcheck-timeout-seconds", low: 2, high: 120},
		{annotation: "healthy-threshold-count", low: 2, high: 10},
		{annotation: "unhealthy-threshold-count", low: 2, high: 10},
		{annotation: "success-codes", low: 200, high: 499},
	} {
		if r.annotation == "healthcheck-timeout-seconds" {
			continue // it must be shorter than the interval: below
		}
		r.check(t)
	}
	for _, bad := range []string{"1", "121"} {
		w := newWorld(t, node("a", "198.18.0.11"), service("app"), ingress("app", annotated{"healthcheck-timeout-seconds": bad}))
		w.event("Warning", "FailedBuildModel", "healthcheck-timeout-seconds", bad, "2..120")
	}
	groupWith(t, annotated{"healthcheck-timeout-seconds": "2"})
	groupWith(t, annotated{"healthcheck-timeout-seconds": "120", "healthcheck-interval-seconds": "300"})
}

func lbRanges(t *T) {
	for _, r := range []valueRange{
		{annotation: "load-balancer-attributes", attribute: "idle_timeout.timeout_seconds", low: 1, high: 4000},
		{annotation: "load-balancer-attributes", attribute: "client_keep_alive.seconds", low: 60, high: 604800},
	} {
		r.check(t)
	}
}

func groupRanges(t *T) {
	for _, r := range []valueRange{
		{annotation: "target-group-attributes", attribute: "deregistration_delay.timeout_seconds", low: 0, high: 3600},
		{annotation: "target-group-attributes", attribute: "slow_start.duration_seconds", low: 30, high: 900, says: "30..900"},
		{annotation: "target-group-attributes", attribute: "stickiness.lb_cookie.duration_seconds", low: 1, high: 604800},
	} {
		r.check(t)
	}
	groupWith(t, annotated{"target-group-attributes": "slow_start.duration_seconds=0"})
}

func actionRanges(t *T) {
	action := func(weights ...int) annotated {
		var groups []string
		for i, w := range weights {
			groups = append(groups, fmt.Sprintf(`{"serviceName":"s%d","servicePort":80,"weight":%d}`, i, w))
		}
		return annotated{"actions.split": `{"type":"forward","forwardConfig":{"targetGroups":[` + strings.Join(groups, ",") + `]}}`}
	}
	build := func(a annotated) *world {
		ing := ingress("app", a)
		b := &ing.Spec.Rules[0].HTTP.Paths[0].Backend.Service
		(*b).Name, (*b).Port.Number, (*b).Port.Name = "split", 0, "use-annotation"
		w := newWorld(t, node("a", "198.18.0.11"), ing)
		for i := range 6 {
			w.create(service(fmt.Sprintf("s%d", i)))
		}
		return w
	}
	build(action(0, 999, 1, 1, 1)).loadBalancer(t)
	build(action(-1)).event("Warning", "FailedBuildModel", "actions.split", "-1", "0..999")
	build(action(1000)).event("Warning", "FailedBuildModel", "actions.split", "1000", "0..999")
	build(action(1, 1, 1, 1, 1, 1)).event("Warning", "FailedBuildModel", "actions.split", "5")
}

func lagAnnotations(t *T) {
	ing := ingress("app", nil)
	for name, value := range map[string]string{
		"deregistration-lag": "5s..20s", "registration-lag": "none", "close-idle-at-deregistration": "true", "pool-order": "fifo",
		"unusable-status": "502", "lose-deregistrations": "true", "weight-lag": "17s", "targets-api-interval": "30s",
	} {
		ing.Annotations["alb.lameduck.dev/"+name] = value
	}
	w := newWorld(t, node("a", "198.18.0.11"), service("app"), ing)
	g := w.group(t)
	if l := g.DeregistrationLag; l == nil || l.Min != 5*time.Second || l.Max != 20*time.Second {
		t.Errorf("deregistration lag %v, want 5s..20s", l)
	}
	if l := g.RegistrationLag; l == nil || *l != (elb.Range{}) {
		t.Errorf("registration lag %v, want none", l)
	}
	if g.CloseIdle == nil || !*g.CloseIdle || g.PoolOrder != "fifo" || g.UnusableStatus != 502 || !g.LoseDeregistrations || g.CallInterval != 30*time.Second {
		t.Errorf("group %+v", g)
	}
	if l := w.loadBalancer(t).WeightLag; l == nil || l.Min != 17*time.Second || l.Max != 17*time.Second {
		t.Errorf("weight lag %v, want 17s", l)
	}
}
