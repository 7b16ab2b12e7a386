package experiments

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"lameduck/harness"
)

// builtins are made anew on each call, so that a caller may change what it got.
var builtins = map[string]func() harness.Experiment{
	"scale-in":     scaleIn,
	"scale-in-cpu": scaleInCPU,
}

// Names are the names of the built-in experiments, sorted.
func Names() []string { return slices.Sorted(maps.Keys(builtins)) }

// Builtin returns a built-in experiment. The error for an unknown name lists
// those that exist.
func Builtin(name string) (harness.Experiment, error) {
	builtin, ok := builtins[name]
	if !ok {
		return harness.Experiment{}, fmt.Errorf("experiment %q: want one of %s", name, strings.Join(Names(), ", "))
	}
	return builtin(), nil
}

// Scenarios are all scenarios by name, as harness.ScenarioSpec names them.
func Scenarios() map[string]harness.Scenario {
	return map[string]harness.Scenario{
		BaselineName:      Baseline{},
		BlueGreenName:     BlueGreen{},
		HPAScaleInName:    &HPAScaleIn{},
		NodeLossName:      NodeLoss{},
		NodeScaleInName:   NodeScaleIn{},
		PodKillName:       PodKill{},
		RollingUpdateName: RollingUpdate{},
	}
}
