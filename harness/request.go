package harness

import "time"

// Outcome is how one request ended, as the client saw it. The names are part
// of the record's and the JSON report's format.
type Outcome string

// All outcomes. Anything but OutcomeOK is a failed request; OutcomeGenerator
// is the harness's own fault and makes a trial invalid.
const (
	OutcomeOK        Outcome = "ok"
	OutcomeWrongBody Outcome = "wrong-body" // 200 with a body that is not this request's
	OutcomeTruncated Outcome = "truncated"  // body shorter than Content-Length
	Outcome4xx       Outcome = "4xx"
	Outcome502       Outcome = "502"
	Outcome503       Outcome = "503"
	Outcome504       Outcome = "504"
	Outcome5xx       Outcome = "5xx" // other 5xx
	OutcomeTimeout   Outcome = "timeout"
	OutcomeRefused   Outcome = "refused"
	OutcomeReset     Outcome = "reset"
	OutcomeEOF       Outcome = "eof"
	OutcomeDNS       Outcome = "dns"
	OutcomeGenerator Outcome = "generator" // no free port, no file descriptor ...
	OutcomeOther     Outcome = "other"
)

// Outcomes lists every outcome in the order in which reports show them.
var Outcomes = []Outcome{
	OutcomeOK, Outcome502, Outcome503, Outcome504, OutcomeTimeout, OutcomeRefused, OutcomeReset, OutcomeEOF,
	OutcomeTruncated, OutcomeWrongBody, Outcome4xx, Outcome5xx, OutcomeDNS, OutcomeGenerator, OutcomeOther,
}

// Request is the record of one request. Offsets are from the trial's clock.
// The JSON keys are short because there is one line per request.
type Request struct {
	// ID is unique in the trial. It travels in the header RequestIDHeader, and
	// the load balancer and the application log it.
	ID string `json:"id"`
	// Control marks a request to the control target.
	Control bool `json:"ctl,omitempty"`
	// Stream marks one of Load.Streams, whose Latency is its whole life. The end of
	// the load ends it in order.
	Stream bool `json:"str,omitempty"`
	// Planned is when the open loop should have sent it, Sent when it did.
	Planned time.Duration `json:"pl"`
	Sent    time.Duration `json:"at"`
	// Latency is from Sent to the last byte of the body, or to the failure.
	Latency time.Duration `json:"lat"`
	Outcome Outcome       `json:"o"`
	Status  int           `json:"s,omitempty"` // HTTP status, 0 without one
	Pod     string        `json:"pod,omitempty"`
	// Reused says that the client's connection (to the load balancer) was not new.
	Reused bool `json:"re,omitempty"`
	// Attempts is how many connections the client's transport used; more than
	// one is a hidden retry.
	Attempts int    `json:"try,omitempty"`
	Error    string `json:"err,omitempty"`
}

// Failed says whether the client did not get what it asked for.
func (r Request) Failed() bool { return r.Outcome != OutcomeOK }

// Headers by which client, load balancer and application speak of one request.
const (
	RequestIDHeader = "X-Lameduck-Request" // request: Request.ID
	PodHeader       = "X-Lameduck-Pod"     // answer: the pod's name
	VersionHeader   = "X-Lameduck-Version" // answer: the application's version
)
