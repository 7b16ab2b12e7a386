package alb

import (
	"io"
	"net/http"
	"testing"
	"time"
)

func deregistrationFacts() []fact {
	return []fact{
		{"5", gradeDocumented, guideTargetGroups, "a deregistered target gets no new requests, and its last ones may end", drains},
		{"5", gradeDocumented, guideTroubleshooting, "the deregistration delay ends with a request in flight: 502", delayEnds},
		{"5", gradeUnknown, notPublished, "idle connections to a deregistered target are closed at once, or kept: a setting", idleAtDeregistration},
		{"5", gradeInferred, guideTargetGroups, "an instance that is registered again while it drains serves on", registeredAgain},
		{"8", gradeInferred, controllerSource, "the Ingress is deleted: port closed, connections dropped, log closed", ingressGoes},
	}
}

// held is a target that answers when told to.
func held(t *testing.T) (target *rawTarget, release chan struct{}) {
	release = make(chan struct{})
	target = startTarget(t, func(x *exchangeWith) {
		for x.request() != nil {
			<-release
			x.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	return target, release
}

func (f *front) setTargets(delay time.Duration, targets ...string) {
	f.t.Helper()
	f.model.groups = map[string]groupModel{"ns/app:80": {targets: targets, deregistrationDelay: delay}}
	if err := f.b.apply(f.model); err != nil {
		f.t.Fatal(err)
	}
}

func (f *front) begin(target *rawTarget) <-chan answer {
	result := make(chan answer, 1)
	go func() { result <- f.get("/") }()
	eventually(f.t, "request in flight", func() bool { return target.requests.Load() == 1 })
	return result
}

func drains(t *testing.T) {
	old, release := held(t)
	fresh := startTarget(t, echo)
	f := frontWith(t, []string{old.addr()}, nil)
	inFlight := f.begin(old)
	f.setTargets(time.Minute, fresh.addr())
	for range 3 {
		f.get("/")
	}
	if old.requests.Load() != 1 || fresh.requests.Load() != 3 {
		t.Errorf("old target got %d requests, new one %d; want 1 and 3", old.requests.Load(), fresh.requests.Load())
	}
	close(release)
	if a := <-inFlight; a.status != 200 {
		t.Errorf("request in flight: status %d, want 200", a.status)
	}
}

func delayEnds(t *testing.T) {
	old, release := held(t)
	defer close(release)
	f := frontWith(t, []string{old.addr()}, nil)
	inFlight := f.begin(old)
	f.setTargets(10 * time.Millisecond)
	if a := <-inFlight; a.status != http.StatusBadGateway {
		t.Errorf("status %d, want 502", a.status)
	}
	f.line().want(t, 502, 0, PhaseWait, ErrorDeregistered)
}

func idleAtDeregistration(t *testing.T) {
	for _, keep := range []bool{false, true} {
		ended := make(chan struct{})
		target := startTarget(t, func(x *exchangeWith) {
			echo(x)
			close(ended)
		})
		f := frontWith(t, []string{target.addr()}, func(s *Settings, _ *model) { s.KeepIdleAtDeregistration = keep })
		f.get("/")
		p := f.pool(target.addr())
		f.setTargets(time.Minute)
		if idle, _ := p.size(); (idle == 1) != keep {
			t.Errorf("keep %v: %d idle connections", keep, idle)
		}
		if !keep {
			<-ended
		}
	}
}

func registeredAgain(t *testing.T) {
	old, release := held(t)
	f := frontWith(t, []string{old.addr()}, nil)
	inFlight := f.begin(old)
	f.setTargets(50 * time.Millisecond)
	f.setTargets(50*time.Millisecond, old.addr())
	g := f.group()
	g.mu.Lock()
	draining := g.targets[old.addr()].draining
	g.mu.Unlock()
	if draining != nil {
		t.Error("still draining")
	}
	close(release)
	if a := <-inFlight; a.status != 200 {
		t.Errorf("status %d, want 200", a.status)
	}
	if a := f.get("/"); a.status != 200 {
		t.Errorf("next request: status %d, want 200", a.status)
	}
}

func ingressGoes(t *testing.T) {
	target, release := held(t)
	defer close(release)
	f := frontWith(t, []string{target.addr()}, nil)
	c := f.dial()
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "request in flight", func() bool { return target.requests.Load() == 1 })
	if err := f.b.close(0); err != nil {
		t.Fatal(err)
	}
	if got, _ := io.ReadAll(c); len(got) != 0 {
		t.Errorf("client got %q, want a closed connection", got)
	}
	f.line().want(t, 0, 0, PhaseWait, ErrorStopped)
	if _, err := f.client.Get(f.url); err == nil {
		t.Error("the port is still open")
	}
}

func TestCloseLetsRequestsEnd(t *testing.T) {
	target, release := held(t)
	f := frontWith(t, []string{target.addr()}, nil)
	inFlight := f.begin(target)
	closed := make(chan error)
	go func() { closed <- f.b.close(time.Minute) }()
	eventually(t, "closed port", func() bool {
		_, err := f.client.Get(f.url)
		return err != nil
	})
	close(release)
	if a := <-inFlight; a.status != 200 {
		t.Errorf("status %d, want 200", a.status)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}
