// Package cgroups makes, finds and removes the control groups of a cluster, on
// machines with cgroup v2 as well as with the older v1 hierarchies (alone or
// mixed, "hybrid").
//
// Of each cluster there is one group, below it one for each simulated machine,
// and below that the group "machine" with its own processes; the kubelet makes
// those of the pods. Processes are only in leaves: cgroup v2 demands it.
package cgroups
