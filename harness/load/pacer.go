package load

import (
	"context"
	"fmt"
	"time"
)

// catchUp is how long after the end of its schedule a stream may still send
// requests that are late: longer than a busy machine is seen to stall.
const catchUp = 10 * time.Second

// pacer is a vegeta.Pacer that keeps a schedule. vegeta's own constant pacer
// does not say when a request was due and can not be stopped while it waits.
type pacer struct {
	schedule
	ctx    context.Context // ends the sending
	count  uint64          // of requests
	cutoff time.Time       // no request is sent after this
	alarm  *alarm

	// To be read after the attack.
	ended time.Time // when the sending ended
	err   error     // why, if not as planned
}

func newPacer(ctx context.Context, s schedule, limit time.Duration) (*pacer, error) {
	alarm, err := newAlarm(ctx)
	if err != nil {
		return nil, err
	}
	return &pacer{schedule: s, ctx: ctx, count: s.count(limit), cutoff: s.begin.Add(limit + catchUp), alarm: alarm}, nil
}

// Pace returns when request number hits is due. A request that is late is due
// at once: an open loop catches up after a stall, and its lateness is measured.
func (p *pacer) Pace(_ time.Duration, hits uint64) (wait time.Duration, stop bool) {
	now := time.Now()
	if hits >= p.count || now.After(p.cutoff) {
		p.ended = now
		return 0, true
	}
	if err := p.alarm.wait(p.due(hits).Sub(now)); err != nil {
		p.err, p.ended = fmt.Errorf("wait for the next request: %w", err), time.Now()
		return 0, true
	}
	if p.ctx.Err() != nil {
		p.ended = time.Now()
		return 0, true
	}
	return 0, false
}

// Rate implements vegeta.Pacer.
func (p *pacer) Rate(time.Duration) float64 { return float64(p.rate) }
