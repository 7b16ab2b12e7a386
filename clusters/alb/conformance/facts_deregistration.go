package conformance

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"lameduck/clusters/alb/accesslog"
	"lameduck/clusters/alb/elb"
	"lameduck/clusters/alb/scripted"
)

func deregistrationFacts() []Fact {
	return []Fact{
		{"5-drains", 5, Documented, guideTargetGroups, "a deregistered target gets no new requests, and its last ones may end", drains},
		{"5-delay-ends", 5, Documented, guideTroubleshooting, "the deregistration delay ends with a request in flight: 502", delayEnds},
		{"5-shows-draining", 5, Documented, guideTargetGroups, "with nothing in flight a target still shows draining until the delay ends", showsDraining},
		{"5-ip-again", 5, Documented, guideTargetGroups, "a target registered by IP cannot be registered again until its delay has ended", ipRegisteredAgain},
		{"5-instance-again", 5, Inferred, guideTargetGroups, "an instance that is registered again while it drains serves on", instanceRegisteredAgain},
		{"5-idle", 5, Unknown, notPublished, "idle connections to a deregistered target are closed at once, or kept: a setting", idleAtDeregistration},
		{"5-lag", 5, Observed, controllerIssues, "draining does not mean that traffic has stopped: new requests arrive until the deregistration lag is over", deregistrationLag},
		{"5-lag-default", 5, Observed, controllerIssues, "the deregistration lag is drawn from 5..20 s unless it is set", defaultLag},
		{"5-lost", 5, Unknown, notPublished, "a lost deregistration succeeds without effect: a setting", lostDeregistration},
		{"5-not-registered", 5, Documented, apiReference, "to deregister what is not registered is no error", deregisterUnknown},
		{"8-ingress-goes", 8, Inferred, controllerSource, "a load balancer that is deleted drops what is open and closes its port", loadBalancerGoes},
	}
}

func delay(d time.Duration) func(*cloudOptions) {
	return func(o *cloudOptions) { o.group.DeregistrationDelay = d }
}

func (c *cloud) begin(target *scripted.Target) <-chan answer {
	return begin(c.t, c.client, c.url(0), target)
}

func drains(t *T) {
	old, release := held(t)
	fresh := startTarget(t, scripted.Echo)
	c := newCloud(t)
	c.serve(old)
	inFlight := c.begin(old)
	c.serve(fresh)
	c.deregister(old)
	for node := range c.nodes {
		for range 3 {
			c.get(node, "/")
		}
	}
	if old.Requests.Load() != 1 || fresh.Requests.Load() != 6 {
		t.Errorf("old target got %d requests, new one %d; want 1 and 6", old.Requests.Load(), fresh.Requests.Load())
	}
	release()
	wantStatus(t, "request in flight", wait(t, "answer", inFlight), http.StatusOK)
}

func delayEnds(t *T) {
	old, _ := held(t)
	c := newCloud(t, delay(20*time.Millisecond))
	c.serve(old)
	inFlight := c.begin(old)
	c.deregister(old)
	wantStatus(t, "request in flight", wait(t, "answer", inFlight), http.StatusBadGateway)
	wantLine(t, c.only(t), 502, 0, accesslog.PhaseWait, accesslog.ErrorDeregistered)
}

func showsDraining(t *T) {
	const wait = 50 * time.Millisecond
	target := startTarget(t, scripted.Echo)
	c := newCloud(t, delay(wait))
	c.serve(target)
	c.get(0, "/")
	start := time.Now()
	c.deregister(target)
	t.eventually("end of draining", func() bool {
		h, ok := c.health(target)
		if ok && h.State != elb.StateDraining {
			t.Errorf("state %s, want draining", h.State)
		}
		return !ok
	})
	if d := time.Since(start); d < wait {
		t.Errorf("gone after %s, want it to show draining for %s", d, wait)
	}
}

func ipRegisteredAgain(t *T) {
	target := startTarget(t, scripted.Echo)
	c := newCloud(t, delay(50*time.Millisecond))
	c.serve(target)
	c.deregister(target)
	if err := c.api.RegisterTargets(t.Context(), frontGroup, addrs(target)); !errors.Is(err, elb.ErrInvalidTarget) {
		t.Errorf("registered while it drains: %v, want InvalidTarget", err)
	}
	t.eventually("registration", func() bool { return c.api.RegisterTargets(t.Context(), frontGroup, addrs(target)) == nil })
	t.eventually("healthy target", func() bool { h, _ := c.health(target); return h.State == elb.StateHealthy })
	wantStatus(t, "registered again", c.get(0, "/"), http.StatusOK)
}

func instanceRegisteredAgain(t *T) {
	old, release := held(t)
	c := newCloud(t, delay(100*time.Millisecond), func(o *cloudOptions) { o.group.Type = elb.TargetInstance })
	c.serve(old)
	inFlight := c.begin(old)
	c.deregister(old)
	c.wantHealth(old, elb.StateDraining, elb.ReasonDeregistrationInProgress)
	c.serve(old)
	time.Sleep(150 * time.Millisecond) // the old delay must not cut it
	release()
	wantStatus(t, "request in flight", wait(t, "answer", inFlight), http.StatusOK)
	wantStatus(t, "next request", c.get(0, "/"), http.StatusOK)
}

func idleAtDeregistration(t *T) {
	for _, closes := range []bool{true, false} {
		ended := make(chan struct{})
		target := startTarget(t, func(x *scripted.Exchange) {
			scripted.Echo(x)
			close(ended)
		})
		c := newCloud(t, func(o *cloudOptions) { o.group.CloseIdle = &closes })
		c.serve(target)
		c.get(0, "/")
		c.deregister(target)
		if closes {
			wait(t, "end of the idle connection", ended)
			continue
		}
		select {
		case <-ended:
			t.Errorf("the idle connection is closed, want it kept")
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func deregistrationLag(t *T) {
	const lag = 500 * time.Millisecond
	target := startTarget(t, scripted.Echo)
	c := newCloud(t, func(o *cloudOptions) { o.group.DeregistrationLag = &elb.Range{Min: lag, Max: lag} })
	c.serve(target)
	start := time.Now()
	c.deregister(target)
	c.wantHealth(target, elb.StateDraining, elb.ReasonDeregistrationInProgress)
	for node := range c.nodes {
		var last answer
		t.eventually("end of the traffic", func() bool {
			last = c.get(node, "/")
			return last.status != http.StatusOK
		})
		if d := time.Since(start); d < lag {
			t.Errorf("node %d stopped after %s, want not before %s", node, d, lag)
		}
		wantStatus(t, "only a draining target", last, http.StatusServiceUnavailable)
	}
	if l := c.wait(t, 1)[0]; l.Status != 200 || l.TargetState != string(elb.StateDraining) {
		t.Errorf("log: status %d, target state %q; want 200, draining", l.Status, l.TargetState)
	}
}

func defaultLag(t *T) {
	target := startTarget(t, scripted.Echo)
	c := newCloud(t, func(o *cloudOptions) { o.group.DeregistrationLag = nil })
	c.serve(target)
	c.deregister(target)
	for _, node := range c.nodes {
		var detail string
		t.eventually("change of state on the node", func() bool {
			for _, change := range c.changes(target, node.Addr().String()) {
				if change.State == elb.StateDraining {
					detail = change.Detail
				}
			}
			return detail != ""
		})
		words := strings.Fields(detail)
		if lag, err := time.ParseDuration(words[len(words)-1]); err != nil || lag < 5*time.Second || lag > 20*time.Second {
			t.Errorf("the node's lag is told as %q, want 5s..20s", detail)
		}
	}
	wantStatus(t, "meanwhile", c.get(0, "/"), http.StatusOK)
}

func lostDeregistration(t *T) {
	target := startTarget(t, scripted.Echo)
	c := newCloud(t, func(o *cloudOptions) { o.group.LoseDeregistrations = true })
	c.serve(target)
	c.deregister(target)
	wantStatus(t, "request", c.get(0, "/"), http.StatusOK)
	if h, ok := c.health(target); !ok || h.State != elb.StateHealthy {
		t.Errorf("state %q, want healthy", h.State)
	}
}

func deregisterUnknown(t *T) {
	target, other := startTarget(t, scripted.Echo), startTarget(t, scripted.Echo)
	c := newCloud(t)
	c.serve(target)
	c.deregister(other)
	if h, ok := c.health(target); !ok || h.State != elb.StateHealthy {
		t.Errorf("state of the other target %q, want healthy", h.State)
	}
}

func loadBalancerGoes(t *T) {
	target, _ := held(t)
	c := newCloud(t)
	c.serve(target)
	conn := dial(t, c.nodes[0].String())
	send(t, conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	t.eventually("request in flight", func() bool { return target.Requests.Load() == 1 })
	for range 2 { // the second time there is none: no error
		t.must(c.api.DeleteLoadBalancer(t.Context(), c.lb.Name))
	}
	if got, _ := io.ReadAll(conn); len(got) != 0 {
		t.Errorf("client got %q, want a closed connection", got)
	}
	wantLine(t, c.only(t), 0, 0, accesslog.PhaseWait, accesslog.ErrorStopped)
	for node := range c.nodes {
		if resp, err := c.client.Do(newRequest(t, http.MethodGet, c.url(node), nil)); err == nil {
			resp.Body.Close()
			t.Errorf("node %d: the port is still open", node)
		}
	}
}
