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
// The requests to the control target are a second loop with a schedule of its
// own, over the same connections. Ids are spec.IDPrefix and the number in the
// loop, with a "c" between them for the control target: r0, r1, rc0. Those of
// streams have an "s", the stream's number and which try it is: rs0-0, rs0-1.
//
// The schedule covers spec.Limit; requests that are late by then are sent for
// at most ten seconds more. A redirect is not followed and counts as ok.
type Local struct{}

// Attack implements harness.Attacker.
func (Local) Attack(ctx context.Context, spec harness.AttackSpec, each func(harness.Request)) (harness.AttackStats, error) {
	if err := check(spec); err != nil {
		return harness.AttackStats{}, err
	}
	connections := openConnections(ctx, spec.Load, spec.Target)
	defer connections.close()
	// A pause of each must not hold up the sending.
	requests := make(chan harness.Request, 1<<14)
	begin := time.Now()
	clock := harness.ClockAt(spec.Anchor)
	body := content(spec.Load.BodySize)
	newLoop := func(url, prefix string, rate int, control bool) (*loop, error) {
		s := schedule{begin: begin, rate: rate}
		p, err := newPacer(ctx, s, spec.Limit.Duration)
		if err != nil {
			return nil, fmt.Errorf("attack: %w", err)
		}
		return &loop{url: url, pacer: p, recorder: &recorder{
			schedule: s, clock: clock, connections: connections, timeout: spec.Load.Timeout.Duration, body: body,
			prefix: prefix, control: control, requests: requests,
		}}, nil
	}
	app, err := newLoop(spec.Target.URL, spec.IDPrefix, spec.Load.Rate, false)
	if err != nil {
		return harness.AttackStats{}, err
	}
	defer app.pacer.alarm.close()
	loops := []*loop{app}
	if spec.Load.ControlRate > 0 {
		control, err := newLoop(spec.Target.ControlURL, spec.IDPrefix+"c", spec.Load.ControlRate, true)
		if err != nil {
			return harness.AttackStats{}, err
		}
		defer control.pacer.alarm.close()
		loops = append(loops, control)
	}
	var running sync.WaitGroup
	for _, l := range loops {
		running.Go(l.attack)
	}
	if n := spec.Load.Streams; n > 0 {
		lasting, end := context.WithDeadline(ctx, begin.Add(spec.Limit.Duration))
		defer end()
		running.Go(func() { newStreams(spec, begin, clock, requests).run(lasting, n) })
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
	for _, l := range loops {
		sending = max(sending, l.sending(spec.Limit.Duration))
		results += l.results
		firstErr = cmp.Or(firstErr, l.err)
		errs = append(errs, l.pacer.err)
	}
	if results != stats.sent() {
		errs = append(errs, fmt.Errorf("%d of %d requests were not sent: %s", results-stats.sent(), results, firstErr))
	}
	if err := errors.Join(errs...); err != nil {
		return harness.AttackStats{}, fmt.Errorf("attack: %w", err)
	}
	return stats.result(sending), nil
}

// loop is one vegeta attack.
type loop struct {
	pacer    *pacer
	recorder *recorder
	url      string
	results  int    // of vegeta
	err      string // the first in them
}

// attack sends until the pacer stops and every request has ended.
func (l *loop) attack() {
	attacker := vegeta.NewAttacker(
		vegeta.Client(&http.Client{Transport: l.recorder}),
		vegeta.Redirects(vegeta.NoFollow),
	)
	method := http.MethodGet
	if len(l.recorder.body) > 0 {
		method = http.MethodPost
	}
	target := vegeta.NewStaticTargeter(vegeta.Target{Method: method, URL: l.url})
	for r := range attacker.Attack(target, l.pacer, 0, "") {
		l.results++
		l.err = cmp.Or(l.err, r.Error)
	}
}

// sending is how long requests were sent: until ctx ended, or for the whole
// schedule.
func (l *loop) sending(limit time.Duration) time.Duration {
	d := l.pacer.ended.Sub(l.pacer.begin)
	if l.pacer.ctx.Err() == nil {
		d = max(d, limit)
	}
	return d
}
