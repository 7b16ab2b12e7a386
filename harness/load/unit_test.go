package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"lameduck/harness"
)

// TestClassify covers what TestOutcomes can not bring about.
func TestClassify(t *testing.T) {
	dial := func(err error) error {
		return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", err)}
	}
	for _, c := range []struct {
		err    error
		inBody bool
		want   harness.Outcome
	}{
		{dial(syscall.EADDRNOTAVAIL), false, harness.OutcomeGenerator},
		{dial(syscall.EMFILE), false, harness.OutcomeGenerator},
		{dial(syscall.ENFILE), false, harness.OutcomeGenerator},
		{dial(&net.DNSError{Err: "no such host", Name: "app.invalid", IsNotFound: true}), false, harness.OutcomeDNS},
		{dial(&net.DNSError{Err: "timed out", Name: "app.invalid", IsTimeout: true}), false, harness.OutcomeDNS},
		{dial(syscall.ETIMEDOUT), false, harness.OutcomeTimeout},
		{dial(os.ErrDeadlineExceeded), false, harness.OutcomeTimeout},
		{fmt.Errorf("wrapped: %w", context.DeadlineExceeded), true, harness.OutcomeTimeout},
		{dial(syscall.EPIPE), false, harness.OutcomeReset},
		{dial(syscall.ECONNRESET), true, harness.OutcomeReset},
		{dial(syscall.EHOSTUNREACH), false, harness.OutcomeOther},
		{io.ErrUnexpectedEOF, true, harness.OutcomeTruncated},
		{io.ErrUnexpectedEOF, false, harness.OutcomeEOF},
		{io.EOF, false, harness.OutcomeEOF},
		{errors.New(closedIdle), false, harness.OutcomeEOF},
		{errors.New("anything"), false, harness.OutcomeOther},
	} {
		if got := classify(c.err, c.inBody); got != c.want {
			t.Errorf("%v (in body: %v) is %s, want %s", c.err, c.inBody, got, c.want)
		}
	}
}

func TestSpecIsRefused(t *testing.T) {
	for want, edit := range map[string]func(*harness.AttackSpec){
		"rate is 0":          func(s *harness.AttackSpec) { s.Load.Rate = 0 },
		"rate is -1":         func(s *harness.AttackSpec) { s.Load.Rate = -1 },
		"control rate is -1": func(s *harness.AttackSpec) { s.Load.ControlRate = -1 },
		`target URL ""`:      func(s *harness.AttackSpec) { s.Target.URL = "" },
		`"ftp://host/"`:      func(s *harness.AttackSpec) { s.Target.URL = "ftp://host/" },
		`"http:///path"`:     func(s *harness.AttackSpec) { s.Target.URL = "http:///path" },
		`control URL ""`:     func(s *harness.AttackSpec) { s.Load.ControlRate = 1 },
		"timeout is 0s":      func(s *harness.AttackSpec) { s.Load.Timeout = harness.Dur(0) },
		"limit is 0s":        func(s *harness.AttackSpec) { s.Limit = harness.Dur(0) },
		`connections is ""`:  func(s *harness.AttackSpec) { s.Load.Connections = "" },
		"long-lived connections are 0 with connections \"long-lived\": want 1 or more": func(s *harness.AttackSpec) { s.Load.Connections = harness.ConnectionsLongLived },
		"long-lived connections are 5":  func(s *harness.AttackSpec) { s.Load.LongLived = 5 },
		"body size is -1":               func(s *harness.AttackSpec) { s.Load.BodySize = -1 },
		"streams is -1":                 func(s *harness.AttackSpec) { s.Load.Streams = -1 },
		`stream URL ""`:                 func(s *harness.AttackSpec) { s.Load.Streams = 1 },
		"want https://host with HTTP/2": func(s *harness.AttackSpec) { s.Load.HTTP2 = true },
		`control URL "http://127.0.0.1:2/": want the scheme and host of the target URL "http://127.0.0.1:1"`: func(s *harness.AttackSpec) {
			s.Load.ControlRate, s.Target.ControlURL = 1, "http://127.0.0.1:2/"
		},
		"anchor": func(s *harness.AttackSpec) { s.Anchor = harness.Anchor{} },
	} {
		spec := attackSpec("http://127.0.0.1:1", time.Second)
		edit(&spec)
		for _, a := range []harness.Attacker{Local{}, Process{}} {
			_, err := a.Attack(t.Context(), spec, func(harness.Request) { t.Error("a request was sent") })
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%T: error is %v, want %s", a, err, want)
			}
		}
	}
}

func TestSchedule(t *testing.T) {
	begin := time.Now()
	for _, rate := range []int{1, 3, 7, 300, 1000, 5000} {
		s := schedule{begin, rate}
		for _, limit := range []time.Duration{1, 999 * time.Microsecond, time.Second, 1234567 * time.Microsecond, 100 * time.Hour} {
			n := s.count(limit)
			if last := s.due(n - 1).Sub(begin); last >= limit {
				t.Errorf("rate %d, limit %s: the last of %d requests is due at %s", rate, limit, n, last)
			}
			// Due times are cut to nanoseconds, so one more is due at most one before.
			if next := s.due(n).Sub(begin); next < limit-1 {
				t.Errorf("rate %d, limit %s: request %d is due at %s and not counted", rate, limit, n, next)
			}
		}
	}
	if got := (schedule{begin, 300}).count(time.Hour); got != 300*3600 {
		t.Errorf("an hour at 300/s has %d requests", got)
	}
}

// TestPacerCutsOff wants that a stream that is hopelessly late is ended.
func TestPacerCutsOff(t *testing.T) {
	for past, wantStop := range map[time.Duration]bool{
		10*time.Second + catchUp/2: false, // late, but sent at once
		10*time.Second + catchUp:   true,
	} {
		p, err := newPacer(t.Context(), schedule{time.Now().Add(-past), 100}, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if wait, stop := p.Pace(past, 17); wait != 0 || stop != wantStop {
			t.Errorf("%s after the begin: wait %s, stop %v", past, wait, stop)
		}
		if _, stop := p.Pace(past, 1000); !stop {
			t.Error("more requests than the schedule has")
		}
		p.alarm.close()
	}
}

func TestStatistics(t *testing.T) {
	var s statistics
	if got := s.result(0); got != (harness.AttackStats{}) {
		t.Errorf("of nothing: %+v", got)
	}
	for i := 200; i >= 1; i-- {
		s.add(harness.Request{Planned: time.Second, Sent: time.Second + time.Duration(i)*time.Millisecond})
	}
	want := harness.AttackStats{
		Sent: 200, Elapsed: 4 * time.Second, AchievedRate: 50,
		LatenessP50: 100 * time.Millisecond, LatenessP99: 198 * time.Millisecond, LatenessMax: 200 * time.Millisecond,
	}
	if got := s.result(4 * time.Second); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
