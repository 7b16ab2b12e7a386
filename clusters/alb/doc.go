// Package alb stands in for an Application Load Balancer and its controller:
// on a cluster without AWS it answers the same Ingress, with the same
// annotations, as the AWS Load Balancer Controller and an ALB do on EKS.
//
// It is one process (lameduck alb), put together from
//
//	controller   Ingress, Service, Node, EndpointSlice -> calls of the ELBv2 API; readiness gates
//	elb          that API: load balancers with nodes, rules, target groups, health checks, lags
//	proxy        the data plane of one node: clients' connections, exchanges, pools of target connections
//	accesslog    what is written down: access log, side log, target states, CloudWatch counters
//	certificate  certificates that nobody else vouches for
//	scripted     targets of which a test decides every byte
//	conformance  the facts that are reproduced, each with a test on real sockets
//
//	client --> proxy.Listener --elb: rule, group, target--> proxy.Pool --> node:nodePort or pod:port
//
// What AWS does not publish is a setting (elb.Settings, and annotations under
// alb.lameduck.dev/).
package alb
