// Package alb stands in for an Application Load Balancer and its controller:
// on a cluster without AWS it answers the same Ingress, with the same
// annotations, as the AWS Load Balancer Controller and an ALB do on EKS.
//
// It is one process (lameduck alb) with two halves:
//
//	Ingress, Service, Node --informers--> controller --model--> balancer   one per Ingress
//	                                                             listener    one per port
//	client --HTTP/1.1--> listener --rule--> group --round robin--> target --pool--> node:nodePort
//	                        |
//	                        +--> <log dir>/<namespace>/<ingress>.jsonl   one LogLine per request
//
// The controller half, in the order of the data:
//
//	alb.go          Options, Run
//	controller.go   what is watched, and what is done when it changes
//	status.go       what is written back: Ingress status and Events
//	annotations.go  the annotations that are known, by name and range
//	attributes.go   the attribute lists within two of them
//	model.go        Ingress + Services + Nodes -> model; pure
//	nodes.go        which nodes are targets in instance mode
//	paths.go        which rule a request matches
//
// The data plane:
//
//	settings.go     what AWS documents as fixed, and what is not known
//	balancer.go     the running form of one model
//	listener.go     one port: clients' connections
//	group.go        targets, round robin, deregistration
//	pool.go         keep-alive connections to one target
//	conn.go         one such connection: idle timer, cancellation
//	hangup_*.go     how a close by the target is noticed while a connection is idle
//	exchange.go     one request, from receipt to log line
//	request.go      what is sent to the target
//	upload.go       a request's body on its way
//	response.go     how the target's head is read
//	relay.go        a response's body on its way
//	failure.go      which status and which name a failure gets
//	logline.go, accesslog.go   the log
//
// Two decisions shape it. There is exactly one target and one connection per
// request and never a retry, so the target side is not http.Transport, which
// sends a request again when a reused connection dies early; and the log must
// tell the local port, the errno and the phase of a failure. The client side is
// http.Server, a part that is better kept than one of ours would be.
//
// The facts that are reproduced, with their grade and source, are listed in
// the tests (see facts_test.go): every one has a test with real sockets.
package alb
