package load

import (
	"errors"
	"fmt"
	"net/url"
	"time"

	"lameduck/harness"
)

// check says everything that is wrong with a spec.
func check(spec harness.AttackSpec) error {
	var errs []error
	want := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	l := spec.Load
	want(l.Rate > 0, "rate is %d: want at least 1 request per second", l.Rate)
	want(l.ControlRate >= 0, "control rate is %d: want 0 or more requests per second", l.ControlRate)
	want(l.Connections == harness.ConnectionsPooled || l.Connections == harness.ConnectionsNew,
		"connections is %q: want %s or %s", l.Connections, harness.ConnectionsPooled, harness.ConnectionsNew)
	want(l.Timeout.Duration > 0, "timeout is %s: want more than 0s", l.Timeout)
	want(spec.Limit.Duration > 0, "limit is %s: want more than 0s", spec.Limit)
	want(!spec.Anchor.Wall.IsZero(), "anchor is not set: want that of the trial's clock")
	if err := checkURL(spec.Target.URL); err != nil {
		errs = append(errs, fmt.Errorf("target URL %q: %w", spec.Target.URL, err))
	}
	if l.ControlRate > 0 {
		if err := checkURL(spec.Target.ControlURL); err != nil {
			errs = append(errs, fmt.Errorf("control URL %q: %w", spec.Target.ControlURL, err))
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("attack: %w", errors.Join(errs...))
	}
	return nil
}

func checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return err
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return errors.New("want http://host or https://host, with an optional port and path")
	}
	return nil
}

// schedule is the plan of one stream of requests: number n is due n/rate
// seconds after begin.
type schedule struct {
	begin time.Time
	rate  int // requests per second
}

func (s schedule) due(n uint64) time.Time {
	return s.begin.Add(time.Duration(n/uint64(s.rate))*time.Second + // in two parts, so that nothing overflows
		time.Duration(n%uint64(s.rate))*time.Second/time.Duration(s.rate))
}

// count is how many requests are due before d has passed.
func (s schedule) count(d time.Duration) uint64 {
	n := uint64(d/time.Second) * uint64(s.rate)
	part := uint64(d%time.Second) * uint64(s.rate)
	return n + (part+uint64(time.Second)-1)/uint64(time.Second)
}
