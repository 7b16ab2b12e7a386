// Package conformance says what the load balancer stand-in does as an
// Application Load Balancer and its controller do, and checks it: each Fact has
// its grade, its source and a test with real sockets on loopback. The suite is
// run by go test and by lameduck alb conformance, so that who doubts a result
// can see what it rests on.
//
//	fact.go     Fact, grades, sources, the table
//	t.go        what a test is given: no *testing.T in a program
//	run.go      Run: all facts in parallel, and the table of results
//	target.go   targets whose every byte a test decides on
//	front.go    one load balancer node's data plane with such targets
//	lines.go    the access log's lines in memory
//	tls.go      certificates
//	cloud.go    a load balancer with two nodes, through ELBv2's API
//	world.go    a controller between a fake API server (objects.go) and an
//	            ELBv2 API that records (recorder.go)
//	facts_*.go  the facts, by what they are about
package conformance
