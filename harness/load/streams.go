package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"lameduck/harness"
)

// streamPause is the least time between the beginnings of a stream and of the
// one that takes its place.
const streamPause = 100 * time.Millisecond

var (
	errSilent = fmt.Errorf("nothing came for the load's timeout: %w", context.DeadlineExceeded)
	errEnded  = errors.New("the stream ended before the load did")
)

// streams are answers that go on for as long as the load does.
type streams struct {
	begin       time.Time
	clock       harness.Clock
	connections connections
	url         string
	silence     time.Duration // of a stream that has failed
	prefix      string        // of ids
	requests    chan<- harness.Request
}

func newStreams(spec harness.AttackSpec, begin time.Time, clock harness.Clock, requests chan<- harness.Request) *streams {
	return &streams{
		begin: begin, clock: clock, url: spec.Target.StreamURL,
		// One for each stream, whatever the load's own connections are.
		connections: newTurns(newTransport(spec.Load, spec.Target.Nodes), spec.Target.StreamURL, 0),
		silence:     spec.Load.Timeout.Duration, prefix: spec.IDPrefix + "s", requests: requests,
	}
}

// run keeps n streams going until ctx ends, and returns when they have.
func (s *streams) run(ctx context.Context, n int) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { s.keep(ctx, fmt.Sprintf("%s%d-", s.prefix, i)) })
	}
	all.Wait()
}

// keep begins one stream again and again.
func (s *streams) keep(ctx context.Context, prefix string) {
	planned := s.begin
	for i := 0; ; i++ {
		timer := time.NewTimer(time.Until(planned))
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
		sent := time.Now()
		s.one(ctx, harness.Request{
			ID: fmt.Sprint(prefix, i), Stream: true, Planned: s.clock.At(planned), Sent: s.clock.At(sent),
		})
		planned = time.Now()
		if soonest := sent.Add(streamPause); planned.Before(soonest) {
			planned = soonest
		}
	}
}

// one follows one stream to its end and records it.
func (s *streams) one(ctx context.Context, r harness.Request) {
	sent := time.Now()
	// The end of the load does not cut it: see follow.
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	silent := time.AfterFunc(s.silence, func() { end(errSilent) })
	defer silent.Stop()
	outcome, err := s.follow(ctx, life, func() { silent.Reset(s.silence) }, &r)
	r.Outcome = outcome
	if err != nil {
		r.Error = err.Error()
	}
	r.Latency = time.Since(sent)
	s.requests <- r
}

// follow reads a stream until it or its life ends, which is a failure, or
// something more has come after the end of ctx: to cut it at that end would
// count one as good which has been dead for a while.
func (s *streams) follow(ctx, life context.Context, heard func(), r *harness.Request) (harness.Outcome, error) {
	failed := func(err error, inBody bool) (harness.Outcome, error) {
		if life.Err() != nil {
			err = context.Cause(life)
		}
		return classify(err, inBody), err
	}
	out, err := http.NewRequestWithContext(life, http.MethodGet, s.url, nil)
	if err != nil {
		return failed(err, false)
	}
	out.Header = http.Header{harness.RequestIDHeader: {r.ID}, "User-Agent": {userAgent}}
	answer, err := s.connections.send(out, r)
	if err != nil {
		return failed(err, false)
	}
	defer answer.Body.Close()
	r.Status, r.Pod = answer.StatusCode, answer.Header.Get(harness.PodHeader)
	if o := ofStatus(answer.StatusCode); o != harness.OutcomeOK {
		return o, nil
	}
	var buf [512]byte
	var head []byte // what came before the first line's end
	for checked := false; ; {
		n, err := answer.Body.Read(buf[:])
		heard()
		if !checked {
			head = append(head, buf[:n]...)
			if checked = bytes.IndexByte(head, '\n') >= 0 || len(head) > len(buf); checked {
				if err := checkHead(answer, head, r.ID); err != nil {
					return harness.OutcomeWrongBody, err
				}
			}
		}
		switch over := ctx.Err() != nil; {
		case err != nil && err != io.EOF:
			return failed(err, true)
		case over:
			return harness.OutcomeOK, nil
		case err == io.EOF:
			return harness.OutcomeTruncated, errEnded
		}
	}
}
