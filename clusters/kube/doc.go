// Package kube deploys one trial's setup on a Kubernetes cluster, lets scenarios
// act on it, and removes it: the same over client-go for every cluster provider.
// World implements harness.World and harness.Configurable; what it deploys
// implements harness.Deployment, harness.Faulty and all that scenarios ask for
// (HPABounds, MetricDriver, CPUBurn, Colours, Rollout, PodKiller, Nodes).
//
//	manifests.go   the objects of a trial, pure: Setup in, typed objects out
//	workloads.go   its Deployments; hooks.go their preStop hooks
//	ingress.go     its Services and the Ingress
//	scaling.go     HorizontalPodAutoscaler, PodDisruptionBudget, rolling update
//	metric.go      the metric that the HPA follows
//	own.go         the same for an application of the user's own
//	ownread.go     reading its manifests
//	colours.go     Blue and Green
//	describe.go    what would be created, in words
//	yaml.go        the same as YAML, for people
//	world.go       Config, World, Environment
//	deploy.go      create the objects, wait until they are up
//	others.go      create objects of any kind
//	configure.go   settings of the cluster
//	deployment.go  what can be done to a deployment: bounds, CPU
//	cutover.go     the same for blue-green; rollout.go, podkill.go
//	drain.go       nodes that are drained; nodes.go nodes that are removed or lost
//	faults.go      what is broken on purpose
//	repairs.go     undoing what was done to the cluster
//	workload.go    the pods of the workload, of the colour that has the traffic
//	observe.go     read back what is live
//	targets.go     the load balancer's targets
//	view.go        the state of one namespace, by watch, and waiting on it
//	diagnose.go    why something is not up, in words
//	remove.go      remove one trial
//	clean.go       remove what killed runs left
//
// Each trial has a namespace of its own. Everything in it is found again by the
// labels app.kubernetes.io/managed-by=lameduck and lameduck.dev/run; nothing
// without them is ever touched.
package kube
