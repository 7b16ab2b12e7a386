package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"lameduck/harness"
)

// settings are all that the flags say. /lameduck/config shows them as JSON,
// durations as strings like "10s".
type settings struct {
	listen  string
	Pod     string `json:"pod"`
	Version string `json:"version"`

	OnSIGTERM    harness.OnSIGTERM `json:"onSigterm"`
	SIGTERMWait  harness.Duration  `json:"sigtermWait"` // 0 unless OnSIGTERM is wait
	DrainIdle    harness.Duration  `json:"drainIdle"`
	DrainTimeout harness.Duration  `json:"drainTimeout"`
	// From SIGTERM, or the call of the preStop hook, on.
	CloseWhileDraining bool `json:"closeWhileDraining"` // every answer ends its connection
	FailReadiness      bool `json:"failReadiness"`      // /healthz answers 503

	ResponseTime harness.ResponseTime `json:"responseTime"`
	StartDelay   harness.Duration     `json:"startDelay"`
	KeepAlive    harness.Duration     `json:"keepAlive"` // 0: no keep-alive
}

// stops says whether SIGTERM makes the application stop, now or later.
func (s settings) stops() bool { return s.OnSIGTERM != harness.SIGTERMIgnore }

// onSIGTERM is the behaviour as the flag writes it.
func (s settings) onSIGTERM() string {
	if s.OnSIGTERM == harness.SIGTERMWait {
		return string(s.OnSIGTERM) + "=" + s.SIGTERMWait.String()
	}
	return string(s.OnSIGTERM)
}

const usageHead = `target serves HTTP as the application under test.

  target [flags]
  target sleep DURATION

Flags:
`

// parseSettings reads the command line. Asked for help, it writes it to out
// and returns flag.ErrHelp. Every error names the flag.
func parseSettings(args []string, out io.Writer) (settings, error) {
	s := settings{
		OnSIGTERM: harness.SIGTERMDrain,
		ResponseTime: harness.ResponseTime{
			P50: harness.Dur(20 * time.Millisecond), P99: harness.Dur(80 * time.Millisecond),
		},
	}
	f := flag.NewFlagSet("target", flag.ContinueOnError)
	f.SetOutput(io.Discard) // the caller prints errors
	f.StringVar(&s.listen, "listen", ":8080", "`address` to listen on")
	f.StringVar(&s.Version, "version", "v1", "`version` that answers carry, to tell apart two deployments")
	f.Func("on-sigterm", "`what` to do on SIGTERM: exit at once; drain: close the listener and finish; wait=DURATION: serve on, then drain; ignore (default drain)", s.setOnSIGTERM)
	f.Func("response-time", "`distribution` of the response time: log-normal through p50=DURATION,p99=DURATION (default p50=20ms,p99=80ms)", s.setResponseTime)
	f.Func("slow", "`share` of requests that take a fixed time instead: share=0.01,time=4s (default none)", s.setSlow)
	durationFlag(f, "start-delay", &s.StartDelay, 0, "`time` from start to listening")
	durationFlag(f, "keep-alive", &s.KeepAlive, 75*time.Second, "`time` after which an idle connection is closed; 0 closes after each answer")
	durationFlag(f, "drain-idle", &s.DrainIdle, time.Second, "`time` that a connection must have been idle to be closed while draining")
	durationFlag(f, "drain-timeout", &s.DrainTimeout, 25*time.Second, "`time` after which draining gives up and cuts what is left")
	f.BoolVar(&s.CloseWhileDraining, "close-while-draining", false, "from SIGTERM or the preStop hook on, say Connection: close in every answer, also while the listener is open")
	f.BoolVar(&s.FailReadiness, "fail-readiness", false, "from SIGTERM or the preStop hook on, answer 503 on /healthz")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprint(out, usageHead)
			f.SetOutput(out)
			f.PrintDefaults()
		}
		return settings{}, err
	}
	if f.NArg() > 0 {
		return settings{}, fmt.Errorf("%q: want flags only, or: target sleep DURATION", f.Arg(0))
	}
	return s, nil
}

// durationFlag is flag.DurationVar with a message that says what is right.
func durationFlag(f *flag.FlagSet, name string, to *harness.Duration, preset time.Duration, usage string) {
	to.Duration = preset
	f.Func(name, fmt.Sprintf("%s (default %s)", usage, preset), func(text string) error {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return fmt.Errorf("want a duration of 0s or more, like 500ms or 10s")
		}
		to.Duration = d
		return nil
	})
}

func (s *settings) setOnSIGTERM(text string) error {
	what, wait, isWait := strings.Cut(text, "=")
	if what == string(harness.SIGTERMWait) && isWait {
		d, err := time.ParseDuration(wait)
		if err != nil || d <= 0 {
			return fmt.Errorf("want wait=DURATION of more than 0s, like wait=10s")
		}
		s.OnSIGTERM, s.SIGTERMWait = harness.SIGTERMWait, harness.Dur(d)
		return nil
	}
	plain := []harness.OnSIGTERM{harness.SIGTERMExit, harness.SIGTERMDrain, harness.SIGTERMIgnore}
	if !slices.Contains(plain, harness.OnSIGTERM(text)) {
		return fmt.Errorf("want exit, drain, wait=DURATION or ignore")
	}
	s.OnSIGTERM, s.SIGTERMWait = harness.OnSIGTERM(text), harness.Duration{}
	return nil
}

func (s *settings) setResponseTime(text string) error {
	p, err := parsePairs(text, "p50", "p99")
	if err != nil {
		return fmt.Errorf("%w, like p50=20ms,p99=80ms", err)
	}
	p50, err50 := time.ParseDuration(p["p50"])
	p99, err99 := time.ParseDuration(p["p99"])
	if err50 != nil || err99 != nil || p50 <= 0 || p99 < p50 {
		return fmt.Errorf("want durations 0s < p50 <= p99, like p50=20ms,p99=80ms")
	}
	s.ResponseTime.P50, s.ResponseTime.P99 = harness.Dur(p50), harness.Dur(p99)
	return nil
}

func (s *settings) setSlow(text string) error {
	p, err := parsePairs(text, "share", "time")
	if err != nil {
		return fmt.Errorf("%w, like share=0.01,time=4s", err)
	}
	share, err := strconv.ParseFloat(p["share"], 64)
	if err != nil || !(share >= 0 && share <= 1) { // written so that NaN fails
		return fmt.Errorf("want a share of 0..1, like share=0.01,time=4s")
	}
	slow, err := time.ParseDuration(p["time"])
	if err != nil || slow < 0 {
		return fmt.Errorf("want a time of 0s or more, like share=0.01,time=4s")
	}
	s.ResponseTime.SlowShare, s.ResponseTime.Slow = share, harness.Dur(slow)
	return nil
}

// parsePairs reads a=1,b=2 with exactly the keys given.
func parsePairs(text string, keys ...string) (map[string]string, error) {
	pairs := make(map[string]string)
	for _, pair := range strings.Split(text, ",") {
		key, value, _ := strings.Cut(pair, "=")
		if _, twice := pairs[key]; twice || !slices.Contains(keys, key) {
			return nil, fmt.Errorf("want %s once each", strings.Join(keys, " and "))
		}
		pairs[key] = value
	}
	if len(pairs) != len(keys) {
		return nil, fmt.Errorf("want %s once each", strings.Join(keys, " and "))
	}
	return pairs, nil
}
