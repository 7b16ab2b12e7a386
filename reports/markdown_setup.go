package reports

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"lameduck/harness"
)

// environment says what was run on what, and how to do it again.
func (md *markdown) environment() error {
	run, env := md.r.Run, md.r.Run.Environment
	s := run.Experiment.Base
	md.printf("## Environment, and how to reproduce\n\n```sh\n%s\n```\n\n", reproduce(run))
	items := []string{
		fmt.Sprintf("lameduck %s, run %s, record %s, started %s", run.Tool, run.ID, md.r.Name, run.Started),
		fmt.Sprintf("cluster: %s, Kubernetes %s, %s, kernel %s, %s, %s", env.Provider, env.Kubernetes, count(env.Nodes, "node"),
			env.Kernel, count(env.Cores, "core"), env.OS),
		"load: " + loadText(s.Load),
		"workload: " + workloadText(s.Workload),
		fmt.Sprintf("load balancer: idle timeout %s, deregistration delay %s", s.LoadBalancer.IdleTimeout, s.LoadBalancer.DeregistrationDelay),
		"scenario: " + scenarioText(s),
	}
	if len(run.Experiment.FaultSets) == 0 && len(s.Faults) > 0 {
		items = append(items, "faults in every trial: "+faultsText(s.Faults))
	}
	for _, set := range run.Experiment.FaultSets {
		items = append(items, fmt.Sprintf("faults %s: %s", set.Name, faultsText(set.Faults)))
	}
	for _, name := range slices.Sorted(maps.Keys(env.Details)) {
		items = append(items, name+": "+env.Details[name])
	}
	md.list(items)
	return nil
}

func loadText(l harness.Load) string {
	parts := []string{fmt.Sprintf("%d requests per second in an open loop, client timeout %s", l.Rate, l.Timeout)}
	add := func(is bool, format string, args ...any) {
		if is {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(l.LongLived > 0, "%s", count(l.LongLived, "long-lived connection"))
	add(l.BodySize > 0, "bodies of %d bytes", l.BodySize)
	add(l.HTTP2, "HTTP/2")
	add(l.Streams > 0, "%s besides", count(l.Streams, "endless answer"))
	return fmt.Sprintf("%s; %s before the scenario and %s after it", strings.Join(parts, ", "), l.Baseline, l.Settle)
}

func workloadText(w harness.Workload) string {
	pods := count(w.Replicas, "pod")
	grace := "grace period " + w.GracePeriod.String()
	if w.GracePeriod.Duration == 0 {
		grace = "grace period as in its manifests"
	}
	switch {
	case w.App != nil && w.App.Image != "":
		return fmt.Sprintf("%s of the image %s, %s", pods, w.App.Image, grace)
	case w.App != nil:
		return fmt.Sprintf("%s of manifests of your own, Service %s, %s", pods, w.App.Service, grace)
	}
	return fmt.Sprintf("%s, on SIGTERM %s, %s, response time p50 %s, p99 %s, %.3g %% of requests %s",
		pods, w.OnSIGTERM, grace, w.ResponseTime.P50, w.ResponseTime.P99, 100*w.ResponseTime.SlowShare, w.ResponseTime.Slow)
}

// scenarioText names the scenario and the parameters that it has.
func scenarioText(s harness.Setup) string {
	spec := s.Scenario
	text := spec.Name
	add := func(is bool, format string, args ...any) {
		if is {
			text += fmt.Sprintf(format, args...)
		}
	}
	add(spec.To > 0, " from %d to %s", s.Workload.Replicas, count(spec.To, "pod"))
	add(spec.Drive != "", ", driven by %s", spec.Drive)
	add(spec.Shift != "", ", traffic moved by %s", spec.Shift)
	add(spec.KeepOld.Duration > 0, ", the old pods kept for %s after that", spec.KeepOld)
	add(spec.Pods > 0, ", %s killed", count(spec.Pods, "pod"))
	add(spec.HoldNode.Duration > 0, ", the empty node kept for %s", spec.HoldNode)
	add(spec.Length.Duration > 0, ", nothing is done for %s", spec.Length)
	return text
}

// faultsText lists what is broken.
func faultsText(faults []harness.Fault) string {
	if len(faults) == 0 {
		return "nothing is broken"
	}
	var all []string
	for _, f := range faults {
		text := string(f.Kind)
		if f.Share > 0 {
			text += fmt.Sprintf(" %.3g %%", 100*f.Share)
		}
		if f.Lag.Max > 0 {
			text += " " + f.Lag.String()
		}
		if f.Every.Duration > 0 {
			text += " but for one call in " + f.Every.String()
		}
		if f.For.Duration > 0 {
			text += " for " + f.For.String()
		}
		all = append(all, text)
	}
	return joinAnd(all)
}

// reproduce is one command that starts the run again.
func reproduce(run harness.Run) string {
	if run.Command != "" {
		return run.Command
	}
	return "lameduck run " + run.Experiment.Name
}
