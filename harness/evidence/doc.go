// Package evidence watches one trial's namespace through the API server and
// writes what it sees as harness.Events, on the trial's clock, plus the
// application's own log.
//
//	pods            -> pod-created, pod-ready, pod-not-ready, pod-deletion-asked,
//	                   container-exited, pod-gone                        (pods.go)
//	EndpointSlices  -> endpoint-ready, -terminating, -removed            (endpoints.go)
//	HPA, Deployment -> replicas                                          (replicas.go)
//	core/v1 Events  -> kubernetes-event                                  (objectevents.go)
//	pod logs        -> Recorder.Log(LogApp), log-incomplete              (logs.go)
//
// An event is stamped when it arrives here. The way from the component that
// caused it through its status update, etcd and the watch is part of the stamp:
// milliseconds on an idle cluster, and for what a kubelet reports up to a second
// more. Where the time of the cause itself is known (a container's finishedAt,
// the application's own log lines) it is in the event's detail or the line.
//
// Every change is recorded exactly once. The watchers therefore compare each
// object with what was recorded of it before, instead of trusting that one
// notification is one change: repeated and merged notifications, and the fresh
// listing after a broken watch, add nothing that is not new.
package evidence
