// Package kube deploys one trial's setup on a Kubernetes cluster, lets scenarios
// act on it, and removes it: the same over client-go for every cluster provider.
// World implements harness.World; what it deploys implements harness.Deployment,
// harness.HPABounds and harness.CPUBurn.
//
//	manifests.go   the objects of a trial, pure: Setup in, typed objects out
//	yaml.go        the same as YAML, for people
//	world.go       Config, World, Environment
//	deploy.go      create the objects, wait until they are up
//	deployment.go  what can be done to a deployment: read back, bounds, CPU
//	view.go        the state of one namespace, by watch, and waiting on it
//	diagnose.go    why something is not up, in words
//	remove.go      remove one trial
//	clean.go       remove what killed runs left
//
// Each trial has a namespace of its own. Everything in it is found again by the
// labels app.kubernetes.io/managed-by=lameduck and lameduck.dev/run; nothing
// without them is ever touched.
package kube
