package harness

import (
	"errors"
	"fmt"
	"time"
)

// validate checks one resolved setup against what Kubernetes and the load
// generator accept.
func (s Setup) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	w, l := s.Workload, s.Load
	check(w.Replicas >= 1 && w.Replicas <= 500, "workload.replicas is %d: want 1..500", w.Replicas)
	check((w.App != nil && w.GracePeriod.Duration == 0) || w.GracePeriod.Duration >= time.Second && w.GracePeriod.Duration%time.Second == 0,
		"workload.gracePeriod is %s: want whole seconds, at least 1s", w.GracePeriod)
	check(w.PreStopSleep.Duration >= 0, "workload.preStopSleep is %s: want 0s or more", w.PreStopSleep)
	check(w.PreStopBy != PreStopSleep || w.PreStopSleep.Duration <= w.GracePeriod.Duration || w.GracePeriod.Duration == 0,
		"workload.preStopSleep is %s by the sleep action: want at most workload.gracePeriod (%s), the API server refuses more (KEP-3960)", w.PreStopSleep, w.GracePeriod)
	check(w.PreStopBy == "" || w.PreStopSleep.Duration > 0, "workload.preStopBy is %s without workload.preStopSleep: want both", w.PreStopBy)
	check(w.PreStopBy != PreStopHTTP || w.App == nil, "workload.preStopBy is http: it is answered by the built-in application only, want exec or sleep")
	for _, f := range []struct{ name, text string }{
		{"maxSurge", w.MaxSurge}, {"maxUnavailable", w.MaxUnavailable}, {"podDisruptionBudget", w.PodDisruptionBudget},
	} {
		if f.text != "" {
			err := checkPodsOrPercent(f.text)
			check(err == nil, "workload.%s is %w", f.name, err)
		}
	}
	zero := func(text string) bool { return text == "0" || text == "0%" }
	check(!zero(w.MaxSurge) || !zero(w.MaxUnavailable),
		"workload.maxUnavailable is %s with maxSurge %s: want one of them above 0, the API server refuses a rolling update that can not move", w.MaxUnavailable, w.MaxSurge)
	check(w.MinReadySeconds >= 0 && w.MinReadySeconds <= 600, "workload.minReadySeconds is %d: want 0..600", w.MinReadySeconds)
	check((w.HPA.Pods > 0) == (w.HPA.Period.Duration > 0),
		"workload.hpa: pods is %d and period is %s: want both or neither", w.HPA.Pods, w.HPA.Period)
	check(w.HPA.Period.Duration >= 0 && w.HPA.Period.Duration <= 30*time.Minute && w.HPA.Period.Duration%time.Second == 0,
		"workload.hpa.period is %s: want whole seconds, at most 30m (autoscaling/v2, HPAScalingPolicy)", w.HPA.Period)
	check(w.HPA.Stabilization.Duration >= 0 && w.HPA.Stabilization.Duration <= time.Hour && w.HPA.Stabilization.Duration%time.Second == 0,
		"workload.hpa.stabilization is %s: want whole seconds, at most 1h (autoscaling/v2, HPAScalingRules)", w.HPA.Stabilization)
	check((w.OnSIGTERM == SIGTERMWait) == (w.SIGTERMWait.Duration > 0),
		"workload.sigtermWait is %s with onSigterm %q: want more than 0s with %q, and 0s without", w.SIGTERMWait, w.OnSIGTERM, SIGTERMWait)
	check(w.ResponseTime.P50.Duration > 0 && w.ResponseTime.P99.Duration >= w.ResponseTime.P50.Duration,
		"workload.responseTime: p50 is %s and p99 is %s: want 0s < p50 <= p99", w.ResponseTime.P50, w.ResponseTime.P99)
	check(w.ResponseTime.SlowShare >= 0 && w.ResponseTime.SlowShare <= 1,
		"workload.responseTime.slowShare is %g: want 0..1", w.ResponseTime.SlowShare)
	check(l.Rate >= 1 && l.Rate <= 5000, "load.rate is %d: want 1..5000 requests per second", l.Rate)
	check(l.LongLived >= 0 && l.LongLived <= 1000 && (l.LongLived > 0 || l.Connections != ConnectionsLongLived),
		"load.longLived is %d: want 1..1000 connections with connections %s", l.LongLived, ConnectionsLongLived)
	check(l.BodySize >= 0 && l.BodySize <= 1<<20, "load.bodySize is %d: want 0..1048576 bytes", l.BodySize)
	check(l.Streams >= 0 && l.Streams <= 100, "load.streams is %d: want 0..100", l.Streams)
	check(l.Streams == 0 || w.App == nil, "load.streams is %d: want 0 with an application of your own, the built-in one has the path for them", l.Streams)
	check(l.Timeout.Duration >= 100*time.Millisecond, "load.timeout is %s: want at least 100ms", l.Timeout)
	check(l.Baseline.Duration >= time.Second, "load.baseline is %s: want at least 1s", l.Baseline)
	check(l.Settle.Duration >= time.Second, "load.settle is %s: want at least 1s", l.Settle)
	check(l.ControlRate >= 1 && l.ControlRate <= l.Rate, "load.controlRate is %d: want 1..load.rate", l.ControlRate)
	check(s.LoadBalancer.IdleTimeout.Duration >= time.Second && s.LoadBalancer.IdleTimeout.Duration <= 4000*time.Second,
		"loadBalancer.idleTimeout is %s: want 1s..4000s (AWS user guide, idle_timeout.timeout_seconds)", s.LoadBalancer.IdleTimeout)
	check(s.LoadBalancer.DeregistrationDelay.Duration >= 0 && s.LoadBalancer.DeregistrationDelay.Duration <= 3600*time.Second,
		"loadBalancer.deregistrationDelay is %s: want 0s..3600s (AWS user guide, deregistration_delay.timeout_seconds)", s.LoadBalancer.DeregistrationDelay)
	check(s.LoadBalancer.DeregistrationLag.Max <= time.Hour, "loadBalancer.deregistrationLag is %s: want at most 1h", s.LoadBalancer.DeregistrationLag)
	check(s.LoadBalancer.RegistrationLag.Max <= time.Minute, "loadBalancer.registrationLag is %s: want at most 1m", s.LoadBalancer.RegistrationLag)
	check(s.LoadBalancer.WeightLag.Max <= 10*time.Minute, "loadBalancer.weightLag is %s: want at most 10m", s.LoadBalancer.WeightLag)
	ip := s.LoadBalancer.TargetType == TargetIP
	check(ip || !s.LoadBalancer.ReadinessGate,
		"loadBalancer.readinessGate: want targetType ip, the controller has gates for those only (its guide, Pod readiness gate)")
	check(!ip || s.LoadBalancer.ExternalTrafficPolicy == "",
		"loadBalancer.externalTrafficPolicy is %s: want targetType instance, IP targets are not reached through a node port", s.LoadBalancer.ExternalTrafficPolicy)
	check(s.Cluster.KubeProxyMode == "" || s.Cluster.KubeProxyMode == KubeProxyIPTables || s.Cluster.KubeProxyMode == KubeProxyNFTables,
		"cluster.kubeProxyMode is %q: want iptables or nftables", s.Cluster.KubeProxyMode)
	check(s.Cluster.KubeProxyMinSyncPeriod.Duration >= 0 && s.Cluster.KubeProxyMinSyncPeriod.Duration <= 30*time.Second,
		"cluster.kubeProxyMinSyncPeriod is %s: want 0s..30s, at most the syncPeriod", s.Cluster.KubeProxyMinSyncPeriod)
	seen := make(map[FaultKind]bool)
	for i, f := range s.Faults {
		if err := f.validate(); err != nil {
			errs = append(errs, fmt.Errorf("faults[%d]: %w", i, err))
		}
		check(!seen[f.Kind], "faults[%d]: %s is there twice: one would undo the other", i, f.Kind)
		seen[f.Kind] = true
		check(f.Kind != FaultPausedAPIServer || f.For.Duration > 0 && f.For.Duration < s.Scenario.Limit.Duration,
			"faults[%d]: for is %s with %s: want more than 0s and less than scenario.limit (%s), a scenario needs the API server",
			i, f.For, f.Kind, s.Scenario.Limit)
	}
	check(!seen[FaultLateDeregistration] || !seen[FaultLostDeregistration],
		"faults: %s and %s: want one of them, one that is lost is never late", FaultLateDeregistration, FaultLostDeregistration)
	for _, wait := range []struct {
		field string
		is    Duration
	}{
		{"load.baseline", l.Baseline}, {"load.settle", l.Settle}, {"load.timeout", l.Timeout},
		{"scenario.keepOld", s.Scenario.KeepOld}, {"scenario.holdNode", s.Scenario.HoldNode}, {"scenario.length", s.Scenario.Length},
	} {
		check(wait.is.Duration <= time.Hour, "%s is %s: want at most 1h", wait.field, wait.is)
	}
	check(s.Scenario.Limit.Duration <= 12*time.Hour, "scenario.limit is %s: want at most 12h", s.Scenario.Limit)
	check(s.Scenario.Limit.Duration > 0, "scenario.limit is %s: want more than 0s", s.Scenario.Limit)
	return errors.Join(errs...)
}
