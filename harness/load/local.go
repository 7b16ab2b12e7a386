package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"

	"lameduck/harness"
)

// Local is a harness.Attacker that sends from this process.
//
// The requests to the control target are a second stream with a schedule of
// its own, over the same connections. Ids are spec.IDPrefix and the number in
// the stream, with a "c" between them for the control target: r0, r1, rc0.
//
// The schedule covers spec.Limit; requests that are late by then are sent for
// at most ten seconds more. A redirect is not followed and counts as ok.
type Local struct{}

// Attack implements harness.Attacker.
func (Local) Attack(ctx context.Context, spec harness.AttackSpec, each func(harness.Request)) (harness.AttackStats, error) {
	if err := check(spec); err != nil {
		return harness.AttackStats{}, err
	}
	transport := newTransport(spec.Load, spec.Target.Nodes)
	defer transport.CloseIdleConnections()
	// A pause of each must not hold up the sending.
	requests := make(chan harness.Request, 1<<14)
	begin := time.Now()
	clock := harness.ClockAt(spec.Anchor)
	newStream := func(url, prefix string, rate int, control bool) (*stream, error) {
		s := schedule{begin: begin, rate: rate}
		p, err := newPacer(ctx, s, spec.Limit.Duration)
		if err != nil {
			return nil, fmt.Errorf("attack: %w", err)
		}
		return &stream{url: url, pacer: p, recorder: &recorder{
			schedule: s, clock: clock, transport: transport, timeout: spec.Load.Timeout.Duration,
			prefix: prefix, control: control, requests: requests,
		}}, nil
	}
	app, err := newStream(spec.Target.URL, spec.IDPrefix, spec.Load.Rate, false)
	if err != nil {
		return harness.AttackStats{}, err
	}
	defer app.pacer.alarm.close()
	streams := []*stream{app}
	if spec.Load.ControlRate > 0 {
		control, err := newStream(spec.Target.ControlURL, spec.IDPrefix+"c", spec.Load.ControlRate, true)
		if err != nil {
			return harness.AttackStats{}, err
		}
		defer control.pacer.alarm.close()
		streams = append(streams, control)
	}
	var running sync.WaitGroup
	for _, s := range streams {
		running.Go(s.attack)
	}
	go func() {
		running.Wait()
		close(requests)
	}()

	var stats statistics
	for r := range requests {
		stats.add(r)
		each(r)
	}
	var sending time.Duration
	results, firstErr := 0, ""
	var errs []error
	for _, s := range streams {
		sending = max(sending, s.sending(spec.Limit.Duration))
		results += s.results
		firstErr = cmp.Or(firstErr, s.err)
		errs = append(errs, s.pacer.err)
	}
	if results != stats.sent() {
		errs = append(errs, fmt.Errorf("%d of %d requests were not sent: %s", results-stats.sent(), results, firstErr))
	}
	if err := errors.Join(errs...); err != nil {
		return harness.AttackStats{}, fmt.Errorf("attack: %w", err)
	}
	return stats.result(sending), nil
}

// stream is one vegeta attack.
type stream struct {
	pacer    *pacer
	recorder *recorder
	url      string
	results  int    // of vegeta
	err      string // the first in them
}

// attack sends until the pacer stops and every request has ended.
func (s *stream) attack() {
	attacker := vegeta.NewAttacker(
		vegeta.Client(&http.Client{Transport: s.recorder}),
		vegeta.Redirects(vegeta.NoFollow),
	)
	target := vegeta.NewStaticTargeter(vegeta.Target{Method: http.MethodGet, URL: s.url})
	for r := range attacker.Attack(target, s.pacer, 0, "") {
		s.results++
		s.err = cmp.Or(s.err, r.Error)
	}
}

// sending is how long requests were sent: until ctx ended, or for the whole
// schedule.
func (s *stream) sending(limit time.Duration) time.Duration {
	d := s.pacer.ended.Sub(s.pacer.begin)
	if s.pacer.ctx.Err() == nil {
		d = max(d, limit)
	}
	return d
}
