package main

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"lameduck/harness"
)

func TestWrongUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string // what the message must name
	}{
		{[]string{"--on-sigterm", "die"}, "-on-sigterm: want exit, drain, wait=DURATION or ignore"},
		{[]string{"--on-sigterm", "wait"}, "-on-sigterm"},
		{[]string{"--on-sigterm", "wait=0s"}, "like wait=10s"},
		{[]string{"--on-sigterm", "exit=1s"}, "-on-sigterm"},
		{[]string{"--response-time", "p50=20ms"}, "like p50=20ms,p99=80ms"},
		{[]string{"--response-time", "p50=20ms,p50=20ms"}, "like p50=20ms,p99=80ms"},
		{[]string{"--response-time", "p50=20ms,p99=80ms,p999=1s"}, "-response-time"},
		{[]string{"--response-time", "p50=80ms,p99=20ms"}, "p50 <= p99"},
		{[]string{"--response-time", "p50=0s,p99=20ms"}, "p50 <= p99"},
		{[]string{"--response-time", "p50=20,p99=80"}, "durations"},
		{[]string{"--slow", "0.01"}, "like share=0.01,time=4s"},
		{[]string{"--slow", "share=1.5,time=4s"}, "share of 0..1"},
		{[]string{"--slow", "share=NaN,time=4s"}, "share of 0..1"},
		{[]string{"--slow", "share=0.5,time=-4s"}, "time of 0s or more"},
		{[]string{"--keep-alive", "-1s"}, "-keep-alive: want a duration of 0s or more"},
		{[]string{"--drain-idle", "1"}, "-drain-idle"},
		{[]string{"--no-such-flag"}, "-no-such-flag"},
		{[]string{"serve"}, `"serve"`},
		{[]string{"sleep"}, "target sleep 10s"},
		{[]string{"sleep", "10"}, `sleep "10"`},
		{[]string{"sleep", "1s", "1s"}, "target sleep 10s"},
	} {
		var errOut strings.Builder
		code := run(c.args, "app-1", nil, io.Discard, &errOut)
		if code != exitUsage || !strings.Contains(errOut.String(), c.want) || strings.Count(errOut.String(), "\n") != 1 {
			t.Errorf("%v: exit code %d, %q: want 2 and one line with %q", c.args, code, &errOut, c.want)
		}
	}
}

func TestHelp(t *testing.T) {
	var out, errOut strings.Builder
	if code := run([]string{"--help"}, "app-1", nil, &out, &errOut); code != exitOK || errOut.Len() > 0 {
		t.Errorf("exit code %d, stderr %q", code, &errOut)
	}
	for _, flag := range []string{"on-sigterm", "response-time", "slow", "start-delay", "keep-alive", "version", "listen", "drain-idle", "drain-timeout", "close-while-draining", "fail-readiness", "target sleep"} {
		if !strings.Contains(out.String(), flag) {
			t.Errorf("help does not name %s", flag)
		}
	}
}

func TestPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var errOut strings.Builder
	code := run([]string{"--listen", l.Addr().String()}, "app-1", nil, io.Discard, &errOut)
	if code != exitError || !strings.Contains(errOut.String(), "--listen") || !strings.Contains(errOut.String(), "address already in use") {
		t.Errorf("exit code %d, %q: want 1 and the flag and the reason", code, &errOut)
	}
}

// TestResponseTimes checks that the drawn times have the percentiles asked for.
func TestResponseTimes(t *testing.T) {
	r := newResponseTimes(harness.ResponseTime{P50: harness.Dur(20 * time.Millisecond), P99: harness.Dur(80 * time.Millisecond)})
	r.normal = rand.New(rand.NewPCG(1, 2)).NormFloat64
	const n = 100_000
	drawn := make([]time.Duration, n)
	for i := range drawn {
		drawn[i] = r.of("")
	}
	slices.Sort(drawn)
	for share, want := range map[float64]time.Duration{0.5: 20 * time.Millisecond, 0.99: 80 * time.Millisecond} {
		got := drawn[int(share*n)]
		if math.Abs(float64(got)/float64(want)-1) > 0.03 {
			t.Errorf("%g of the times are below %s, want %s", share, got, want)
		}
	}

	const same = 20 * time.Millisecond
	r = newResponseTimes(harness.ResponseTime{P50: harness.Dur(same), P99: harness.Dur(same)})
	for range 100 {
		if got := r.of(""); (got - same).Abs() > time.Microsecond {
			t.Fatalf("with p50 = p99 = %s drew %s", same, got)
		}
	}
}

// TestSlow checks that the ids alone decide which requests are slow, in the
// share asked for.
func TestSlow(t *testing.T) {
	settings := harness.ResponseTime{
		P50: harness.Dur(time.Millisecond), P99: harness.Dur(time.Millisecond),
		SlowShare: 0.01, Slow: harness.Dur(4 * time.Second),
	}
	one, other := newResponseTimes(settings), newResponseTimes(settings)
	const n = 20_000
	slow, slowWithout := 0, 0
	one.uniform = rand.New(rand.NewPCG(1, 2)).Float64
	for i := range n {
		id := fmt.Sprintf("r%d", i)
		isSlow := one.of(id) == settings.Slow.Duration
		if isSlow != (other.of(id) == settings.Slow.Duration) {
			t.Fatalf("request %s is slow in one process and not in another", id)
		}
		if isSlow {
			slow++
		}
		if one.of("") == settings.Slow.Duration {
			slowWithout++
		}
	}
	for what, got := range map[string]int{"with": slow, "without": slowWithout} {
		if got < n/100*8/10 || got > n/100*12/10 {
			t.Errorf("%d of %d requests %s an id are slow, want about %d", got, n, what, n/100)
		}
	}
}
