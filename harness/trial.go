package harness

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// removeLimit bounds tearing a trial down; it runs under a context of its
	// own, because it must happen after Ctrl-C too.
	removeLimit = 90 * time.Second
	// deployLimit bounds bringing one up.
	deployLimit = 120 * time.Second
	// warmUpRounds bounds how often the warm-up is tried until one is clean.
	warmUpRounds = 20
	// warmUpLength is long enough to prove the path to every target.
	warmUpLength = 500 * time.Millisecond
	warmUpLimit  = 45 * time.Second
)

var errWarmUp = fmt.Errorf("not done in %s", warmUpLimit)

// errInvalid marks a reason for which a trial could not be measured, as
// opposed to one for which the run can not go on.
type errInvalid struct{ error }

var errStoppedEarly = errors.New("the load stopped before the trial was over")

// trial runs one trial from its empty namespace to its written result.
func (r *Runner) trial(ctx context.Context, e Experiment, t Trial) (TrialResult, error) {
	rec, err := r.Store.Create(t)
	if err != nil {
		return TrialResult{}, fmt.Errorf("open record of trial %d: %w", t.Number, err)
	}
	run := trialRun{
		Runner: r, trial: t, clock: NewClock(), tally: newTally(rec),
		result: TrialResult{Trial: t, Phases: make(map[string]float64)},
	}
	run.result.Anchor = run.clock.Anchor().Wall.UTC().Format(time.RFC3339Nano)

	err = run.measure(ctx)
	if werr := rec.Err(); werr != nil {
		err = fmt.Errorf("write record of trial %d: %w", t.Number, werr)
	}
	var invalid errInvalid
	if err != nil && !errors.As(err, &invalid) {
		return TrialResult{}, errors.Join(err, rec.Abandon())
	}
	result := run.finish(e, invalid)
	if err := rec.Finish(result); err != nil {
		return TrialResult{}, fmt.Errorf("write result of trial %d: %w", t.Number, err)
	}
	r.report(Progress{Trial: t, Phase: PhaseDone, Result: &result})
	return result, nil
}

// trialRun is the state of one trial while it runs.
type trialRun struct {
	*Runner
	trial  Trial
	clock  Clock
	tally  *tally
	result TrialResult
	cpu    cpuUse
	// The cluster's processes around the attack; nil where they are not known.
	partsBefore, partsAfter map[string]string
}

// phase announces a step and returns what ends it.
func (t *trialRun) phase(p Phase) (end func()) {
	t.report(Progress{Trial: t.trial, Phase: p})
	start := t.clock.Now()
	return func() { t.result.Phases[string(p)] += (t.clock.Now() - start).Seconds() }
}

func (t *trialRun) mark(name string) time.Duration {
	return t.event(EventMark, name)
}

func (t *trialRun) event(kind EventKind, object string) time.Duration {
	at := t.clock.Now()
	t.tally.Event(Event{At: at, Kind: kind, Object: object})
	return at
}

// measure deploys, attacks and removes. What went wrong with this trial only
// comes back as errInvalid.
func (t *trialRun) measure(ctx context.Context) (err error) {
	t.turnover <- struct{}{}
	inTurn := true
	release := func() {
		if inTurn {
			inTurn = false
			<-t.turnover
		}
	}
	defer release()
	end := t.phase(PhaseDeploy)
	dctx, cancel := context.WithTimeout(ctx, deployLimit)
	d, err := t.World.Deploy(dctx, t.trial, t.clock, t.tally)
	cancel()
	end()
	if err != nil {
		return t.blame(ctx, "deploy", err)
	}
	defer func() {
		release()
		t.turnover <- struct{}{}
		defer func() { <-t.turnover }()
		end := t.phase(PhaseRemove)
		defer end()
		rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeLimit)
		defer cancel()
		if rerr := d.Remove(rctx); rerr != nil {
			// What is left would disturb the next trial, so this ends the run even
			// where the trial as such was only invalid.
			rerr = fmt.Errorf("remove trial %d: %w", t.trial.Number, rerr)
			var invalid errInvalid
			if errors.As(err, &invalid) {
				err = fmt.Errorf("%w (the trial was invalid: %v)", rerr, invalid.error)
			} else {
				err = errors.Join(err, rerr)
			}
		}
	}()

	end = t.phase(PhaseWarmUp)
	err = t.prepare(ctx, d)
	release()
	if err == nil {
		err = t.warmUp(ctx, d)
	}
	end()
	if err != nil {
		return t.blame(ctx, "warm up", err)
	}
	// Read back after the warm-up, so that nothing is changed between the proof
	// that the mitigation is live and the attack.
	t.result.Live, err = d.Observe(ctx)
	if err != nil {
		return t.blame(ctx, "read settings back", err)
	}
	if t.partsBefore, err = t.parts(ctx); err != nil {
		return t.blame(ctx, "look at the cluster's processes", err)
	}
	if err := t.attack(ctx, d); err != nil {
		return err
	}
	if t.partsAfter, err = t.parts(ctx); err != nil {
		return t.blame(ctx, "look at the cluster's processes", err)
	}
	return nil
}

// parts are the cluster's processes now.
func (t *trialRun) parts(ctx context.Context) (map[string]string, error) {
	if w, ok := t.World.(Parts); ok {
		return w.Parts(ctx)
	}
	return nil, nil
}

// prepare is what the scenario needs before the attack.
func (t *trialRun) prepare(ctx context.Context, d Deployment) error {
	if p, ok := t.Scenarios[t.trial.Setup.Scenario.Name].(Preparer); ok {
		return p.Prepare(ctx, t.trial.Setup, d)
	}
	return nil
}

// warmUp sends short loads until one is answered without a failure.
func (t *trialRun) warmUp(ctx context.Context, d Deployment) error {
	target := d.Target()
	target.URL = target.ReadyURL
	load := t.trial.Setup.Load
	load.BodySize, load.Streams = 0, 0 // a readiness path need not take a POST
	spec := AttackSpec{Target: target, Load: load, Anchor: t.clock.Anchor(), Limit: Dur(warmUpLength)}
	var last Request
	ctx, cancel := context.WithTimeoutCause(ctx, warmUpLimit, errWarmUp)
	defer cancel()
	for round := range warmUpRounds {
		failed := 0
		spec.IDPrefix = fmt.Sprintf("w%d-", round)
		_, err := t.Attacker.Attack(ctx, spec, func(q Request) {
			if q.Failed() {
				failed++
				last = q
			}
		})
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if failed == 0 {
			return nil
		}
	}
	return fmt.Errorf("no clean half second of load in %d tries; last failure: %s %s", warmUpRounds, last.Outcome, last.Error)
}

// attack sends the load and runs the scenario under it.
func (t *trialRun) attack(ctx context.Context, d Deployment) error {
	load, spec := t.trial.Setup.Load, t.trial.Setup.Scenario
	actx, stop := context.WithCancel(ctx)
	defer stop()
	type attacked struct {
		stats AttackStats
		err   error
	}
	done := make(chan attacked, 1)
	broken := faults{event: t.event}
	t.mark(MarkAttack)
	stopCPU := watchCPU(t.CPU)
	go func() {
		stats, err := t.Attacker.Attack(actx, AttackSpec{
			Target: d.Target(), Load: load, Anchor: t.clock.Anchor(), IDPrefix: "r",
			Limit: Dur(load.Baseline.Duration + spec.Limit.Duration + load.Settle.Duration +
				t.trial.Setup.DeregistrationLag().Max + removeLimit),
		}, t.tally.Request)
		done <- attacked{stats, err}
		stop() // without load the scenario proves nothing
	}()
	// wait sleeps unless the attack ends by itself, which is an error here.
	wait := func(d time.Duration) error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case a := <-done:
			done <- a
			return errStoppedEarly
		}
	}
	disturb := func() error {
		end := t.phase(PhaseBaseline)
		err := wait(load.Baseline.Duration)
		end()
		if err != nil {
			return err
		}
		end = t.phase(PhaseScenario)
		t.tally.scenario(t.mark(MarkScenario))
		sctx, cancel := context.WithTimeout(actx, spec.Limit.Duration)
		if err = broken.begin(sctx, d, t.trial.Setup.Faults); err == nil {
			t.result.Disruption, err = t.Scenarios[spec.Name].Run(sctx, t.trial.Setup, d)
		}
		cancel()
		t.mark(MarkScenarioEnd)
		end()
		if err != nil && len(done) > 0 {
			return errStoppedEarly
		}
		if err != nil {
			return fmt.Errorf("scenario %s: %w", spec.Name, err)
		}
		end = t.phase(PhaseSettle)
		defer end()
		return wait(t.settle())
	}
	err := disturb()
	end := t.phase(PhaseDrain)
	t.cpu = stopCPU()
	stop()
	a := <-done
	if merr := broken.end(); merr != nil && (err == nil || errors.Is(err, errStoppedEarly)) {
		err = merr
	}
	end()
	t.mark(MarkAttackEnd)
	t.tally.over()
	t.result.Stats = a.stats
	if a.err != nil && (err == nil || errors.Is(err, errStoppedEarly)) {
		err = a.err
	}
	if err != nil {
		return t.blame(ctx, "attack", err)
	}
	return nil
}

// unhealthyAfter is how long the load balancer may take to notice by its health
// checks alone that a target is gone: two of them fail, 5 s apart, with a timeout
// of 2 s (see the Ingress in package clusters/kube).
const unhealthyAfter = 12 * time.Second

// settle is how long the load goes on from now: Load.Settle after the last
// moment at which the scenario can still hurt. That may be later than the end of
// the last pod or node, whose target is deregistered when its deletion begins and
// gets requests for the lag after that.
func (t *trialRun) settle() time.Duration {
	s, now := t.trial.Setup, t.clock.Now()
	lag := s.DeregistrationLag().Max
	t.tally.mu.Lock()
	defer t.tally.mu.Unlock()
	until := now
	// after says that deregistration may have been asked for as late as at that event.
	after := func(at time.Duration, seen bool) {
		if seen {
			until = max(until, at+lag)
		}
	}
	if s.LoadBalancer.TargetType == TargetIP {
		after(t.tally.lastDelete, t.tally.deletions > 0)
		// What was paused may have held deregistrations up.
		mended, seen := t.tally.last[EventFaultMended]
		after(mended, seen)
	}
	drained, seen := t.tally.last[EventNodeDrained] // its taint is older
	after(drained, seen)
	_, nodeLost := t.tally.first[EventNodeLost]
	byChecks := nodeLost || s.LoadBalancer.ExternalTrafficPolicy == TrafficLocal
	for _, f := range s.Faults {
		switch f.Kind {
		case FaultLostDeregistration:
			byChecks = true
		case FaultThrottledAPI:
			until += f.Every.Duration // for the call that has to wait
		}
	}
	if byChecks {
		until = max(until, now+unhealthyAfter)
	}
	return until - now + s.Load.Settle.Duration
}

// blame makes err the trial's fault, unless the run as a whole was stopped.
func (t *trialRun) blame(ctx context.Context, doing string, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errInvalid{fmt.Errorf("%s: %w", doing, err)}
}

// finish judges the trial.
func (t *trialRun) finish(e Experiment, invalid errInvalid) TrialResult {
	res := t.result
	res.Counts = t.tally.counts()
	if invalid.error != nil {
		res.Gates = []Gate{{Name: "measured", Detail: invalid.Error()}}
	} else {
		res.Gates = t.gates()
	}
	res.Verdict = VerdictPass
	for _, g := range res.Gates {
		if !g.OK {
			res.Verdict, res.Reason = VerdictInvalid, fmt.Sprintf("%s: %s", g.Name, g.Detail)
			return res
		}
	}
	tried, expected := Try(res.Counts), e.ExpectationFor(t.trial.Cell)
	if expected != "" && !expected.Met([]Tried{tried}) {
		res.Verdict, res.Reason = VerdictFail, fmt.Sprintf("%d failed requests, expected %s", tried.Failed, expected)
	}
	return res
}
