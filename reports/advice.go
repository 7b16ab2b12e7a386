package reports

import (
	"fmt"

	"lameduck/harness"
)

// editAdvice are sentences about what the diff alone does not tell.
func editAdvice(from harness.Setup, m harness.Mitigation) []string {
	to, err := m.Apply(from)
	if err != nil {
		return nil
	}
	advice := applicationAdvice(from.Workload, to.Workload)
	add := func(changed bool, text string) {
		if changed {
			advice = append(advice, text)
		}
	}
	was, is := from.LoadBalancer, to.LoadBalancer
	add(from.Workload.App == nil && (from.Workload.KeepAlive != to.Workload.KeepAlive || was.IdleTimeout != is.IdleTimeout), keepAliveAdvice(to))
	add(was.TargetType != is.TargetType && is.TargetType == harness.TargetIP,
		"IP targets need pod addresses that the load balancer can reach, as the VPC CNI of EKS gives them.")
	add(!was.ReadinessGate && is.ReadinessGate, "A pod gets its readiness gate when it is created: replace the pods once the namespace has the label.")
	add(was.ExternalTrafficPolicy != is.ExternalTrafficPolicy && is.ExternalTrafficPolicy == harness.TrafficLocal,
		"A node without a ready pod is no healthy target any more: spread the pods over the nodes.")
	add(from.Cluster != to.Cluster, "kube-proxy's configuration is the whole cluster's, and applies once each kube-proxy has restarted.")
	add(from.Scenario.KeepOld != to.Scenario.KeepOld,
		fmt.Sprintf("Let what deploys keep the old pods for %s after the cutover (Argo Rollouts: scaleDownDelaySeconds).", to.Scenario.KeepOld))
	add(from.Scenario.HoldNode != to.Scenario.HoldNode,
		fmt.Sprintf("Let a node's machine go on for %s after its last pod is gone (EC2 Auto Scaling: a lifecycle hook at termination).", to.Scenario.HoldNode))
	return advice
}

// applicationAdvice is about what the application has to do by itself, and the
// time that it has.
func applicationAdvice(was, is harness.Workload) []string {
	var advice []string
	begin := "SIGTERM"
	if is.PreStopSleep.Duration > 0 && is.PreStopBy == harness.PreStopHTTP {
		begin = "the call of the preStop hook"
	}
	if is.PreStopSleep.Duration > 0 && (is.PreStopSleep != was.PreStopSleep || is.PreStopBy != was.PreStopBy) {
		switch is.PreStopBy {
		case harness.PreStopHTTP:
			advice = append(advice, fmt.Sprintf("In your own application, serve the path of the hook, and answer it only after %s.", is.PreStopSleep))
		case harness.PreStopSleep:
			advice = append(advice, "The `sleep` action needs Kubernetes 1.30, and can not be longer than the grace period.")
		default:
			advice = append(advice, fmt.Sprintf("The `sleep` action needs Kubernetes 1.30; before that use `exec: {command: [\"sleep\", \"%s\"]}`, "+
				"which is also what was measured here.", seconds(is.PreStopSleep)))
		}
	}
	if is.OnSIGTERM != was.OnSIGTERM || is.SIGTERMWait != was.SIGTERMWait {
		advice = append(advice, fmt.Sprintf("The argument is the built-in application's. In your own, handle SIGTERM so that it %s.", sigtermText(is)))
	}
	if is.CloseWhileDraining && !was.CloseWhileDraining {
		advice = append(advice, fmt.Sprintf("In your own application, say `Connection: close` in every answer from %s on.", begin))
	}
	if is.FailReadiness && !was.FailReadiness {
		advice = append(advice, fmt.Sprintf("In your own application, let the path of the readiness probe answer 503 from %s on.", begin))
	}
	if busy := is.PreStopSleep.Duration + is.SIGTERMWait.Duration; busy > 0 {
		left := is.GracePeriod.Duration - busy
		if left <= 0 && is.GracePeriod.Duration > 0 {
			advice = append(advice, fmt.Sprintf("The grace period (%s) ends before the waiting (%s) does: requests in flight are cut by SIGKILL. Make it longer.",
				is.GracePeriod, busy))
		} else if left > 0 {
			advice = append(advice, fmt.Sprintf("The waiting counts against the grace period: %s of it are left to finish requests. Raise it if yours take longer.", left))
		}
	}
	return advice
}

// keepAliveAdvice is about who closes an idle connection first. When that is the
// application, it may close one that the load balancer is about to use.
func keepAliveAdvice(s harness.Setup) string {
	keepAlive, idle := s.Workload.KeepAlive, s.LoadBalancer.IdleTimeout
	if keepAlive.Duration > idle.Duration {
		return fmt.Sprintf("In your own application, keep idle connections longer than the load balancer does (%s); here it was %s.", idle, keepAlive)
	}
	return fmt.Sprintf("In your own application, idle connections are kept for %s, which is not longer than the load balancer's %s: it may close one that is about to be used.",
		keepAlive, idle)
}

func sigtermText(w harness.Workload) string {
	switch w.OnSIGTERM {
	case harness.SIGTERMWait:
		return fmt.Sprintf("goes on serving, new connections too, for %s, and only then stops listening and finishes what is in flight", w.SIGTERMWait)
	case harness.SIGTERMDrain:
		return "stops listening, finishes what is in flight, and exits"
	case harness.SIGTERMIgnore:
		return "goes on serving"
	}
	return "exits at once"
}
