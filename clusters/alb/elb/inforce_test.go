package elb

import (
	"encoding/json"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// withLog gives every load balancer the same log.
func withLog(l *logged) func(*worldOptions) {
	return func(o *worldOptions) {
		o.outputs.Log = func(string) (Log, error) { return l, nil }
	}
}

// news are the lines since the last call, as JSON without their times.
func (l *logged) news(t *testing.T) []string {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []string
	for _, f := range l.force {
		if f.Time.IsZero() {
			t.Errorf("%+v has no time", f)
		}
		f.Time = time.Time{}
		b, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(b[len(`{"time":"0001-01-01T00:00:00Z",`):len(b)-1]))
	}
	l.force = nil
	return all
}

func wantNews(t *testing.T, l *logged, want ...string) {
	t.Helper()
	if got := l.news(t); !slices.Equal(got, want) {
		t.Errorf("settings log has\n%q\nwant\n%q", got, want)
	}
}

const (
	lbLine    = `"loadBalancer":"ns/app","attributes":{"client_keep_alive.seconds":"3600","idle_timeout.timeout_seconds":"60"}`
	groupLine = `"group":"ns/app:80","targetType":"ip","attributes":{"deregistration_delay.timeout_seconds":"60","load_balancing.algorithm.anomaly_mitigation":"off",` +
		`"load_balancing.algorithm.type":"round_robin","slow_start.duration_seconds":"0","stickiness.enabled":"false","stickiness.type":"lb_cookie"}`
	firstNode  = `"node":"127.0.0.1","applied":"rules","rules":[{"priority":0,"forward":[{"group":"ns/app:80","weight":1}]}]`
	secondNode = `"node":"127.0.0.2","applied":"rules","rules":[{"priority":0,"forward":[{"group":"ns/app:80","weight":1}]}]`
)

func TestAttributesInForce(t *testing.T) {
	l := &logged{}
	w := newWorld(t, withLog(l))
	wantNews(t, l, lbLine, firstNode, groupLine, secondNode) // in use with the first node
	w.rule(func(*LoadBalancer) {})
	w.update(func(g *TargetGroup) { g.HealthCheck.Path = "/other" })
	wantNews(t, l) // no attribute has changed
	w.rule(func(lb *LoadBalancer) { lb.IdleTimeout = 4 * time.Second })
	wantNews(t, l, `"loadBalancer":"ns/app","attributes":{"client_keep_alive.seconds":"3600","idle_timeout.timeout_seconds":"4"}`)

	w.update(func(g *TargetGroup) {
		g.Algorithm, g.AnomalyMitigation, g.DeregistrationDelay = WeightedRandom, true, 1500*time.Millisecond
		g.Stickiness = Stickiness{Duration: time.Hour, AppCookie: "sid"}
	})
	wantNews(t, l, `"group":"ns/app:80","targetType":"ip","attributes":{"deregistration_delay.timeout_seconds":"1.5","load_balancing.algorithm.anomaly_mitigation":"on",`+
		`"load_balancing.algorithm.type":"weighted_random","slow_start.duration_seconds":"0","stickiness.app_cookie.cookie_name":"sid",`+
		`"stickiness.app_cookie.duration_seconds":"3600","stickiness.enabled":"true","stickiness.type":"app_cookie"}`)
	refused := w.group
	refused.SlowStart = time.Minute // not with weighted_random
	if err := w.PutTargetGroup(t.Context(), refused); err == nil {
		t.Error("slow start goes with weighted_random")
	}
	wantNews(t, l)
}

// TestGroupComesIntoUse: a group has no log before a load balancer uses it.
func TestGroupComesIntoUse(t *testing.T) {
	l := &logged{}
	w := newWorld(t, withLog(l), func(o *worldOptions) { o.lb.Default = Action{} })
	node := func(addr string) string { return `"node":"` + addr + `","applied":"rules"` }
	wantNews(t, l, lbLine, node("127.0.0.1"), node("127.0.0.2"))
	w.update(func(g *TargetGroup) { g.SlowStart = time.Minute })
	w.update(func(g *TargetGroup) { g.SlowStart = 0 })
	wantNews(t, l)
	w.rule(func(lb *LoadBalancer) {
		lb.Rules = []Rule{{Priority: 7, Action: forwardTo(groupName)}, {Priority: 8, Action: Action{Fixed: &FixedResponse{Status: 200}}}}
	})
	with := `,"rules":[{"priority":7,"forward":[{"group":"ns/app:80","weight":1}]}]`
	wantNews(t, l, node("127.0.0.1")+with, groupLine, node("127.0.0.2")+with)
}

// TestNodesTakeRulesOver: a node's line is in the log when its lag is over, and
// not for rules that later ones have overtaken.
func TestNodesTakeRulesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &logged{}
		w := blueGreen(t, withLog(l))
		l.news(t)
		applied := func(node string, blue, green string) string {
			return `"node":"` + node + `","applied":"rules","rules":[{"priority":0,"forward":[{"group":"ns/app:80","weight":` + blue + `},{"group":"ns/green:80","weight":` + green + `}]}]`
		}
		weigh := func(lag time.Duration, blue, green int) {
			w.lb.WeightLag = &Range{lag, lag}
			w.weigh(blue, green)
		}
		weigh(15*time.Second, 90, 10)
		if got := l.news(t); len(got) != 1 { // green comes into use
			t.Errorf("%q before the lag is over, want the group", got)
		}
		weigh(5*time.Second, 0, 100)
		time.Sleep(5*time.Second - 1)
		synctest.Wait()
		wantNews(t, l)
		time.Sleep(time.Minute)
		synctest.Wait()
		got := l.news(t)
		slices.Sort(got) // timers of the same instant
		if want := []string{applied("127.0.0.1", "0", "100"), applied("127.0.0.2", "0", "100")}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		w.close()
	})
}
