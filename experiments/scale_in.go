package experiments

import (
	"time"

	"lameduck/harness"
)

// scaleIn is the main experiment: an HPA removes four of six pods while
// clients use a load balancer, in instance mode and in IP mode.
func scaleIn() harness.Experiment {
	return harness.Experiment{
		Name:  "scale-in",
		About: "HPA scale-in from 6 pods to 2 behind an instance-mode and an IP-mode load balancer",
		Base: harness.Setup{
			Workload: harness.Workload{
				Replicas:    6,
				OnSIGTERM:   harness.SIGTERMDrain,
				GracePeriod: harness.Dur(30 * time.Second), // the default of Kubernetes
				ResponseTime: harness.ResponseTime{
					P50: harness.Dur(20 * time.Millisecond),
					P99: harness.Dur(80 * time.Millisecond),
					// The kubelet gives a container two more seconds after a preStop hook
					// that used up the grace period. Only a request longer than that can
					// show what the SIGKILL at its end cuts.
					SlowShare: 0.01,
					Slow:      harness.Dur(4 * time.Second),
				},
				// Longer than the load balancer's idle timeout, so that the application
				// never closes a connection that the load balancer is about to use.
				KeepAlive:  harness.Dur(75 * time.Second),
				CPURequest: "50m",
			},
			LoadBalancer: harness.LoadBalancer{
				IdleTimeout:         harness.Dur(60 * time.Second),
				DeregistrationDelay: harness.Dur(30 * time.Second),
				// What users saw of real ones: 3 to 5 s, about 10 s, 15 s or more, 17 s
				// (kubernetes-sigs/aws-load-balancer-controller 1064, 2366 and others).
				DeregistrationLag: harness.DurationRange{Min: 5 * time.Second, Max: 20 * time.Second},
				// Nothing is registered under load. A second lets kube-proxy, which writes
				// its rules once a second at most, come before the first health check: one
				// that fails costs an interval.
				RegistrationLag: harness.DurationRange{Min: time.Second, Max: time.Second},
			},
			Load: harness.Load{
				Rate: 300,
				// Longer than the slow requests, and than the 10 s after which an ALB
				// answers 504 for a target that is silent (AWS user guide,
				// Troubleshooting): the client sees the load balancer's verdict.
				Timeout:     harness.Dur(15 * time.Second),
				Baseline:    harness.Dur(4 * time.Second),
				Settle:      harness.Dur(3 * time.Second),
				ControlRate: 10,
			},
			Scenario: harness.ScenarioSpec{
				Name:  HPAScaleInName,
				To:    2,
				Drive: harness.DriveBounds,
				Limit: harness.Dur(2 * time.Minute),
			},
		},
		TargetTypes: []harness.TargetType{harness.TargetInstance, harness.TargetIP},
		Connections: []harness.Connections{harness.ConnectionsPooled},
		Mitigations: mitigations("none", "prestop-sleep-10s", "sigterm-wait-10s", "prestop-sleep-40s-grace-30s", "prestop-sleep-25s-grace-60s"),
		// In IP mode a target gets requests until its deregistration has reached
		// every node of the load balancer, so a sleep must be longer than that.
		Exclude: []harness.Selector{
			{TargetType: harness.TargetIP, Mitigation: "prestop-sleep-10s"},
			{TargetType: harness.TargetIP, Mitigation: "sigterm-wait-10s"},
			{TargetType: harness.TargetIP, Mitigation: "prestop-sleep-40s-grace-30s"},
			{TargetType: harness.TargetInstance, Mitigation: "prestop-sleep-25s-grace-60s"},
		},
		Repeats: 3,
		// prestop-sleep-40s-grace-30s is there to show what the grace period caps,
		// so nothing is expected of it.
		Expect: []harness.Expectation{
			{Selector: harness.Selector{Mitigation: "none"}, Failed: harness.ExpectSome},
			{Selector: harness.Selector{Mitigation: "prestop-sleep-10s"}, Failed: harness.ExpectNone},
			{Selector: harness.Selector{Mitigation: "sigterm-wait-10s"}, Failed: harness.ExpectNone},
			{Selector: harness.Selector{Mitigation: "prestop-sleep-25s-grace-60s"}, Failed: harness.ExpectNone},
		},
	}
}
