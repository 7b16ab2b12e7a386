// Package elb is the AWS side of the load balancer stand-in: load balancers
// with nodes, listeners and rules, and target groups with their targets'
// states, health checks and the time that changes take to reach each node.
// What is asked of it is named as in the ELBv2 API.
//
// There are two halves:
//
//   - The control plane (service.go, groups.go, targets.go, states.go, check.go,
//     balancer.go) is behind one mutex, Service.mu: API calls, timers and the
//     outcomes of health checks. Lags and delays are timers that carry an epoch,
//     so that one which fires after the thing it was for has changed does nothing.
//   - Each node routes by snapshots (rules.go, table.go) that the control plane
//     replaces and never changes. A request takes no lock.
//
// A node sees a target through its own nodeTarget: pool of connections, health,
// and whether a registration or deregistration has reached it.
//
// Where a comment names a source, "user guide" is AWS's for Application Load
// Balancers and "API reference" that of ELBv2. The grades are: D documented, O
// observed and reported by users, I inferred, U unknown and therefore a setting.
package elb
