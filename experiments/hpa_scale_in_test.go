package experiments

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lameduck/harness"
)

// pods is a Deployment whose number of pods a test decides.
type pods struct {
	calls []string
	now   func() int // pods at this moment
}

func (p *pods) Target() harness.Target       { return harness.Target{} }
func (p *pods) Remove(context.Context) error { return nil }
func (p *pods) Observe(context.Context) (harness.Live, error) {
	return harness.Live{Pods: make([]harness.LivePod, p.now())}, nil
}

func (p *pods) WaitPods(ctx context.Context, n int) error {
	p.calls = append(p.calls, fmt.Sprintf("wait %d", n))
	for p.now() != n {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
	return nil
}

// bounded has an HPA with bounds, and reaches them at once.
type bounded struct {
	*pods
	err error
}

func (b bounded) SetHPABounds(_ context.Context, lower, upper int) error {
	b.calls = append(b.calls, fmt.Sprintf("bounds %d %d", lower, upper))
	b.now = func() int { return upper }
	return b.err
}

// burner has pods that can burn CPU; when that ends, the HPA scales in to 2.
type burner struct{ *pods }

func (b *burner) BurnCPU(_ context.Context, millicores int) (func(context.Context) error, error) {
	b.calls = append(b.calls, fmt.Sprintf("burn %d", millicores))
	return func(context.Context) error {
		b.calls = append(b.calls, "end burn")
		b.now = func() int { return 2 }
		return nil
	}, nil
}

// driven has an HPA that follows the metric: at once, as it did before.
type driven struct {
	*pods
	err error
}

func (d driven) SetMetric(_ context.Context, value int) error {
	d.calls = append(d.calls, fmt.Sprintf("set %d", value))
	d.now = func() int { return 2 }
	return d.err
}

func (d driven) WaitMetric(_ context.Context, value int) error {
	d.calls = append(d.calls, fmt.Sprintf("see %d", value))
	return d.err
}

func setup(t *testing.T, experiment string) harness.Setup {
	t.Helper()
	e, err := Builtin(experiment)
	if err != nil {
		t.Fatal(err)
	}
	return e.Base
}

func six() int { return 6 }

func TestScaleInByBounds(t *testing.T) {
	d := &bounded{pods: &pods{now: six}}
	sc := &HPAScaleIn{}
	s := setup(t, "scale-in")
	if err := sc.Prepare(t.Context(), s, d); err != nil {
		t.Fatal(err)
	}
	if _, err := sc.Run(t.Context(), s, d); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(d.calls, ", "), "bounds 2 2, wait 2"; got != want {
		t.Errorf("calls %q, want %q", got, want)
	}
}

func TestScaleInByMetric(t *testing.T) {
	d := driven{pods: &pods{now: six}}
	sc := &HPAScaleIn{}
	s := setup(t, "scale-in-metric")
	if err := sc.Prepare(t.Context(), s, d); err != nil {
		t.Fatal(err)
	}
	did, err := sc.Run(t.Context(), s, d)
	if err != nil || did != (harness.Disruption{Deleted: 4}) {
		t.Fatalf("did %+v, error %v; want 4 deleted", did, err)
	}
	// Twice what six pods are for, half of what two are for.
	if got, want := strings.Join(d.calls, ", "), "see 1200, set 100, wait 2"; got != want {
		t.Errorf("calls %q, want %q", got, want)
	}
}

func TestScaleInByCPU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		// The HPA has scaled in before it sees the burn, and comes back later.
		d := &burner{&pods{now: func() int {
			if time.Since(start) < 20*time.Second {
				return 2
			}
			return 6
		}}}
		sc := &HPAScaleIn{}
		s := setup(t, "scale-in-cpu")
		if err := sc.Prepare(t.Context(), s, d); err != nil {
			t.Fatal(err)
		}
		if held := time.Since(start) - 20*time.Second; held < holdTime {
			t.Errorf("prepared after 6 pods were held for %s, want %s", held, holdTime)
		}
		if _, err := sc.Run(t.Context(), s, d); err != nil {
			t.Fatal(err)
		}
		if got, want := strings.Join(d.calls, ", "), "burn 100, wait 6, burn 100, end burn, wait 2"; got != want {
			t.Errorf("calls %q, want %q", got, want)
		}
	})
}

func TestCPUPathIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		n := 5
		d := &burner{&pods{now: func() int { n = 11 - n; return n }}} // 6, 5, 6 ...: never held
		s := setup(t, "scale-in-cpu")
		err := (&HPAScaleIn{}).Prepare(t.Context(), s, d)
		if !errors.Is(err, context.DeadlineExceeded) ||
			!strings.HasPrefix(err.Error(), "wait until the HPA holds 6 pods: scenario.limit (5m0s) is over: ") {
			t.Errorf("got %v", err)
		}
		if took := time.Since(start); took > s.Scenario.Limit.Duration+time.Second {
			t.Errorf("took %s of fake time", took)
		}
	})
}

func TestScenarioErrors(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	bounds, metric, cpu := setup(t, "scale-in"), setup(t, "scale-in-metric"), setup(t, "scale-in-cpu")
	stuck := func() *pods { return &pods{now: six} }

	for _, c := range []struct {
		name string
		ctx  context.Context
		do   func(context.Context, *HPAScaleIn) error
		want string
	}{
		{"no bounds", t.Context(),
			func(ctx context.Context, sc *HPAScaleIn) error { _, err := sc.Run(ctx, bounds, stuck()); return err },
			"this deployment's HPA has no bounds to set: choose scenario.drive cpu"},
		{"no metric", t.Context(),
			func(ctx context.Context, sc *HPAScaleIn) error { return sc.Prepare(ctx, metric, stuck()) },
			"this deployment's HPA follows no metric that can be set: choose scenario.drive bounds"},
		{"no metric to lower", t.Context(),
			func(ctx context.Context, sc *HPAScaleIn) error { _, err := sc.Run(ctx, metric, stuck()); return err },
			"this deployment's HPA follows no metric that can be set: choose scenario.drive bounds"},
		{"metric not seen", t.Context(),
			func(ctx context.Context, sc *HPAScaleIn) error {
				return sc.Prepare(ctx, metric, driven{stuck(), errors.New("no API")})
			},
			"wait until the HPA follows the metric: no API"},
		{"metric refused", t.Context(),
			func(ctx context.Context, sc *HPAScaleIn) error {
				_, err := sc.Run(ctx, metric, driven{stuck(), errors.New("conflict")})
				return err
			},
			"lower the metric: conflict"},
		{"no burn", t.Context(),
			func(ctx context.Context, sc *HPAScaleIn) error { return sc.Prepare(ctx, cpu, stuck()) },
			"this deployment's pods cannot be made to use CPU: choose scenario.drive bounds"},
		{"not prepared", t.Context(),
			func(ctx context.Context, sc *HPAScaleIn) error {
				_, err := sc.Run(ctx, cpu, &burner{stuck()})
				return err
			},
			"no CPU burn to end: scenario.drive cpu has to be prepared before it runs"},
		{"bounds refused", t.Context(),
			func(ctx context.Context, sc *HPAScaleIn) error {
				_, err := sc.Run(ctx, bounds, &bounded{stuck(), errors.New("conflict")})
				return err
			},
			"set HPA bounds: conflict"},
		{"canceled", canceled,
			func(ctx context.Context, sc *HPAScaleIn) error {
				_, err := sc.Run(ctx, bounds, stubborn{stuck()})
				return err
			},
			"wait for 2 pods: context canceled"},
		{"over the limit", late,
			func(ctx context.Context, sc *HPAScaleIn) error {
				_, err := sc.Run(ctx, bounds, stubborn{stuck()})
				return err
			},
			"wait for 2 pods: scenario.limit (2m0s) is over: context deadline exceeded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.do(c.ctx, &HPAScaleIn{}); err == nil || err.Error() != c.want {
				t.Errorf("got %v\nwant %s", err, c.want)
			}
		})
	}
}

// stubborn has an HPA that takes new bounds and does nothing.
type stubborn struct{ *pods }

func (stubborn) SetHPABounds(context.Context, int, int) error { return nil }

func TestCheckNamesEveryWrongField(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(*harness.Setup)
		want string
	}{
		{"to none", func(s *harness.Setup) { s.Scenario.To = 0 },
			"scenario.to is 0: want at least 1 and less than workload.replicas (6)"},
		{"to as many", func(s *harness.Setup) { s.Scenario.To = 6 },
			"scenario.to is 6: want at least 1 and less than workload.replicas (6)"},
		{"drive", func(s *harness.Setup) { s.Scenario.Drive = "memory" },
			`scenario.drive is "memory": want bounds, metric or cpu`},
		{"limit", func(s *harness.Setup) { s.Scenario.Limit = harness.Dur(30 * time.Second) },
			"scenario.limit is 30s: want more than workload.gracePeriod (30s)"},
		{"cpu request", func(s *harness.Setup) { s.Scenario.Drive = harness.DriveCPU; s.Workload.CPURequest = "1Gi" },
			`workload.cpuRequest is "1Gi": want 1m to 64, such as 50m or 0.5`},
		{"behaviour by bounds", func(s *harness.Setup) { s.Workload.HPA.Stabilization = harness.Dur(time.Minute) },
			"workload.hpa has no effect when scenario.drive is bounds: want metric or cpu"},
		{"behaviour takes longer than the limit", func(s *harness.Setup) {
			s.Scenario.Drive = harness.DriveMetric
			s.Workload.HPA = harness.HPABehavior{Pods: 2, Period: harness.Dur(time.Minute), Stabilization: harness.Dur(30 * time.Second)}
		},
			"scenario.limit is 2m0s: want more than workload.gracePeriod (30s) and workload.hpa (1m30s)"},
		{"all at once", func(s *harness.Setup) { s.Scenario.To, s.Scenario.Drive = 9, "" },
			"scenario.to is 9: want at least 1 and less than workload.replicas (6)\n" +
				`scenario.drive is "": want bounds, metric or cpu`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := setup(t, "scale-in")
			c.edit(&s)
			if err := (&HPAScaleIn{}).Check(s); err == nil || err.Error() != c.want {
				t.Errorf("got %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestMillicores(t *testing.T) {
	for quantity, want := range map[string]int{"50m": 50, "1": 1000, "0.5": 500, "64": 64000} {
		if got, err := millicores(quantity); err != nil || got != want {
			t.Errorf("millicores(%q) = %d, %v; want %d", quantity, got, err, want)
		}
	}
	for _, quantity := range []string{"", "m", "0", "-1", "NaN", "Inf", "65", "1e9"} {
		if got, err := millicores(quantity); err == nil {
			t.Errorf("millicores(%q) = %d, want an error", quantity, got)
		}
	}
}
