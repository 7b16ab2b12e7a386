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
package load
