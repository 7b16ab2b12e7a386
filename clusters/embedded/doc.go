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
// Commands of lameduck's that belong to this package: "embedded-host --spec FILE"
// is RunHost, and "alb" is started as the process of the host lb.
package embedded
