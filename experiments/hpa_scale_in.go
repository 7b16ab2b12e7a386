package experiments

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"lameduck/harness"
)

// HPAScaleInName is the name of the scenario HPAScaleIn.
const HPAScaleInName = "hpa-scale-in"

// HPAScaleIn lets the HorizontalPodAutoscaler take the workload from
// Workload.Replicas pods to Scenario.To, and ends when the last of the others
// is gone.
//
// With DriveBounds the deployment must have an HPA that holds Workload.Replicas
// (harness.HPABounds); its bounds are lowered to Scenario.To. With the others it
// must have one between Scenario.To and Workload.Replicas, and what counts is
// what the controller makes of its metric. With DriveMetric that is one whose
// value can be set (harness.MetricDriver); it is lowered. With DriveCPU it is the
// CPU, with a target below 100 % of the request (harness.CPUBurn); each pod is made
// to use the CPU it asked for before the attack, and the scenario ends that.
type HPAScaleIn struct {
	// burns holds what ends the burn that Prepare began, by deployment.
	burns sync.Map
}

// About implements harness.Scenario.
func (*HPAScaleIn) About() string {
	return "the HPA scales in from workload.replicas to scenario.to, driven by its bounds, a metric or CPU"
}

// Check implements harness.Scenario.
func (*HPAScaleIn) Check(s harness.Setup) error {
	w, spec := s.Workload, s.Scenario
	// A pod may use up its grace period, and the limit has to leave time for
	// the HPA besides.
	atLeast := []part{grace(s)}
	if spec.Drive != harness.DriveBounds {
		atLeast = append(atLeast, part{"workload.hpa", harness.Dur(w.HPA.Takes(w.Replicas - spec.To))})
	}
	errs := checkSpec(s, []string{"to", "drive"}, atLeast...)
	if spec.To < 1 || spec.To >= w.Replicas {
		errs = append(errs, fmt.Errorf("scenario.to is %d: want at least 1 and less than workload.replicas (%d)", spec.To, w.Replicas))
	}
	switch spec.Drive {
	case harness.DriveBounds:
		// The controller goes to the bounds in one step whatever the behaviour is
		// (pkg/controller/podautoscaler/horizontal.go, reconcileAutoscaler).
		if s.Workload.HPA != (harness.HPABehavior{}) {
			errs = append(errs, fmt.Errorf("workload.hpa has no effect when scenario.drive is %s: want %s or %s", harness.DriveBounds, harness.DriveMetric, harness.DriveCPU))
		}
	case harness.DriveMetric:
	case harness.DriveCPU:
		if _, err := millicores(w.CPURequest); err != nil {
			errs = append(errs, fmt.Errorf("workload.cpuRequest is %q: %w", w.CPURequest, err))
		}
	default:
		errs = append(errs, fmt.Errorf("scenario.drive is %q: want %s, %s or %s", spec.Drive, harness.DriveBounds, harness.DriveMetric, harness.DriveCPU))
	}
	return errors.Join(errs...)
}

// Prepare implements harness.Preparer: it returns when the HPA holds all pods
// because of its metric.
func (sc *HPAScaleIn) Prepare(ctx context.Context, s harness.Setup, d harness.Deployment) error {
	ctx, cancel := context.WithTimeout(ctx, s.Scenario.Limit.Duration)
	defer cancel()
	switch s.Scenario.Drive {
	case harness.DriveMetric:
		return prepareMetric(ctx, s, d)
	case harness.DriveCPU:
		return sc.prepareCPU(ctx, s, d)
	}
	return nil
}

// prepareMetric needs to set nothing: a deployment begins with enough for all.
func prepareMetric(ctx context.Context, s harness.Setup, d harness.Deployment) error {
	driver, err := metricDriver(d)
	if err != nil {
		return err
	}
	if err := driver.WaitMetric(ctx, s.MetricBefore()); err != nil {
		return fail(ctx, s, "wait until the HPA follows the metric", err)
	}
	return nil
}

func metricDriver(d harness.Deployment) (harness.MetricDriver, error) {
	driver, ok := d.(harness.MetricDriver)
	if !ok {
		return nil, fmt.Errorf("this deployment's HPA follows no metric that can be set: choose scenario.drive %s", harness.DriveBounds)
	}
	return driver, nil
}

// prepareCPU makes the pods use CPU and returns when the HPA has held all of
// them for a while.
func (sc *HPAScaleIn) prepareCPU(ctx context.Context, s harness.Setup, d harness.Deployment) error {
	burner, ok := d.(harness.CPUBurn)
	if !ok {
		return fmt.Errorf("this deployment's pods cannot be made to use CPU: choose scenario.drive %s", harness.DriveBounds)
	}
	amount, err := millicores(s.Workload.CPURequest)
	if err != nil {
		return fmt.Errorf("workload.cpuRequest is %q: %w", s.Workload.CPURequest, err)
	}
	var stop func(context.Context) error
	// A burn is of the pods that are there, so pods that the HPA took away and
	// brought back need a new one; it covers all of them.
	burn := func() error {
		var err error
		stop, err = burner.BurnCPU(ctx, amount)
		return err
	}
	if err := burn(); err != nil {
		return fail(ctx, s, "burn CPU", err)
	}
	if err := waitHeld(ctx, s.Workload.Replicas, d, burn); err != nil {
		return fail(ctx, s, fmt.Sprintf("wait until the HPA holds %d pods", s.Workload.Replicas), err)
	}
	sc.burns.Store(d, stop)
	return nil
}

// Run implements harness.Scenario.
func (sc *HPAScaleIn) Run(ctx context.Context, s harness.Setup, d harness.Deployment) (harness.Disruption, error) {
	did := harness.Disruption{Deleted: s.Workload.Replicas - s.Scenario.To}
	if err := sc.begin(ctx, s, d); err != nil {
		return did, err
	}
	if err := d.WaitPods(ctx, s.Scenario.To); err != nil {
		return did, fail(ctx, s, fmt.Sprintf("wait for %d pods", s.Scenario.To), err)
	}
	return did, nil
}

// begin gives the HPA its reason to scale in.
func (sc *HPAScaleIn) begin(ctx context.Context, s harness.Setup, d harness.Deployment) error {
	switch s.Scenario.Drive {
	case harness.DriveMetric:
		driver, err := metricDriver(d)
		if err != nil {
			return err
		}
		if err := driver.SetMetric(ctx, s.MetricAfter()); err != nil {
			return fail(ctx, s, "lower the metric", err)
		}
		return nil
	case harness.DriveCPU:
		stop, ok := sc.burns.LoadAndDelete(d)
		if !ok {
			return errors.New("no CPU burn to end: scenario.drive cpu has to be prepared before it runs")
		}
		if err := stop.(func(context.Context) error)(ctx); err != nil {
			return fail(ctx, s, "end CPU burn", err)
		}
		return nil
	}
	hpa, ok := d.(harness.HPABounds)
	if !ok {
		return fmt.Errorf("this deployment's HPA has no bounds to set: choose scenario.drive %s", harness.DriveCPU)
	}
	if err := hpa.SetHPABounds(ctx, s.Scenario.To, s.Scenario.To); err != nil {
		return fail(ctx, s, "set HPA bounds", err)
	}
	return nil
}

// holdTime is how long the HPA must leave the pods alone before the attack.
// Two scrapes of metrics-server are 30 s apart at most (its default
// --metric-resolution is 15s), so by then the HPA has seen the burn.
const (
	holdTime = 30 * time.Second
	holdPoll = time.Second
)

// waitHeld waits until n pods were there at every look for holdTime. Any other
// number starts the time anew, once there are n again and burn has been called;
// so does a look that fails, as one can while a pod goes away.
func waitHeld(ctx context.Context, n int, d harness.Deployment, burn func() error) error {
	tick := time.NewTicker(holdPoll)
	defer tick.Stop()
	for since := time.Now(); time.Since(since) < holdTime; {
		live, err := d.Observe(ctx)
		if err != nil || len(live.Pods) != n {
			if werr := d.WaitPods(ctx, n); werr != nil {
				return errors.Join(werr, err)
			}
			if err := burn(); err != nil {
				return err
			}
			since = time.Now()
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-tick.C:
		}
	}
	return nil
}

// millicores reads a CPU request as Kubernetes writes it: 50m, 1 or 0.5.
func millicores(quantity string) (int, error) {
	number, scale := quantity, 1000.0
	if milli, ok := strings.CutSuffix(quantity, "m"); ok {
		number, scale = milli, 1
	}
	v, err := strconv.ParseFloat(number, 64)
	if m := v * scale; err == nil && m >= 1 && m <= 64000 {
		return int(m), nil
	}
	return 0, errors.New("want 1m to 64, such as 50m or 0.5")
}
