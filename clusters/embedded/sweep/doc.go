// Package sweep removes everything that belongs to one cluster, whatever state
// it is in, and leaves everything else alone.
//
// It trusts no file of the cluster's, because a kill -9 may come at any moment,
// between a fork and the note of it too. What belongs to a cluster is found by
// what the kernel says: a mark in a process's environment, membership in the
// cluster's cgroups or network namespaces, and names.
//
// Processes go first, since they hold the rest; a process is identified again
// after its pidfd is open, so that a reused PID is never hit.
package sweep
