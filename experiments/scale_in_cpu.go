package experiments

import (
	"time"

	"lameduck/harness"
)

// scaleInCPU is scaleIn with an HPA that follows the CPU metric, as one does
// in production: load falls, and the controller takes the pods away when it
// sees fit.
func scaleInCPU() harness.Experiment {
	e := scaleIn()
	e.Name = "scale-in-cpu"
	e.About = "HPA scale-in from 6 pods to 2 because their CPU use falls"
	// The requests must use so little CPU, compared with what the pods ask
	// for, that two pods are enough for the HPA once the burn has ended.
	e.Base.Workload.CPURequest = "100m"
	e.Base.Load.Rate = 100
	e.Base.Scenario.Drive = harness.DriveCPU
	// metrics-server scrapes, the HPA's sync period and its stabilisation
	// window come before the first pod goes.
	e.Base.Scenario.Limit = harness.Dur(5 * time.Minute)
	e.TargetTypes = []harness.TargetType{harness.TargetInstance}
	e.Mitigations, e.Exclude = mitigations("none", "prestop-sleep-10s"), nil
	e.Expect = []harness.Expectation{
		{Selector: harness.Selector{Mitigation: "none"}, Failed: harness.ExpectSome},
		{Selector: harness.Selector{Mitigation: "prestop-sleep-10s"}, Failed: harness.ExpectNone},
	}
	return e
}
