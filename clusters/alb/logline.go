package alb

import (
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"
)

// LogLine is one line of an Ingress's log: one request, written when its
// answer is complete. Every field is present in every line.
type LogLine struct {
	// Time is when the request's head had been received.
	Time time.Time `json:"time"`
	// ID is the request's X-Lameduck-Request header, "" without one.
	ID string `json:"id"`
	// Client is the client's address and port.
	Client string `json:"client"`
	Method string `json:"method"`
	// Path is the request target as the client sent it, with its query.
	Path string `json:"path"`
	// Group is the target group: namespace/service:port. "" if no rule matched.
	Group string `json:"group"`
	// Target is the address the request was given to, "" if there was none.
	Target string `json:"target"`
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
}

// Micros are times in microseconds; -1 stands for a point that was not
// reached.
type Micros struct {
	Connect   int64 `json:"connect"`   // opening the connection to the target; 0 if reused
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

// Values of LogLine.Error that are not names of errnos.
const (
	ErrorEOF            = "EOF"
	ErrorClientClosed   = "CLIENT_CLOSED"    // the client went away
	ErrorClientIdle     = "CLIENT_IDLE"      // the client stopped sending its body
	ErrorClientBody     = "CLIENT_BODY"      // the client's body was malformed
	ErrorDeregistered   = "DEREGISTERED"     // the deregistration delay ended first
	ErrorMalformed      = "MALFORMED"        // the target did not speak HTTP
	ErrorHeaderTooLarge = "HEADER_TOO_LARGE" // the target's head exceeded 32 KB
	ErrorNoRule         = "NO_RULE"
	ErrorNoTarget       = "NO_TARGET"
	ErrorRefused        = "REFUSED_REQUEST" // the request itself is not acceptable
	ErrorStopped        = "STOPPED"         // the load balancer or its Ingress went away
)

// appendJSON appends the line and a newline. It is what json.Marshal gives,
// without reflection: there is a line per request.
func (l *LogLine) appendJSON(b []byte) []byte {
	b = append(b, `{"time":"`...)
	b = l.Time.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, `","id":`...)
	b = appendString(b, l.ID)
	b = append(b, `,"client":`...)
	b = appendString(b, l.Client)
	b = append(b, `,"method":`...)
	b = appendString(b, l.Method)
	b = append(b, `,"path":`...)
	b = appendString(b, l.Path)
	b = append(b, `,"group":`...)
	b = appendString(b, l.Group)
	b = append(b, `,"target":`...)
	b = appendString(b, l.Target)
	b = append(b, `,"local":`...)
	b = appendString(b, l.Local)
	b = append(b, `,"reused":`...)
	b = strconv.AppendBool(b, l.Reused)
	b = append(b, `,"status":`...)
	b = strconv.AppendInt(b, int64(l.Status), 10)
	b = append(b, `,"targetStatus":`...)
	b = strconv.AppendInt(b, int64(l.TargetStatus), 10)
	b = append(b, `,"phase":`...)
	b = appendString(b, string(l.Phase))
	b = append(b, `,"error":`...)
	b = appendString(b, l.Error)
	b = append(b, `,"micros":{"connect":`...)
	b = strconv.AppendInt(b, l.Micros.Connect, 10)
	b = append(b, `,"firstByte":`...)
	b = strconv.AppendInt(b, l.Micros.FirstByte, 10)
	b = append(b, `,"total":`...)
	b = strconv.AppendInt(b, l.Micros.Total, 10)
	b = append(b, `},"received":`...)
	b = strconv.AppendInt(b, l.Received, 10)
	b = append(b, `,"sent":`...)
	b = strconv.AppendInt(b, l.Sent, 10)
	return append(b, "}\n"...)
}

func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			// A client chose this one; encoding/json knows every rule.
			quoted, err := json.Marshal(s)
			if err != nil {
				return append(b, `""`...)
			}
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
