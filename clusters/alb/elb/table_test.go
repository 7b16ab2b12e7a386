package elb

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestRoundRobin(t *testing.T) {
	w := newWorld(t, unchecked)
	w.register(addrs(3)...)
	for range 5 {
		for target, n := range w.shares(3) {
			if n != 1 {
				t.Errorf("%s got %d of 3 requests", target, n)
			}
		}
	}
}

func TestLeastOutstanding(t *testing.T) {
	w := newWorld(t, unchecked, withAlgorithm(LeastOutstandingRequests))
	w.register(addrs(3)...)
	inFlight := make(map[*nodeTarget]int)
	for range 6 {
		inFlight[w.route(0, &request{}).Target.(*nodeTarget)]++
	}
	var free *nodeTarget
	for nt, n := range inFlight {
		if n != 2 {
			t.Errorf("%s has %d of 6 requests", nt.target.addr, n)
		}
		free = nt
	}
	free.Done(200)
	if got := w.route(0, &request{}).Target.(*nodeTarget); got != free {
		t.Errorf("the next went to %s, want %s", got.target.addr, free.target.addr)
	}
	// The other node counts its own.
	if got := w.shares(3); len(got) != 3 {
		t.Errorf("equal targets do not take turns: %v", got)
	}
}

func TestWeightedRandom(t *testing.T) {
	w := newWorld(t, unchecked, withAlgorithm(WeightedRandom))
	w.register(addrs(2)...)
	const n = 2000
	if got := w.shares(n)["198.18.0.0:80"]; got < n/2-135 || got > n/2+135 { // six standard deviations
		t.Errorf("%d of %d requests", got, n)
	}
}

func TestAnomalyMitigation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, unchecked, withAlgorithm(WeightedRandom), func(o *worldOptions) { o.group.AnomalyMitigation = true })
		bad := addr(1)
		fails := true
		// run sends requests for a time and returns the share of the bad target.
		run := func(d time.Duration) float64 {
			count, total := 0, 0
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
				nt := w.route(0, &request{}).Target.(*nodeTarget)
				total++
				status := 200
				if nt.target.addr == bad {
					count++
					if fails {
						status = 500
					}
				}
				nt.Done(status)
			}
			return float64(count) / float64(total)
		}
		w.register(addrs(2)...)
		run(10 * time.Second)
		if got := run(2 * time.Second); got < 0.4 {
			t.Errorf("with two targets the bad one gets %.2f: three are needed", got)
		}
		w.register(addrs(4)...)
		run(10 * time.Second)
		if got := run(10 * time.Second); got > 0.06 || got == 0 {
			t.Errorf("the bad one of four gets %.2f, want little", got)
		}
		fails = false
		run(time.Minute)
		if got := run(10 * time.Second); got < 0.22 || got > 0.28 {
			t.Errorf("when it has recovered it gets %.2f, want a quarter", got)
		}
		w.close()
	})
}

func slowStartOf(d time.Duration) func(*worldOptions) {
	return func(o *worldOptions) { o.group.SlowStart = d }
}

func TestSlowStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 4000
		w := newWorld(t, unchecked, slowStartOf(100*time.Second))
		share := func() float64 { return float64(w.shares(n)["198.18.0.2:80"]) / n }
		w.register(addr(1))
		w.register(addr(2))
		if got := share(); got != 0 {
			t.Errorf("%.2f at once, want 0", got)
		}
		time.Sleep(50 * time.Second)
		// Half of its turns, the rest goes to the other: 0.5 of 1.5 turns.
		if got := share(); got < 0.20 || got > 0.36 {
			t.Errorf("%.2f after half of the time", got)
		}
		time.Sleep(50 * time.Second)
		if got := share(); got != 0.5 {
			t.Errorf("%.2f in the end, want 0.5", got)
		}
		w.close()
	})
}

// inSlowStart lists the targets in slow start on node 0.
func (w *world) inSlowStart() (all []string) {
	w.look(func() {
		for _, e := range w.groups[groupName].nodes[0].table.Load().entries {
			if !e.slowFrom.IsZero() && time.Since(e.slowFrom) < w.group.SlowStart {
				all = append(all, e.nt.target.addr.String())
			}
		}
	})
	return all
}

func TestSlowStartIsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		settle := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
		want := func(when string, targets ...string) {
			t.Helper()
			got := w.inSlowStart()
			if len(got) != len(targets) || len(got) > 0 && got[0] != targets[0] {
				t.Errorf("%s: %v in slow start, want %v", when, got, targets)
			}
		}
		w.register(addr(0))
		settle(time.Second)
		w.update(func(g *TargetGroup) { g.SlowStart = 100 * time.Second })
		want("healthy when it is turned on")
		w.deregister(addr(0))
		settle(2 * time.Minute)
		w.register(addr(1), addr(2))
		settle(time.Second)
		want("first of an empty group, at once")
		w.register(addr(3))
		settle(time.Second)
		want("joins healthy ones", "198.18.0.3:80")
		w.failEverywhere(addr(3), badCode)
		settle(30 * time.Second)
		want("unhealthy")
		w.failEverywhere(addr(3), outcome{})
		settle(30 * time.Second)
		want("healthy again", "198.18.0.3:80")
		settle(100 * time.Second)
		want("over")
		w.close()
	})
}

// TestSlowStartNeedsAnother: with nobody to take the rest there is none.
func TestSlowStartNeedsAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, slowStartOf(100*time.Second))
		w.register(addr(1))
		w.failEverywhere(addr(1), badCode)
		time.Sleep(time.Minute)
		w.failEverywhere(addr(1), outcome{})
		time.Sleep(time.Minute)
		synctest.Wait()
		w.wantHealth(addr(1), "healthy")
		if got := w.inSlowStart(); got != nil {
			t.Errorf("%v in slow start", got)
		}
		w.close()
	})
}

func BenchmarkRoute(b *testing.B) {
	for name, edit := range map[string]func(*worldOptions){
		"round_robin":  unchecked,
		"outstanding":  withAlgorithm(LeastOutstandingRequests),
		"random":       withAlgorithm(WeightedRandom),
		"20 rules":     func(o *worldOptions) { o.lb.Rules = manyRules(20) },
		"stickiness":   func(o *worldOptions) { o.group.Stickiness.Duration = time.Hour },
		"group sticky": func(o *worldOptions) { o.lb.Default.Sticky = time.Hour },
	} {
		b.Run(name, func(b *testing.B) {
			w := newWorld(b, unchecked, edit)
			w.register(addrs(10)...)
			router := w.balancers[lbName].routers[0]
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				r := &request{host: "shop.example.com", target: "/some/path?query=1"}
				for pb.Next() {
					router.Route(r).Target.Done(200)
				}
			})
		})
	}
}

// manyRules match other hosts and paths.
func manyRules(n int) []Rule {
	var rules []Rule
	for i := range n {
		rules = append(rules, Rule{Priority: i + 1, Hosts: []string{"*.example.com"}, Paths: []string{fmt.Sprintf("/api/%d/*", i)}, Action: Action{}})
	}
	return rules
}
