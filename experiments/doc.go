// Package experiments is the catalogue: what can be asked of lameduck by name.
//
//	Builtin(name)    -> harness.Experiment   one file each in builtin/, in the form of package form
//	Load(pathOrName) -> harness.Experiment   a file of the user's, or a built-in one
//	Mitigation(name) -> harness.Mitigation   families such as prestop-sleep-10s (families.go)
//	Scenarios()      -> harness.Scenario     what is done under load, one file each
//
// Experiments and mitigations are data; only scenarios have code, and they act
// on a deployment through the small interfaces in package harness alone. Faults
// are kinds of package harness and need nothing here.
//
// No cluster is needed to read, expand or test anything here.
package experiments
