// Package accesslog is what the load balancer stand-in writes down: an access
// log in the format of an Application Load Balancer, a side log with what that
// format has no room for, the changes of targets' states, and counters under
// their CloudWatch names.
package accesslog

import "time"

// Line is one request, filled in while it is served and given to a Sink when
// its answer is complete. The side log has it as JSON, every field in every
// line; the access log has the part that an ALB would write.
type Line struct {
	// Time is when the request's head had been received; End is when the last
	// byte of the answer had been sent, or the request was given up.
	Time time.Time `json:"time"`
	End  time.Time `json:"-"`
	// ID is the request's X-Lameduck-Request header, "" without one.
	ID string `json:"id"`
	// Node is the load balancer node's address.
	Node string `json:"node"`
	// Type is how the client spoke: "http", "https", "h2", "ws" or "wss".
	Type string `json:"type"`
	// Client is the client's address and port.
	Client string `json:"client"`
	Method string `json:"method"`
	// Path is the request target as the client sent it, with its query.
	Path string `json:"path"`
	// Rule is the priority of the rule that matched, 0 for the default action,
	// -1 if none was looked for. Action is what it did: "forward",
	// "fixed-response", "redirect" or "".
	Rule   int    `json:"rule"`
	Action string `json:"action"`
	// Group is the target group: namespace/service:port. "" if no rule matched.
	Group string `json:"group"`
	// Target is the address the request was given to, "" if there was none.
	Target string `json:"target"`
	// TargetState is the state of the target on this node when it was chosen:
	// healthy, unhealthy (fail-open), draining (its deregistration has not
	// reached this node). "" if there was none.
	TargetState string `json:"targetState"`
	// Local is the load balancer's end of the connection to the target. With
	// Target it names the node's conntrack entry. "" if no connection was made.
	Local string `json:"local"`
	// Reused says that the connection came from the pool.
	Reused bool `json:"reused"`
	// Status is the load balancer's verdict as an ALB's access log has it: the
	// status sent to the client, except that a failure after the head had been
	// passed on (Phase body) is logged with the failure's own code while the
	// client saw TargetStatus and a cut connection, and that it is 0 with
	// ErrorStopped, when nothing was sent.
	Status int `json:"status"`
	// TargetStatus is what the target answered, 0 without an answer.
	TargetStatus int `json:"targetStatus"`
	// Phase is how far the request came.
	Phase Phase `json:"phase"`
	// Error says what went wrong in Phase, "" if nothing did: the name of an
	// errno (ECONNREFUSED, ECONNRESET, EPIPE, EHOSTUNREACH ...), ETIMEDOUT
	// (also for the load balancer's own timeouts), EOF (the target sent FIN),
	// or one of the Error constants.
	Error  string `json:"error"`
	Micros Micros `json:"micros"`
	// Received and Sent are the bytes of the request's and the response's body
	// that passed the load balancer.
	Received int64 `json:"received"`
	Sent     int64 `json:"sent"`

	// What only the access log has.
	ReceivedTotal int64  `json:"-"` // bytes from the client, head included
	SentTotal     int64  `json:"-"` // bytes to the client, head included
	Proto         string `json:"-"` // HTTP/1.1, HTTP/2.0
	Scheme        string `json:"-"` // http, https
	Host          string `json:"-"` // Host header, or the listener's address without one
	Port          string `json:"-"` // the listener's
	UserAgent     string `json:"-"`
	TLSCipher     string `json:"-"`
	TLSProtocol   string `json:"-"`
	ServerName    string `json:"-"` // SNI
	TraceID       string `json:"-"` // the X-Amzn-Trace-Id as the target got it
	RedirectURL   string `json:"-"`
}

// Micros are times in microseconds; -1 stands for a point that was not
// reached.
type Micros struct {
	Connect   int64 `json:"connect"`   // opening the connection to the target; 0 if reused
	Sent      int64 `json:"sent"`      // from receipt to the request's head written to the target
	FirstByte int64 `json:"firstByte"` // from receipt to the target's complete head
	Total     int64 `json:"total"`     // from receipt to the end
}

// Phase is how far a request came.
type Phase string

// The phases, in order.
const (
	PhaseRoute   Phase = "route"   // no target was asked: no rule, no target, or a refused request
	PhaseConnect Phase = "connect" // connecting to the target
	PhaseSend    Phase = "send"    // sending the request to it
	PhaseWait    Phase = "wait"    // waiting for its head
	PhaseBody    Phase = "body"    // passing its body on
	PhaseDone    Phase = "done"
)

// Values of Line.Error that are not names of errnos.
const (
	ErrorEOF            = "EOF"
	ErrorClientClosed   = "CLIENT_CLOSED"    // the client went away
	ErrorClientIdle     = "CLIENT_IDLE"      // the client stopped sending its body
	ErrorClientBody     = "CLIENT_BODY"      // the client's body was malformed
	ErrorDeregistered   = "DEREGISTERED"     // the deregistration delay ended first
	ErrorMalformed      = "MALFORMED"        // the target did not speak HTTP
	ErrorHeaderTooLarge = "HEADER_TOO_LARGE" // the target's head exceeded 32 KB
	ErrorTLS            = "TLS"              // the TLS handshake with the target failed or took too long
	ErrorNoRule         = "NO_RULE"
	ErrorNoTarget       = "NO_TARGET"        // no target is registered, or a rule has no Service
	ErrorNoUsableTarget = "NO_USABLE_TARGET" // only initial and/or draining ones
	ErrorRefused        = "REFUSED_REQUEST"  // the request itself is not acceptable
	ErrorStopped        = "STOPPED"          // the load balancer or its Ingress went away
)

// Sink takes lines. It does not keep l after it returns, and may be called
// from any goroutine.
type Sink interface{ Add(l *Line) }
