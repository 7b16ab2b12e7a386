package conformance

import (
	"net/http"
	"net/netip"
	"slices"
	"time"

	"lameduck/clusters/alb/elb"
	"lameduck/clusters/alb/scripted"
)

func reasonFacts() []Fact {
	return []Fact{
		{"4-registration-in-progress", 4, Documented, apiReference, "initial, Elb.RegistrationInProgress: until the registration has reached the nodes", registrationInProgress},
		{"4-initial-health-checking", 4, Documented, apiReference, "initial, Elb.InitialHealthChecking: until the first checks have ended", initialHealthChecking},
		{"4-response-code-mismatch", 4, Documented, apiReference, "unhealthy, Target.ResponseCodeMismatch", responseCodeMismatch},
		{"4-timeout", 4, Documented, apiReference, "unhealthy, Target.Timeout", checkTimeout},
		{"4-failed-health-checks", 4, Documented, apiReference, "unhealthy, Target.FailedHealthChecks: no connection or a malformed answer", failedHealthChecks},
		{"4-not-in-use", 4, Documented, apiReference, "unused, Target.NotInUse: no load balancer uses the group; checks start when one does", notInUse},
		{"4-not-registered", 4, Documented, apiReference, "draining, Target.DeregistrationInProgress, then unused, Target.NotRegistered", notRegistered},
		{"4-ip-unusable", 4, Documented, apiReference, "unused, Target.IpUnusable: the address of a load balancer node", ipUnusable},
		{"4-reason-codes", 4, Documented, apiReference, "states and reason codes have the names of the API", reasonNames},
		{"4-registration-lag", 4, Observed, controllerIssues, "a registration takes effect after the registration lag, a setting", registrationLag},
		{"3-unusable", 3, Inferred, guideTroubleshooting, "only initial or draining targets: 503 or 502, a setting", unusable},
	}
}

func registrationInProgress(t *T) {
	target := startChecked(t, passing)
	c := newCloud(t, checked, func(o *cloudOptions) { o.group.RegistrationLag = &elb.Range{Min: never, Max: never} })
	c.register(target.Target)
	c.wantHealth(target.Target, elb.StateInitial, elb.ReasonRegistrationInProgress)
	if n := target.Conns.Load(); n != 0 {
		t.Errorf("%d checks, want none yet", n)
	}
}

func initialHealthChecking(t *T) {
	silent := startTarget(t, func(x *scripted.Exchange) {
		x.Request()
		x.Request()
	})
	c := newCloud(t, checked, func(o *cloudOptions) { o.group.HealthCheck.Timeout = never })
	c.register(silent)
	t.eventually("checks", func() bool { return silent.Requests.Load() >= 2 })
	c.wantHealth(silent, elb.StateInitial, elb.ReasonInitialHealthChecking)
}

func responseCodeMismatch(t *T) {
	target := startChecked(t, failing)
	c := newCloud(t, checked)
	c.register(target.Target)
	c.wantHealth(target.Target, elb.StateUnhealthy, elb.ReasonResponseCodeMismatch)
}

func checkTimeout(t *T) {
	silent := startTarget(t, func(x *scripted.Exchange) {
		x.Request()
		x.Request()
	})
	c := newCloud(t, checked, func(o *cloudOptions) { o.group.HealthCheck.Timeout = 20 * time.Millisecond })
	c.register(silent)
	c.wantHealth(silent, elb.StateUnhealthy, elb.ReasonTimeout)
}

func failedHealthChecks(t *T) {
	dead := startTarget(t, scripted.Echo)
	dead.Close()
	garbage := startTarget(t, scripted.Once("hello\r\n\r\n"))
	c := newCloud(t, checked)
	c.register(dead, garbage)
	c.wantHealth(dead, elb.StateUnhealthy, elb.ReasonFailedHealthChecks)
	c.wantHealth(garbage, elb.StateUnhealthy, elb.ReasonFailedHealthChecks)
}

func notInUse(t *T) {
	target := startChecked(t, passing)
	c := newCloud(t, checked, func(o *cloudOptions) { o.lb.Default = elb.Action{} })
	c.register(target.Target)
	c.wantHealth(target.Target, elb.StateUnused, elb.ReasonNotInUse)
	if n := target.Conns.Load(); n != 0 {
		t.Errorf("%d checks, want none: nobody uses the group", n)
	}
	c.update(func(lb *elb.LoadBalancer) { lb.Default = forward(frontGroup) })
	c.wantHealth(target.Target, elb.StateHealthy, "")
}

func notRegistered(t *T) {
	target := startTarget(t, scripted.Echo)
	c := newCloud(t, func(o *cloudOptions) { o.group.DeregistrationDelay = 50 * time.Millisecond })
	c.serve(target)
	start := time.Now()
	c.deregister(target)
	c.wantHealth(target, elb.StateDraining, elb.ReasonDeregistrationInProgress)
	t.eventually("end of the deregistration", func() bool { _, ok := c.health(target); return !ok })
	if d := time.Since(start); d < 50*time.Millisecond {
		t.Errorf("gone after %s, want it to show draining for 50ms", d)
	}
	t.eventually("state unused", func() bool { return c.last(target, elb.StateUnused).Reason == elb.ReasonNotRegistered })
}

func ipUnusable(t *T) {
	c := newCloud(t, checked)
	t.must(c.api.RegisterTargets(t.Context(), frontGroup, []netip.AddrPort{c.nodes[0]}))
	t.eventually("state unused", func() bool {
		all, err := c.api.DescribeTargetHealth(t.Context(), frontGroup)
		t.must(err)
		return len(all) == 1 && all[0].State == elb.StateUnused && all[0].Reason == elb.ReasonIPUnusable
	})
}

func reasonNames(t *T) {
	got := []string{
		string(elb.StateInitial), string(elb.StateHealthy), string(elb.StateUnhealthy), string(elb.StateDraining), string(elb.StateUnused), string(elb.StateUnavailable),
		elb.ReasonRegistrationInProgress, elb.ReasonInitialHealthChecking, elb.ReasonResponseCodeMismatch, elb.ReasonTimeout,
		elb.ReasonFailedHealthChecks, elb.ReasonInternalError, elb.ReasonNotRegistered, elb.ReasonNotInUse, elb.ReasonInvalidState,
		elb.ReasonIPUnusable, elb.ReasonDeregistrationInProgress, elb.ReasonHealthCheckDisabled,
	}
	want := []string{
		"initial", "healthy", "unhealthy", "draining", "unused", "unavailable",
		"Elb.RegistrationInProgress", "Elb.InitialHealthChecking", "Target.ResponseCodeMismatch", "Target.Timeout",
		"Target.FailedHealthChecks", "Elb.InternalError", "Target.NotRegistered", "Target.NotInUse", "Target.InvalidState",
		"Target.IpUnusable", "Target.DeregistrationInProgress", "Target.HealthCheckDisabled",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func registrationLag(t *T) {
	const lag = 50 * time.Millisecond
	target := startTarget(t, scripted.Echo)
	c := newCloud(t, func(o *cloudOptions) { o.group.RegistrationLag = &elb.Range{Min: lag, Max: lag} })
	start := time.Now()
	c.register(target)
	t.eventually("healthy target", func() bool { h, _ := c.health(target); return h.State == elb.StateHealthy })
	if d := time.Since(start); d < lag {
		t.Errorf("healthy after %s, want not before %s", d, lag)
	}
}

func unusable(t *T) {
	for _, want := range []int{http.StatusServiceUnavailable, http.StatusBadGateway} {
		target := startTarget(t, scripted.Echo)
		c := newCloud(t, func(o *cloudOptions) {
			o.settings.UnusableStatus = want
			o.group.RegistrationLag = &elb.Range{Min: never, Max: never}
		})
		c.register(target)
		wantStatus(t, "only initial targets", c.get(0, "/"), want)
	}
}
