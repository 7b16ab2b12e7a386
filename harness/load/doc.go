// Package load sends the load of a trial: an open loop at a constant rate, in
// which requests go out at their planned times however the answers do. It is
// the one place that knows vegeta.
//
// Local attacks from this process. Process attacks from a child process, which
// a cluster can place where the clients are (clusters.ClientHost); Worker is
// the child's side, and the protocol between the two is in protocol.go.
//
// vegeta paces and runs the requests; what is recorded is taken in a
// RoundTripper of our own (transport.go), for three reasons. Errors still have
// types there (classify.go), where vegeta has only strings. The body is read
// there, so that a truncated, late or mixed-up one counts as what it is. And
// net/http's silent second try of a request must be prevented and, should it
// happen all the same, be seen.
//
// # Connections
//
// With HTTP/1.1, pooled and new connections are net/http's (connections.go). All
// others are single connections of our own choice (turns.go), which never send a
// request twice:
//
//	           HTTP/1.1                                HTTP/2
//	pooled     any free one, else a new one that is    one to each node of the load balancer,
//	           kept; closed when idle for 30 s         shared by all requests, in turn
//	new        one for each request                    one for each request
//	long-lived LongLived of them, in turn; a busy one  LongLived of them, in turn, each with
//	           is passed over                          many requests
//
// The fixed ones are opened before the first request is due, and our side never
// closes them. The loop stays open: if all long-lived connections are busy, the
// request gets one more, which is closed after it and counts as not reused
// (harness.Request.Reused). So LongLived must exceed the rate times the response
// time if there are to be no more. One that breaks is opened anew by the request
// whose turn it is; what goes wrong in that is the request's failure. The same is
// done in HTTP/2 for one that takes no more requests, because it was told to go
// away or is at its limit of streams.
//
// A node's certificate is not verified.
//
// # Streams
//
// Streams (streams.go) are requests beside the loops, each on a connection of its
// own, which last as long as the load. One that ends, also in order, is a failure
// and begins anew, as is one of which nothing comes for Load.Timeout. The end of
// the load ends them as ok when something more has come. They are no part of the
// rate, of the lateness or of what AttackStats.Sent counts.
package load
