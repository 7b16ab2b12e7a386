// Package elb is the AWS side of the load balancer stand-in: load balancers
// with nodes, listeners and rules, and target groups with their targets'
// states, health checks and the time that changes take to reach each node.
// What is asked of it is named as in the ELBv2 API.
//
// There are two halves:
//
//   - The control plane is behind one mutex, Service.mu: API calls, timers and
//     the outcomes of health checks. groups.go, registration.go, targets.go,
//     states.go and check.go are about target groups, balancer.go and
//     listeners.go about load balancers. Lags and delays are timers that carry
//     an epoch, so that one which fires when a later call has made it void does
//     nothing.
//   - Each node routes by snapshots that the control plane replaces and never
//     changes: rules.go and conditions.go choose an action, table.go and
//     sticky.go a target. A request takes no lock.
//
// A node sees a target through its own nodeTarget: pool of connections, health,
// and whether a registration or deregistration has reached it.
//
// Where a comment names a source, "user guide" is AWS's for Application Load
// Balancers and "API reference" that of ELBv2. The grades are: D documented, O
// observed and reported by users, I inferred, U unknown and therefore a setting.
package elb
