// Package machine makes one simulated machine of an embedded cluster: a network
// namespace made elsewhere (package network), and in it a supervisor that is
// PID 1 of a PID namespace and has a mount namespace of its own.
//
//	Start (in lameduck) --fork--> Run (the supervisor) --fork--> components
//
// The two namespaces are what makes cleaning certain. When the supervisor dies,
// however it dies, the kernel kills every process of the machine, and with the
// last of them the mounts go. Nothing is written to the real machine's /run,
// /var/lib and /var/log, because the machine has its own (see Spec.Private).
//
// A component that dies stays dead and is recorded: an experiment must see what
// happened, not a repaired world. The supervisor takes requests (Request) on a
// socket in the machine's network namespace: to restart a component, or to hold it
// stopped while the connection lasts.
package machine
