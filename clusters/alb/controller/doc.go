// Package controller does what the AWS Load Balancer Controller does: it turns
// Ingresses of class alb into load balancers and target groups, keeps the
// groups' targets in step with the cluster, and holds pods back by readiness
// gates until their targets are healthy. It knows the load balancer only as
// elb.API.
//
// Two queues run beside each other, as in the original:
//
//   - The Ingress queue. An Ingress (or all that share a group.name) is built
//     into a model: annotations.go, attributes.go, healthcheck.go and
//     overrides.go read single values; actions.go, conditions.go and paths.go
//     make rules; targetgroup.go makes groups; model.go puts them together.
//     ingress.go deploys the model and writes status and Events.
//   - The binding queue. A binding (binding.go) is what a TargetGroupBinding is
//     to the original: one Service port, one target group. bindings.go brings
//     the group's targets to what nodes.go or endpoints.go say they should be.
//     A change of endpoints waits for no model.
//
// throttle.go has the client-side rate limits of the original. readiness.go and
// webhook.go are the two halves of readiness gates.
//
// There are no finalizers. The original needs them (ingress.k8s.aws/resources)
// because what it made would live on in AWS without it. Here the load balancer
// is this process, so nothing is left to clean up when it is gone, and a
// finalizer would only keep Ingresses from being deleted after kill -9.
//
// Where a comment names a source, "controller" is
// kubernetes-sigs/aws-load-balancer-controller v3 (grade S), "annotations page"
// is Guide > Ingress > Annotations of its documentation, "user guide" is AWS's
// for Application Load Balancers and "API reference" that of ELBv2 (grade D).
package controller
