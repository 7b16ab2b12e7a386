package proxy

// Router decides what becomes of a request. It is asked once per request, from
// any goroutine, and must not block.
type Router interface {
	Route(r Request) Route
}

// Request is what rules and algorithms may look at. It is valid until Route
// returns.
type Request interface {
	Method() string
	// Host is the Host header or :authority, as it was sent.
	Host() string
	// Target is the request target as it was sent: path and query, rarely the
	// absolute form.
	Target() string
	// Header is the first value of a header, "" if there is none. The name is
	// in canonical form.
	Header(name string) string
	// ClientIP is the client's address without a port.
	ClientIP() string
	// Scheme is "http" or "https".
	Scheme() string
	// Port is the listener's.
	Port() string
}

// Route is where a request goes: to a target, or back with the load balancer's
// own answer.
type Route struct {
	// Priority is that of the rule that matched, 0 for the default action, -1
	// without one. Action is "forward", "fixed-response", "redirect" or "".
	Priority int
	Action   string
	// Group is the target group's name, "" without one.
	Group string
	// Target is where the request goes; nil: Answer is sent instead.
	Target Target
	Answer Answer
	// State of the target on this node, for the log.
	State string
	// Cookies are values of Set-Cookie that are added to the target's answer, or,
	// with CookiesWith, only to one that sets a cookie of that name.
	Cookies     []string
	CookiesWith string
}

// Answer is the load balancer's own.
type Answer struct {
	Status      int
	Error       string // for the log: accesslog.ErrorNoTarget ...; "" for a fixed response or redirect
	ContentType string
	Body        string // "": the load balancer's usual page, unless Fixed
	Fixed       bool   // a fixed response: Body as it is, also if it is empty
	Location    string // of a redirect
}

// Target is one target as one load balancer node sees it.
type Target interface {
	// Pool has the node's connections to the target.
	Pool() *Pool
	// Done is called once for each request routed to the target, when its
	// exchange has ended. status is the target's, 0 without an answer.
	Done(status int)
}
