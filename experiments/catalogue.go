package experiments

import (
	"embed"
	"fmt"
	"path"
	"slices"
	"strings"

	"lameduck/experiments/form"
	"lameduck/harness"
)

//go:embed builtin/*.yaml
var builtins embed.FS

// Names are the names of the built-in experiments, sorted.
func Names() []string {
	files, err := builtins.ReadDir("builtin")
	if err != nil {
		panic(err) // it is part of the binary
	}
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f.Name(), ".yaml"))
	}
	slices.Sort(names)
	return names
}

// Builtin returns a built-in experiment. The error for an unknown name lists
// those that exist.
func Builtin(name string) (harness.Experiment, error) {
	doc, err := builtin(name)
	return doc.Experiment, err
}

func builtin(name string) (form.Document, error) {
	if !slices.Contains(Names(), name) {
		return form.Document{}, fmt.Errorf("experiment %q: want one of %s", name, strings.Join(Names(), ", "))
	}
	file := path.Join("builtin", name+".yaml")
	data, err := builtins.ReadFile(file)
	if err != nil {
		return form.Document{}, err
	}
	return form.Parse(file, data, Words())
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
