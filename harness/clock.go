package harness

import "time"

// Clock stamps everything in one trial. Offsets come from the monotonic clock,
// so that a step of the wall clock during a trial moves nothing.
type Clock struct{ start time.Time }

// Anchor is a clock's offset zero, in a form that another process can use.
type Anchor struct {
	Wall time.Time `json:"wall"`
	// Monotonic is the same moment on the machine's own monotonic clock, in
	// nanoseconds: CLOCK_MONOTONIC of clock_gettime(2), which all processes of a
	// Linux machine share. 0 where it can not be had.
	Monotonic int64 `json:"monotonic,omitempty"`
}

// NewClock starts a clock at offset zero.
func NewClock() Clock { return Clock{time.Now()} }

// ClockAt makes a clock in another process of the same machine that agrees with
// the one the anchor is from. Where the monotonic clock can not be had, the two
// differ by any step of the wall clock in between.
func ClockAt(a Anchor) Clock {
	now := time.Now()
	if mono, ok := monotonic(); ok && a.Monotonic != 0 {
		return Clock{now.Add(-time.Duration(mono - a.Monotonic))}
	}
	return Clock{now.Add(-now.Round(0).Sub(a.Wall))}
}

// Now is the offset since the start.
func (c Clock) Now() time.Duration { return time.Since(c.start) }

// At converts a time of this process to an offset.
func (c Clock) At(t time.Time) time.Duration { return t.Sub(c.start) }

// Anchor tells another process of this clock.
func (c Clock) Anchor() Anchor {
	a := Anchor{Wall: c.start.Round(0)}
	// The two clocks can not be read at once; of a few tries the closest counts.
	closest := time.Hour
	for range 5 {
		before := c.Now()
		mono, ok := monotonic()
		if between := c.Now() - before; ok && between < closest {
			closest, a.Monotonic = between, mono-int64(before+between/2)
		}
	}
	return a
}
