// Package embedded is the cluster provider that needs nothing but Linux and
// root: a real Kubernetes control plane and real nodes on one machine, without
// Docker, without an image registry and without touching the machine's own
// network.
//
//	Provider.Up
//	  preflight      what is missing, before anything is made
//	  network        namespaces, links, routes          (package network)
//	  cgroups        one group per simulated machine    (package cgroups)
//	  pki, config    certificates and settings as files in the state directory
//	  machines       supervisors and their processes    (package machine)
//	  wait           API, nodes, system objects, load balancer
//
// Each simulated machine ("host") is a network namespace with an address of its
// own. Five kinds exist: vpc (the router), cp (control plane), n1, n2 ... (nodes),
// lb (load balancer) and client (where load comes from; its supervisor also
// publishes the API server and the load balancer on the real loopback).
//
// A cluster is one directory, <StateDir>/<name>, plus kernel objects that carry
// its name: namespaces /run/netns/lameduck-<name>-<host>, cgroups
// lameduck-<name>, and processes that are marked in their environment. Clean
// (package sweep) finds all of these without trusting any file.
//
// The settings in config_*.go are those of an ordinary cluster wherever they
// influence what happens to traffic (kube-proxy's sync periods, endpoint slice
// batching, grace periods); only what costs time or memory on the way to a
// running pod is tuned. Each deviation has its reason beside it.
//
// What can be done to a running cluster, and how it is undone (clusters/powers.go):
//
//   - StopNode takes a node's link down, so that no FIN of what dies gets out, and
//     kills all in its cgroup; a note in its directory tells it from a cluster
//     that broke. StartNode boots it: the same disk, but new cgroups, a new
//     network namespace (no connection tracking, no rules) and new processes.
//   - A link is cut at the router's end. Nobody needs ARP to send to a host, so
//     that one which is cut off is silent instead of unreachable, as in a VPC.
//   - FIN and RST of pods are dropped on their node before connection tracking
//     sees them; the addresses are a set, to which each trial adds its own.
//   - Packets are lost on the router's end of a link, in both directions, where
//     the sender is not told. Both use tables of nftables that are lameduck's own.
//   - A process is paused, wholly or for a share of the time (the slow API server),
//     by the supervisor that is its parent, for as long as the connection lasts on
//     which it was asked for. So it runs again however the asking process ends.
//   - SetKubeProxy writes kube-proxy.yaml and has the supervisor restart the
//     process. It waits until kube-proxy's metrics tell of a sync (its healthz is
//     good also before) and the other mode's rules, which kube-proxy removes at
//     its start, are gone. KubeProxy asks the running processes.
//   - Conntrack reads a node's table by netlink.
//   - MendAll undoes all of it, whoever did it.
//
// Commands of lameduck's that belong to this package: "embedded-host --spec FILE"
// is RunHost, "alb" is started as the process of the host lb, and
// "external-metrics" as one of the control plane's.
package embedded
