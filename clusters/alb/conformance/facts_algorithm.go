package conformance

import (
	"net/http"
	"time"

	"lameduck/clusters/alb/elb"
	"lameduck/clusters/alb/scripted"
)

func algorithmFacts() []Fact {
	return []Fact{
		{"4-round-robin", 4, Documented, guideTargetGroups, "round_robin: over the targets in turn", roundRobin},
		{"4-least-outstanding", 4, Documented, guideTargetGroups, "least_outstanding_requests: to the target with the fewest requests in flight", leastOutstanding},
		{"4-weighted-random", 4, Documented, guideTargetGroups, "weighted_random: evenly, in random order", weightedRandom},
		{"4-anomaly-mitigation", 4, Documented, guideTargetGroups, "weighted_random with anomaly mitigation: less to a target that fails more than the others", anomalyMitigation},
		{"4-slow-start", 4, Documented, guideTargetGroups, "slow start: a target that joins others gets a growing share", slowStart},
		{"4-slow-start-ends", 4, Documented, guideTargetGroups, "slow start: then it gets its full share", slowStartEnds},
		{"4-slow-start-first", 4, Documented, guideTargetGroups, "slow start: not for the first targets of an empty group", slowStartFirst},
		{"4-slow-start-healthy", 4, Documented, guideTargetGroups, "slow start: not for targets that are healthy when it is turned on", slowStartHealthy},
	}
}

func algorithm(a elb.Algorithm) func(*cloudOptions) {
	return func(o *cloudOptions) { o.group.Algorithm = a }
}

func roundRobin(t *T) {
	a, b := startTarget(t, scripted.Echo), startTarget(t, scripted.Echo)
	c := newCloud(t)
	c.serve(a, b)
	for range 6 {
		c.get(0, "/")
	}
	if a.Requests.Load() != 3 || b.Requests.Load() != 3 {
		t.Errorf("targets got %d and %d requests, want 3 and 3", a.Requests.Load(), b.Requests.Load())
	}
}

func leastOutstanding(t *T) {
	a, releaseA := held(t)
	b, releaseB := held(t)
	c := newCloud(t, algorithm(elb.LeastOutstandingRequests))
	c.serve(a, b)
	inFlight := make(chan answer, 4)
	for i := range int64(4) {
		req := newRequest(t, http.MethodGet, c.url(0), nil)
		go func() { inFlight <- do(t, c.client, req) }()
		t.eventually("request in flight", func() bool { return a.Requests.Load()+b.Requests.Load() == i+1 })
	}
	if a.Requests.Load() != 2 || b.Requests.Load() != 2 {
		t.Errorf("targets hold %d and %d requests, want 2 and 2", a.Requests.Load(), b.Requests.Load())
	}
	releaseB()
	wait(t, "answer", inFlight)
	wait(t, "answer", inFlight)
	for range 4 {
		c.get(0, "/")
	}
	if a.Requests.Load() != 2 || b.Requests.Load() != 6 {
		t.Errorf("targets got %d and %d requests, want 2 and 6", a.Requests.Load(), b.Requests.Load())
	}
	releaseA()
	wait(t, "answer", inFlight)
	wait(t, "answer", inFlight)
}

func weightedRandom(t *T) {
	const n = 200
	a, b := startTarget(t, scripted.Echo), startTarget(t, scripted.Echo)
	c := newCloud(t, algorithm(elb.WeightedRandom))
	c.serve(a, b)
	repeats, before := 0, int64(-1)
	for range n {
		was := a.Requests.Load()
		c.get(0, "/")
		now := a.Requests.Load() - was
		if now == before {
			repeats++
		}
		before = now
	}
	// Each bound is missed by chance less than once in 10^9 times.
	if got := a.Requests.Load(); got < 55 || got > n-55 {
		t.Errorf("one of two targets got %d of %d requests", got, n)
	}
	if repeats < 55 {
		t.Errorf("%d of %d requests went where the one before did: that is not random", repeats, n)
	}
}

func anomalyMitigation(t *T) {
	bad := startTarget(t, func(x *scripted.Exchange) {
		for x.Request() != nil {
			x.Say("HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n")
		}
	})
	c := newCloud(t, algorithm(elb.WeightedRandom), func(o *cloudOptions) {
		o.group.AnomalyMitigation, o.settings.AnomalyInterval = true, time.Millisecond
	})
	c.serve(bad, startTarget(t, scripted.Echo), startTarget(t, scripted.Echo), startTarget(t, scripted.Echo)) // three healthy ones are needed
	const learn, n = 200, 400
	for range learn {
		c.get(0, "/")
	}
	before := bad.Requests.Load()
	for range n {
		c.get(0, "/")
	}
	// A fair share is 100, which comes out below 70 by chance once in 3000 times.
	if got := bad.Requests.Load() - before; got >= 70 {
		t.Errorf("the target that fails got %d of %d requests, want much less than its share", got, n)
	}
}

func slowStart(t *T) {
	old, fresh := startTarget(t, scripted.Echo), startTarget(t, scripted.Echo)
	c := newCloud(t, func(o *cloudOptions) { o.group.SlowStart = 20 * time.Second })
	c.serve(old)
	c.serve(fresh)
	for range 40 {
		c.get(0, "/")
	}
	if n := fresh.Requests.Load(); n > 10 { // half without slow start; this is its first second of twenty
		t.Errorf("the new target got %d of 40 requests at once", n)
	}
}

func slowStartEnds(t *T) {
	old, fresh := startTarget(t, scripted.Echo), startTarget(t, scripted.Echo)
	c := newCloud(t, func(o *cloudOptions) { o.group.SlowStart = 50 * time.Millisecond })
	c.serve(old)
	c.serve(fresh)
	t.eventually("an even share", func() bool {
		before := fresh.Requests.Load()
		for range 10 {
			c.get(0, "/")
		}
		return fresh.Requests.Load()-before == 5
	})
}

func slowStartFirst(t *T) {
	a, b := startTarget(t, scripted.Echo), startTarget(t, scripted.Echo)
	c := newCloud(t, func(o *cloudOptions) { o.group.SlowStart = never })
	c.serve(a, b)
	for range 20 {
		c.get(0, "/")
	}
	if a.Requests.Load() != 10 || b.Requests.Load() != 10 {
		t.Errorf("targets got %d and %d requests, want 10 and 10", a.Requests.Load(), b.Requests.Load())
	}
}

func slowStartHealthy(t *T) {
	a, b := startTarget(t, scripted.Echo), startTarget(t, scripted.Echo)
	c := newCloud(t)
	c.serve(a, b)
	c.group.SlowStart = never
	t.must(c.api.PutTargetGroup(t.Context(), c.group))
	for range 20 {
		c.get(0, "/")
	}
	if a.Requests.Load() != 10 || b.Requests.Load() != 10 {
		t.Errorf("targets got %d and %d requests, want 10 and 10", a.Requests.Load(), b.Requests.Load())
	}
}
