package main

import (
	"time"

	"lameduck/experiments"
	"lameduck/harness"
)

// What steps take on the embedded cluster with two cores, as measured; the times
// that a setup asks for come on top.
const (
	clusterTime   = 30 * time.Second
	deployTime    = 8 * time.Second // objects, pods, healthy targets, warm-up
	removeTime    = 5 * time.Second
	configureTime = 15 * time.Second // kube-proxies of all nodes start anew
	nodeTime      = 20 * time.Second // a node that went comes back
	cpuTime       = 2 * time.Minute  // the burn is held for 30 s, then metrics and HPA follow
	killTime      = 5 * time.Second  // pods are made anew
	// gaveUp is what the kubelet grants after a preStop hook that used up the grace
	// period.
	gaveUp = 2 * time.Second
)

// estimate is about how long a plan takes with so many trials at a time. It
// leaves out trials that have to be repeated.
func estimate(p harness.Plan, parallel int) time.Duration {
	total := clusterTime
	var shared, longest time.Duration
	settings := harness.ClusterSettings{}
	for _, t := range p.Trials {
		if t.Setup.Cluster != settings {
			settings = t.Setup.Cluster
			total += configureTime
		}
		if alone(t.Setup) {
			total += trialTime(t.Setup)
		} else {
			shared += trialTime(t.Setup)
			longest = max(longest, trialTime(t.Setup))
		}
	}
	return total + max(longest, shared/time.Duration(max(1, parallel)))
}

// alone says whether a trial has the cluster for itself.
func alone(s harness.Setup) bool {
	return harness.Alone(s, experiments.Scenarios()[s.Scenario.Name])
}

// trialTime is about how long one trial takes.
func trialTime(s harness.Setup) time.Duration {
	going := stopTime(s.Workload)
	disruption, around := going, deployTime+removeTime
	switch s.Scenario.Name {
	case experiments.BlueGreenName:
		disruption += s.Scenario.KeepOld.Duration
	case experiments.RollingUpdateName:
		// Three or four rounds with the default of 25 %.
		disruption += 4 * (time.Second + s.Workload.StartDelay.Duration + time.Duration(s.Workload.MinReadySeconds)*time.Second)
	case experiments.NodeScaleInName:
		disruption += s.Scenario.HoldNode.Duration
		around += nodeTime
	case experiments.NodeLossName:
		disruption = s.Scenario.Length.Duration
		around += nodeTime
	case experiments.PodKillName:
		disruption = killTime + s.Workload.StartDelay.Duration
	case experiments.BaselineName:
		disruption = s.Scenario.Length.Duration
	case experiments.HPAScaleInName:
		disruption += s.Workload.HPA.Takes(s.Workload.Replicas - s.Scenario.To)
		if s.Scenario.Drive == harness.DriveCPU {
			around += cpuTime
		}
	}
	if s.LoadBalancer.TargetType == harness.TargetIP {
		// The load goes on until the deregistrations have taken effect.
		disruption = max(disruption, s.DeregistrationLag().Max)
	}
	return around + s.Load.Baseline.Duration + disruption + s.Load.Settle.Duration
}

// stopTime is about how long a pod takes from its deletion to its end.
func stopTime(w harness.Workload) time.Duration {
	stopping := w.ResponseTime.P99.Duration
	if w.ResponseTime.SlowShare > 0 {
		stopping = max(stopping, w.ResponseTime.Slow.Duration)
	}
	grace := w.GracePeriod.Duration
	if grace == 0 {
		grace = 30 * time.Second // of Kubernetes
	}
	switch {
	case w.App != nil:
		stopping = time.Second // it is not known
	case w.OnSIGTERM == harness.SIGTERMExit:
		stopping = 0
	case w.OnSIGTERM == harness.SIGTERMWait:
		stopping += w.SIGTERMWait.Duration
	case w.OnSIGTERM == harness.SIGTERMIgnore:
		stopping = grace
	}
	if sleep := w.PreStopSleep.Duration; sleep >= grace {
		return grace + gaveUp
	}
	return min(grace, w.PreStopSleep.Duration+stopping)
}
