package machine

import "time"

// controlSocket is where a supervisor takes requests: an abstract socket, which
// exists in the machine's network namespace only and leaves no file.
const controlSocket = "@lameduck-machine"

// holdPeriod is how often a component that is held for a share of the time is
// stopped. It is well below the timeouts of the API server's clients.
const holdPeriod = 500 * time.Millisecond

// Request is what a supervisor can be asked for.
type Request struct {
	Do        Verb    `json:"do"`
	Component string  `json:"component,omitempty"`
	Share     float64 `json:"share,omitempty"` // of Hold; 1 is all of the time
}

// Verb is what is to be done.
type Verb string

// The verbs.
const (
	// Restart ends a component, starts it anew and answers when it is ready.
	Restart Verb = "restart"
	// Hold stops a component (SIGSTOP) for Share of the time. It lasts for as long
	// as the connection on which it was asked for: a process that dies cannot
	// leave a component stopped, and a supervisor that dies takes it along.
	Hold Verb = "hold"
	// Release ends all holds, whoever asked for them.
	Release Verb = "release"
)

// answer is what the supervisor says when it has done it.
type answer struct {
	Error string `json:"error,omitempty"`
}
