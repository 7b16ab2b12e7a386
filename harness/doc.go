// Package harness is the heart of lameduck: the words of the domain and the
// order in which one trial happens.
//
//	Experiment --Expand--> Plan --Runner--> TrialRecord per trial
//
// A Setup is one trial in exact words: workload, load balancer, load, cluster
// settings, scenario and faults. A Mitigation edits it (EditableFields), a
// Scenario acts on what was deployed, a Fault breaks something meanwhile.
//
// Everything that touches the world is behind a small interface declared here
// (World and Deployment for the cluster, with what scenarios and faults ask of a
// deployment; Attacker for the load, Store for the disk) and implemented in
// another package. The package itself imports neither another package of
// lameduck nor a third-party one, so that its rules can be read, and tested,
// without a cluster.
//
// Times inside a trial are offsets on one monotonic clock (see Clock); only
// TrialResult.Anchor ties them to the wall clock.
package harness
