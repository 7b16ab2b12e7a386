package main

import (
	"errors"
	"fmt"
	"strings"

	"lameduck/experiments"
	"lameduck/harness"
)

// checkObjects finds what is wrong with the objects that the trials of a plan
// create, once for each cell. source is where the experiment is from.
func checkObjects(source string, plan harness.Plan, objects describe) error {
	seen := make(map[harness.Cell]bool)
	said := make(map[string]bool)
	var errs []error
	for _, t := range plan.Trials {
		if seen[t.Cell] {
			continue
		}
		seen[t.Cell] = true
		if _, err := objects(t); err != nil && !said[err.Error()] {
			said[err.Error()] = true
			errs = append(errs, fmt.Errorf("%s: %s", source, inFile(err)))
		}
	}
	return errors.Join(errs...)
}

// inFile is an error about the objects of a setup with the fields as an
// experiment file has them.
func inFile(err error) string {
	const field = "workload.app."
	text := strings.ReplaceAll(err.Error(), field, "spec.workload.")
	if strings.HasPrefix(err.Error(), field) {
		return text
	}
	return "spec.workload.manifests: " + text
}

// minNodes is how many nodes there must be for one to be disturbed: the control
// target is on another.
const minNodes = 2

// checkNodes refuses a cluster that is too small for what happens to one of its
// nodes.
func checkNodes(e harness.Experiment, nodes int) error {
	if nodes >= minNodes {
		return nil
	}
	what := ""
	if x, ok := experiments.Scenarios()[e.Base.Scenario.Name].(harness.Exclusive); ok && x.Exclusive() {
		what = "scenario " + e.Base.Scenario.Name
	}
	sets := append([]harness.FaultSet{{Faults: e.Base.Faults}}, e.FaultSets...)
	for _, set := range sets {
		for _, f := range set.Faults {
			if f.OfNode() {
				what = "fault " + string(f.Kind)
			}
		}
	}
	if what == "" {
		return nil
	}
	return fmt.Errorf("%s concerns one node of several, but the cluster has %d: want %d or more (--nodes, spec.cluster.nodes)", what, nodes, minNodes)
}
