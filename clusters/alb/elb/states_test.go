package elb

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const (
	registering = "initial " + ReasonRegistrationInProgress
	checking    = "initial " + ReasonInitialHealthChecking
	draining    = "draining " + ReasonDeregistrationInProgress
	notInUse    = "unused " + ReasonNotInUse
	notThere    = "unused " + ReasonNotRegistered
	mismatch    = "unhealthy " + ReasonResponseCodeMismatch
)

func TestObserve(t *testing.T) {
	thresholds := HealthCheck{Healthy: 3, Unhealthy: 2}
	for checks, want := range map[string]State{
		"":          StateInitial,
		"+":         StateHealthy, // one is enough for a new target
		"-":         StateInitial,
		"-+":        StateHealthy,
		"--":        StateUnhealthy,
		"--+":       StateUnhealthy,
		"--++":      StateUnhealthy,
		"--+++":     StateHealthy,
		"--++-++":   StateUnhealthy,
		"+-+-+-":    StateHealthy,
		"+--":       StateUnhealthy,
		"+--+++-":   StateHealthy,
		"+--+++--+": StateUnhealthy,
	} {
		h := newHealth()
		for _, c := range checks {
			o := badCode
			if c == '+' {
				o = outcome{}
			}
			before := h.state
			if changed := h.observe(o, thresholds); changed != (h.state != before) {
				t.Errorf("%s: changed is %v, from %s to %s", checks, changed, before, h.state)
			}
		}
		if h.state != want {
			t.Errorf("%s: %s, want %s", checks, h.state, want)
		}
	}
}

func TestRegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(o *worldOptions) { o.group.RegistrationLag = &Range{3 * time.Second, 3 * time.Second} })
		w.wantWhere(0, "503 NO_TARGET")
		w.register(addr(1))
		w.wantHealth(addr(1), registering)
		w.wantWhere(0, "503 NO_USABLE_TARGET")
		time.Sleep(3*time.Second - 1)
		synctest.Wait()
		w.wantHealth(addr(1), registering)
		time.Sleep(1 + firstCheckSpread)
		synctest.Wait()
		w.wantHealth(addr(1), "healthy")
		w.wantWhere(1, "198.18.0.1:80 healthy")
		for _, node := range []string{"127.0.0.1", "127.0.0.2", ""} {
			w.wantTold(addr(1), node, registering, checking, "healthy")
		}
		for _, c := range w.changes {
			if c.Reason == ReasonRegistrationInProgress && c.Detail != "lag 3s" {
				t.Errorf("detail %q, want the lag", c.Detail)
			}
			if c.Group != groupName || c.LoadBalancer != lbName || c.Time.IsZero() || c.Reason != "" && c.Detail == "" {
				t.Errorf("change %+v", c)
			}
		}
		w.register(addr(1)) // again: nothing happens
		w.wantHealth(addr(1), "healthy")
		w.close()
	})
}

func TestLagIsDrawnPerNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(o *worldOptions) { o.settings.RegistrationLag, o.group.RegistrationLag = &Range{0, time.Hour}, nil })
		w.register(addr(1))
		lags := make(map[string]bool)
		for _, c := range w.changes {
			if c.Node != "" {
				lags[c.Detail] = true
			}
		}
		if len(lags) != 2 { // equal by chance once in millions of times
			t.Errorf("lags %v, want two different ones", lags)
		}
		w.close()
	})
}

func TestHealthPerNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.fail("127.0.0.1", addr(1), badCode)
		w.register(addr(1), addr(2))
		time.Sleep(time.Minute)
		synctest.Wait()
		w.wantHealth(addr(1), mismatch) // unhealthy on one node
		w.wantHealth(addr(2), "healthy")
		w.wantTold(addr(1), "127.0.0.1", registering, checking, mismatch)
		w.wantTold(addr(1), "127.0.0.2", registering, checking, "healthy")
		for range 4 {
			w.wantWhere(0, "198.18.0.2:80 healthy")
		}
		if a, b := w.where(1, &request{}), w.where(1, &request{}); a == b {
			t.Errorf("the other node sends both requests to %s", a)
		}
		w.fail("127.0.0.1", addr(1), outcome{ReasonTimeout, "Request timed out"})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		w.wantHealth(addr(1), "unhealthy "+ReasonTimeout)
		w.fail("127.0.0.1", addr(1), outcome{})
		time.Sleep(20 * time.Second) // two checks, three are needed
		synctest.Wait()
		w.wantHealth(addr(1), "unhealthy "+ReasonTimeout)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		w.wantHealth(addr(1), "healthy")
		w.close()
	})
}

func TestFailOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.failEverywhere(addr(1), badCode)
		w.failEverywhere(addr(2), badCode)
		w.register(addr(1), addr(2))
		w.wantWhere(0, "503 NO_USABLE_TARGET") // initial
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := w.shares(4); got["198.18.0.1:80"] != 2 || got["198.18.0.2:80"] != 2 {
			t.Errorf("requests went to %v, want two each", got)
		}
		if got := w.where(0, &request{}); !strings.HasSuffix(got, " unhealthy") {
			t.Errorf("%s, want an unhealthy one", got)
		}
		w.register(addr(3)) // initial ones do not count
		if got := w.shares(4); got["198.18.0.3:80"] != 0 {
			t.Errorf("requests went to %v", got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		w.wantWhere(0, "198.18.0.3:80 healthy")
		w.wantWhere(0, "198.18.0.3:80 healthy")
		w.close()
	})
}

func TestUnusableStatus(t *testing.T) {
	w := newWorld(t, func(o *worldOptions) { o.settings.UnusableStatus = 502 })
	w.register(addr(1))
	w.wantWhere(0, "502 NO_USABLE_TARGET")
	w.update(func(g *TargetGroup) { g.UnusableStatus = 503 })
	w.wantWhere(0, "503 NO_USABLE_TARGET")
}

func TestDeregistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, unchecked, deregisterLate(17*time.Second))
		w.register(addr(1))
		w.deregister(addr(1), addr(2)) // the other is not there, which is no error
		w.wantHealth(addr(1), draining)
		w.wantWhere(0, "198.18.0.1:80 draining")
		time.Sleep(17*time.Second - 1)
		synctest.Wait()
		w.wantWhere(1, "198.18.0.1:80 draining")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		w.wantWhere(0, "503 NO_USABLE_TARGET")
		w.wantWhere(1, "503 NO_USABLE_TARGET")
		w.wantHealth(addr(1), draining) // until the delay is over, though nothing is in flight
		if err := w.RegisterTargets(t.Context(), groupName, addrs(2)); !errors.Is(err, ErrInvalidTarget) || !strings.Contains(err.Error(), "198.18.0.1:80") {
			t.Errorf("registered again while draining: %v", err)
		}
		w.wantHealth(addr(0), "") // all or nothing
		time.Sleep(43*time.Second - 1)
		synctest.Wait()
		w.wantHealth(addr(1), draining)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		w.wantHealth(addr(1), "")
		w.wantWhere(0, "503 NO_TARGET")
		for _, node := range []string{"127.0.0.1", "127.0.0.2", ""} {
			w.wantTold(addr(1), node, registering, "healthy", draining, notThere)
		}
		w.register(addr(1))
		w.wantWhere(0, "198.18.0.1:80 healthy")
		w.close()
	})
}

func TestLagLongerThanDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, unchecked, deregisterLate(17*time.Second), func(o *worldOptions) { o.group.DeregistrationDelay = 5 * time.Second })
		w.register(addr(1))
		w.deregister(addr(1))
		time.Sleep(17*time.Second - 1)
		synctest.Wait()
		w.wantWhere(0, "198.18.0.1:80 draining")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		w.wantHealth(addr(1), "")
		w.close()
	})
}

func TestNoDelay(t *testing.T) {
	w := newWorld(t, unchecked, func(o *worldOptions) { o.group.DeregistrationDelay = 0 })
	w.register(addr(1))
	w.deregister(addr(1))
	w.wantHealth(addr(1), "")
	w.wantTold(addr(1), "", registering, "healthy", draining, notThere)
}

func TestInstanceComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, instances, deregisterLate(10*time.Second))
		settle := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
		w.register(addr(1))
		settle(time.Second)
		w.deregister(addr(1))
		settle(5 * time.Second)
		w.register(addr(1)) // before the nodes have heard of it
		w.wantHealth(addr(1), "healthy")
		settle(2 * time.Minute) // the timers of the first deregistration
		w.wantHealth(addr(1), "healthy")
		w.wantWhere(0, "198.18.0.1:80 healthy")

		w.deregister(addr(1))
		settle(10 * time.Second)
		w.wantWhere(0, "503 NO_USABLE_TARGET")
		w.register(addr(1)) // when they have stopped
		w.wantHealth(addr(1), checking)
		settle(time.Second)
		w.wantHealth(addr(1), "healthy")
		settle(2 * time.Minute)
		w.wantWhere(1, "198.18.0.1:80 healthy")

		w.update(func(g *TargetGroup) { g.DeregistrationDelay, g.DeregistrationLag = 0, &Range{0, time.Hour} })
		w.deregister(addr(1))
		for w.told(addr(1), "127.0.0.1")[len(w.told(addr(1), "127.0.0.1"))-1] != notThere &&
			w.told(addr(1), "127.0.0.2")[len(w.told(addr(1), "127.0.0.2"))-1] != notThere {
			settle(time.Second)
		}
		old := w.pool(addr(1), 0)
		w.register(addr(1)) // when one node has closed its connections
		settle(2 * time.Second)
		w.wantHealth(addr(1), "healthy")
		if gone := w.told(addr(1), "127.0.0.1"); strings.Contains(strings.Join(gone, ","), notThere) && w.pool(addr(1), 0) == old {
			t.Error("a node has a closed pool")
		}
		w.close()
	})
}

func TestLostDeregistration(t *testing.T) {
	w := newWorld(t, unchecked, func(o *worldOptions) { o.group.LoseDeregistrations = true })
	w.register(addr(1))
	w.deregister(addr(1))
	w.wantHealth(addr(1), "healthy")
	w.wantWhere(0, "198.18.0.1:80 healthy")
}

// TestDeregisteredBeforeRegistration: a node that has not got to know a target
// has nothing to be late with.
func TestDeregisteredBeforeRegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, deregisterLate(time.Hour), func(o *worldOptions) { o.group.RegistrationLag = &Range{time.Second, time.Second} })
		w.register(addr(1))
		w.deregister(addr(1))
		time.Sleep(time.Minute)
		synctest.Wait()
		w.wantHealth(addr(1), "")
		w.wantTold(addr(1), "", registering, draining, notThere)
		w.close()
	})
}

func TestUnused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(o *worldOptions) { o.lb.Default = Action{} })
		checks := 0
		check := w.check
		w.check = func(ctx context.Context, c checkRequest) outcome { checks++; return check(ctx, c) }
		w.register(addr(1))
		time.Sleep(time.Minute)
		synctest.Wait()
		w.wantHealth(addr(1), notInUse)
		if checks != 0 {
			t.Errorf("%d checks of an unused group", checks)
		}
		w.rule(func(lb *LoadBalancer) { lb.Default = forwardTo(groupName) })
		time.Sleep(time.Second)
		synctest.Wait()
		w.wantHealth(addr(1), "healthy")
		w.rule(func(lb *LoadBalancer) { lb.Default = Action{} })
		w.wantHealth(addr(1), notInUse)
		w.wantWhere(0, "404 NO_RULE")
		before := checks
		time.Sleep(time.Minute)
		synctest.Wait()
		if checks != before {
			t.Errorf("%d checks after the group's last use", checks-before)
		}
		w.wantTold(addr(1), "", notInUse, registering, checking, "healthy", notInUse)
		w.close()
	})
}

func TestChecksTurnedOffAndOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.failEverywhere(addr(1), badCode)
		w.register(addr(1))
		time.Sleep(time.Minute)
		synctest.Wait()
		w.wantHealth(addr(1), mismatch)
		check := w.group.HealthCheck
		check.Healthy = 1
		w.update(func(g *TargetGroup) { g.HealthCheck = HealthCheck{Disabled: true, Healthy: 1} })
		w.wantHealth(addr(1), "healthy")
		w.update(func(g *TargetGroup) { g.HealthCheck = check })
		w.wantHealth(addr(1), "healthy")
		time.Sleep(time.Minute)
		synctest.Wait()
		w.wantHealth(addr(1), mismatch)
		w.close()
	})
}
