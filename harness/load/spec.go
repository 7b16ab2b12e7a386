package load

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
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
	known := []harness.Connections{harness.ConnectionsPooled, harness.ConnectionsNew, harness.ConnectionsLongLived}
	want(slices.Contains(known, l.Connections), "connections is %q: want one of %v", l.Connections, known)
	want((l.Connections == harness.ConnectionsLongLived) == (l.LongLived > 0) && l.LongLived >= 0,
		"long-lived connections are %d with connections %q: want 1 or more with %s, and 0 with others", l.LongLived, l.Connections, harness.ConnectionsLongLived)
	want(l.BodySize >= 0, "body size is %d: want 0 or more bytes", l.BodySize)
	want(l.Streams >= 0, "streams is %d: want 0 or more", l.Streams)
	want(l.Timeout.Duration > 0, "timeout is %s: want more than 0s", l.Timeout)
	want(spec.Limit.Duration > 0, "limit is %s: want more than 0s", spec.Limit)
	want(!spec.Anchor.Wall.IsZero(), "anchor is not set: want that of the trial's clock")
	target := spec.Target
	checkTarget := func(name, text string) {
		u, err := parseURL(text, l.HTTP2)
		want(err == nil, "%s %q: %w", name, text, err)
		if first, ferr := url.Parse(target.URL); err == nil && ferr == nil && name == controlURL {
			want(u.Scheme == first.Scheme && u.Host == first.Host,
				"%s %q: want the scheme and host of the target URL %q, whose connections it shares", name, text, target.URL)
		}
	}
	checkTarget("target URL", target.URL)
	if l.ControlRate > 0 {
		checkTarget(controlURL, target.ControlURL)
	}
	if l.Streams > 0 {
		checkTarget("stream URL", target.StreamURL)
	}
	if len(errs) > 0 {
		return fmt.Errorf("attack: %w", errors.Join(errs...))
	}
	return nil
}

const controlURL = "control URL"

func parseURL(text string, http2 bool) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, err
	case http2 && (u.Scheme != "https" || u.Host == ""):
		return nil, errors.New("want https://host with HTTP/2, with an optional port and path")
	case (u.Scheme != "http" && u.Scheme != "https") || u.Host == "":
		return nil, errors.New("want http://host or https://host, with an optional port and path")
	}
	return u, nil
}

// schedule is the plan of one loop: number n is due n/rate
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
