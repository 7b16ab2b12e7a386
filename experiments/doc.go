// Package experiments is the catalogue: what can be asked of lameduck by name.
//
//	Load(path)       -> harness.Experiment   a file, see package form, or a built-in one
//	Builtin(name)    -> harness.Experiment   builtin/NAME.yaml
//	Mitigation(name) -> harness.Mitigation   families such as prestop-sleep-10s
//	Scenarios()      -> harness.Scenario     what is done under load
//
// Experiments and mitigations are data; only scenarios have code, and they act
// on a deployment through the small interfaces in package harness alone. No
// cluster is needed to read, expand or test anything here.
package experiments
