package harness

import "time"

// Clock stamps everything in one trial. Offsets come from the monotonic clock,
// so that a step of the wall clock during a trial moves nothing.
type Clock struct{ anchor time.Time }

// NewClock starts a clock at offset zero.
func NewClock() Clock { return Clock{time.Now()} }

// ClockAt makes a clock in another process that agrees with one anchored at
// the given wall time. Both must run on the same machine: the difference is
// then only a wall-clock step between the two calls.
func ClockAt(anchor time.Time) Clock {
	now := time.Now()
	return Clock{now.Add(-now.Round(0).Sub(anchor.Round(0)))}
}

// Now is the offset since the anchor.
func (c Clock) Now() time.Duration { return time.Since(c.anchor) }

// At converts a time of this process, or a wall time, to an offset.
func (c Clock) At(t time.Time) time.Duration { return t.Sub(c.anchor) }

// Anchor is the wall time at offset zero.
func (c Clock) Anchor() time.Time { return c.anchor.Round(0) }
