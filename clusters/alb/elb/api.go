package elb

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"lameduck/clusters/alb/proxy"
)

// API is the part of the Elastic Load Balancing v2 API that the controller
// uses. Errors can be told apart with errors.Is and the Err values below.
type API interface {
	// PutTargetGroup creates a target group or changes its attributes
	// (CreateTargetGroup, ModifyTargetGroup, ModifyTargetGroupAttributes).
	// Type and Protocol of a group that exists cannot change.
	PutTargetGroup(ctx context.Context, g TargetGroup) error
	// DeleteTargetGroup closes a group. ErrResourceInUse if a rule names it.
	DeleteTargetGroup(ctx context.Context, name string) error
	// PutLoadBalancer creates or changes a load balancer with its listeners and
	// rules. It returns when every node listens. If a port cannot be listened
	// on nothing changes.
	PutLoadBalancer(ctx context.Context, lb LoadBalancer) error
	// DeleteLoadBalancer cuts what is open. One that does not exist is no error.
	DeleteLoadBalancer(ctx context.Context, name string) error
	// RegisterTargets adds targets, or takes back draining ones of an instance
	// group. All or nothing: ErrTooManyTargets, ErrInvalidTarget (an address
	// that is still draining in an ip group).
	RegisterTargets(ctx context.Context, group string, targets []netip.AddrPort) error
	// DeregisterTargets starts the deregistration of targets. Addresses that
	// are not registered are ignored, as by AWS.
	DeregisterTargets(ctx context.Context, group string, targets []netip.AddrPort) error
	// DescribeTargetHealth lists the group's targets, sorted by address,
	// draining ones included.
	DescribeTargetHealth(ctx context.Context, group string) ([]TargetHealth, error)
}

// Errors of the API, by the names of AWS.
var (
	ErrThrottling          = errors.New("ThrottlingException: Rate exceeded")
	ErrTargetGroupNotFound = errors.New("TargetGroupNotFound")
	ErrTooManyTargets      = errors.New("TooManyTargets")
	ErrInvalidTarget       = errors.New("InvalidTarget")
	ErrResourceInUse       = errors.New("ResourceInUse")
	ErrDuplicateListener   = errors.New("DuplicateListener") // the port is another load balancer's
	// ErrInvalidConfiguration is a setting that does not go with another.
	ErrInvalidConfiguration = errors.New("InvalidConfigurationRequest")
	// ErrInvalidAction is an action with none, or too many, target groups.
	ErrInvalidAction = errors.New("InvalidLoadBalancerAction")
	// ErrTooManyGroups is more target groups than a load balancer may have.
	ErrTooManyGroups = errors.New("TooManyUniqueTargetGroupsPerLoadBalancer")
	// ErrAssociationLimit is a target group that another load balancer has.
	ErrAssociationLimit = errors.New("TargetGroupAssociationLimit")
)

// LoadBalancer is what an Ingress asks for.
type LoadBalancer struct {
	Name            string // namespace/ingress
	Listeners       []Listener
	IdleTimeout     time.Duration // idle_timeout.timeout_seconds
	ClientKeepAlive time.Duration // client_keep_alive.seconds
	Rules           []Rule        // in order of priority
	Default         Action
	// WeightLag is how long a change of Rules takes to reach a node, drawn for
	// each; nil: Settings.WeightLag.
	WeightLag *Range
}

// Protocol of a listener or of the connections to targets.
type Protocol string

// The protocols.
const (
	HTTP  Protocol = "HTTP"
	HTTPS Protocol = "HTTPS" // listeners speak HTTP/1.1 and HTTP/2
)

// Listener is one port on every node.
type Listener struct {
	Port     uint16 // 0: any free one, the same on every node (for tests)
	Protocol Protocol
}

// Rule sends the requests that fulfil all of its conditions to an action. An
// empty condition is fulfilled.
type Rule struct {
	Priority int
	Hosts    []string            // with * and ?, lower case
	Paths    []string            // with * and ?
	Methods  []string            // upper case
	Headers  map[string][]string // canonical name -> values with * and ?
	Query    []QueryCondition    // one of them
	// AllQueries are further query-string conditions: one of each list must
	// match, on top of Query. Rarely more than none.
	AllQueries [][]QueryCondition
	Sources    []netip.Prefix // of the client
	// Ports are those of the listeners the rule belongs to; empty: all. (In
	// ELBv2 a rule belongs to one listener.)
	Ports  []uint16
	Action Action
}

// QueryCondition matches a parameter of the query, with * and ? in both parts;
// an empty Key matches any.
type QueryCondition struct{ Key, Value string }

// Action is what happens to a request; exactly one field is set. The zero
// Action answers 404, as an Ingress without a default backend does.
type Action struct {
	Forward  []WeightedGroup
	Sticky   time.Duration // group stickiness of a weighted forward, 0: off
	Fixed    *FixedResponse
	Redirect *Redirect
}

// WeightedGroup is a share of a forward. Group "" stands for a Service that
// does not exist: 503.
type WeightedGroup struct {
	Group  string
	Weight int // 0..999
}

// FixedResponse is answered by the load balancer.
type FixedResponse struct {
	Status      int // 200..599
	ContentType string
	Body        string
}

// Redirect has the placeholders #{protocol}, #{host}, #{port}, #{path} and
// #{query} in its fields.
type Redirect struct {
	Status                            int // 301 or 302
	Protocol, Host, Port, Path, Query string
}

// TargetType of a group.
type TargetType string

// The target types.
const (
	TargetInstance TargetType = "instance"
	TargetIP       TargetType = "ip"
)

// Algorithm chooses among a group's targets.
type Algorithm string

// The algorithms, as load_balancing.algorithm.type names them.
const (
	RoundRobin               Algorithm = "round_robin"
	LeastOutstandingRequests Algorithm = "least_outstanding_requests"
	WeightedRandom           Algorithm = "weighted_random"
)

// TargetGroup is a group's settings, without its targets.
type TargetGroup struct {
	Name                string // namespace/service:port, unique
	Type                TargetType
	Protocol            Protocol
	DeregistrationDelay time.Duration
	SlowStart           time.Duration // 0: off
	Algorithm           Algorithm
	AnomalyMitigation   bool
	Stickiness          Stickiness
	HealthCheck         HealthCheck
	// Lags of this group only; nil: those of Settings.
	DeregistrationLag, RegistrationLag *Range
	// LoseDeregistrations makes DeregisterTargets succeed without any effect.
	LoseDeregistrations bool
	// CallInterval is a fault: RegisterTargets and DeregisterTargets of this
	// group together take one call in this time, the first at once, and refuse
	// the others with ErrThrottling. 0: as many as Rates.Targets allows.
	CallInterval time.Duration
	// What AWS does not publish, for this group only: nil, "" and 0 leave it to
	// Settings. PoolOrder of targets that are registered already stays.
	CloseIdle      *bool // at deregistration
	PoolOrder      proxy.PoolOrder
	UnusableStatus int
}

// Stickiness of a group's targets.
type Stickiness struct {
	// Duration of the AWSALB cookie, 0: off.
	Duration time.Duration
	// AppCookie is the application's cookie that stickiness follows, "": the
	// load balancer's own.
	AppCookie string
}

// HealthCheck is how every node checks every target.
type HealthCheck struct {
	Disabled           bool   // only in tests: every target is healthy at once
	Port               uint16 // 0: the traffic port
	Protocol           Protocol
	Path               string
	Interval, Timeout  time.Duration
	Healthy, Unhealthy int // thresholds
	Codes              []CodeRange
}

// CodeRange is a range of HTTP status codes, both ends included.
type CodeRange struct{ Low, High int }

// State of a target, as DescribeTargetHealth names it.
type State string

// The states.
const (
	StateInitial     State = "initial"
	StateHealthy     State = "healthy"
	StateUnhealthy   State = "unhealthy"
	StateDraining    State = "draining"
	StateUnused      State = "unused"
	StateUnavailable State = "unavailable"
)

// Reason codes of states (ELBv2 API reference, TargetHealth).
const (
	ReasonRegistrationInProgress   = "Elb.RegistrationInProgress"
	ReasonInitialHealthChecking    = "Elb.InitialHealthChecking"
	ReasonResponseCodeMismatch     = "Target.ResponseCodeMismatch"
	ReasonTimeout                  = "Target.Timeout"
	ReasonFailedHealthChecks       = "Target.FailedHealthChecks"
	ReasonInternalError            = "Elb.InternalError"
	ReasonNotRegistered            = "Target.NotRegistered"
	ReasonNotInUse                 = "Target.NotInUse"
	ReasonInvalidState             = "Target.InvalidState"
	ReasonIPUnusable               = "Target.IpUnusable"
	ReasonDeregistrationInProgress = "Target.DeregistrationInProgress"
	ReasonHealthCheckDisabled      = "Target.HealthCheckDisabled"
)

// TargetHealth is one target's state over all nodes: healthy when it is on
// every node, as only then every request can reach it.
type TargetHealth struct {
	Target      netip.AddrPort
	State       State
	Reason      string // "" if healthy
	Description string // for people
}

// StateChange is one target's change of state on one node (Node "": over all
// nodes, as DescribeTargetHealth shows it).
type StateChange struct {
	Time   time.Time      `json:"time"`
	Group  string         `json:"group"`
	Target netip.AddrPort `json:"target"`
	Node   string         `json:"node"`
	// LoadBalancer is the one that uses the group, or used it last; "" if none
	// has.
	LoadBalancer string `json:"loadBalancer"`
	State        State  `json:"state"`
	Reason       string `json:"reason"`
	// Detail is the check's outcome, or the lag that was drawn.
	Detail string `json:"detail"`
}
