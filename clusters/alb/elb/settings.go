package elb

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"lameduck/clusters/alb/accesslog"
	"lameduck/clusters/alb/proxy"
)

// Settings are the numbers and choices that no ELBv2 attribute sets. A zero
// field takes its default. Nothing has a minimum, so that tests can be fast.
type Settings struct {
	// Nodes are the addresses of every load balancer's nodes, one for each
	// availability zone. An ALB has at least two (D: user guide, "Application
	// Load Balancers", availability zones); one is allowed here. No default.
	Nodes []netip.Addr

	// DeregistrationLag is how long a node goes on sending new requests to a
	// target that is being deregistered, drawn for each node and call. Default
	// 5s..20s (O: aws-load-balancer-controller issues 1064, 1719 and 2366; reports
	// go from 3 s to about 17 s, with a Network Load Balancer to 200 s).
	DeregistrationLag *Range
	// RegistrationLag is how long a registration takes to reach a node, which
	// then makes its first health check, drawn for each node and call. Default
	// 2s..5s (O: a few seconds).
	RegistrationLag *Range
	// WeightLag is how long a change of a load balancer's rules takes to reach
	// a node, drawn for each node and call. Default 10s..20s (O: argo-rollouts
	// issues 3333 and 4595). New load balancers do not wait: nothing is routed yet that a lag
	// could delay, and AWS's own "provisioning" takes its place (I). Other
	// rules than weights wait as well, as nothing suggests that they go another
	// way (I).
	WeightLag *Range

	// KeepIdleAtDeregistration leaves idle pooled connections to a
	// deregistered target open until their idle timeout or the end of the
	// deregistration delay, instead of closing them when the node stops sending
	// requests. Not published (U).
	KeepIdleAtDeregistration bool
	// PoolOrder is which idle connection to a target is used next. Not
	// published (U). Default proxy.PoolLIFO.
	PoolOrder proxy.PoolOrder
	// UnusableStatus is answered when a group has only initial and draining
	// targets. Reports have 502 and 503. Default 503 (I).
	UnusableStatus int

	// ConnectTimeout bounds the connection to a target; then 504. Default 10 s
	// (D: user guide, Troubleshooting: HTTP 504).
	ConnectTimeout time.Duration
	// AnomalyInterval is how often anomaly mitigation looks at the share of
	// failures. Not published (U). Default 1 s.
	AnomalyInterval time.Duration

	Quotas Quotas
	Rates  Rates

	// TLS is what HTTPS listeners present. nil: a certificate signed by itself,
	// made anew by each process.
	TLS *tls.Config
}

// Quotas bound what can be asked for (D: user guide, Quotas).
type Quotas struct {
	TargetsPerGroup        int // default 1000
	TargetsPerLoadBalancer int // default 1000
	GroupsPerLoadBalancer  int // default 100
	GroupsPerAction        int // default 5
}

// Rates are the token buckets of the API: what exceeds one gets ErrThrottling
// (D: API reference, Common errors). AWS does not publish their sizes (U). The
// defaults are above those that the controller sets itself (S: 4/s burst 20 for
// targets, 50/s burst 200 for describing, 3/s burst 20 for the rest), so that a
// controller that keeps to them is not throttled.
type Rates struct {
	Targets  Rate // RegisterTargets and DeregisterTargets; default 10/s, burst 40
	Describe Rate // default 100/s, burst 400
	Modify   Rate // everything else; default 10/s, burst 40
}

// Rate is a token bucket. A Burst below 0 is no limit.
type Rate struct {
	PerSecond float64
	Burst     int
}

// Log is where the requests of one load balancer are written, the changes of
// its targets' states and its settings. It is closed with the load balancer. *accesslog.Log
// is one.
type Log interface {
	accesslog.Sink
	// Target takes a StateChange as JSON, without a newline, and does not keep
	// it. A group's changes before its first use have no Log.
	Target(change []byte)
	// Settings takes an InForce in the same way.
	Settings(inForce []byte)
	Close() error
}

// Metrics are told what the lines of a Log do not have. All names are
// CloudWatch's: HealthyHostCount and UnHealthyHostCount count by the state over
// all nodes. RequestCount, UnhealthyRoutingRequestCount and the rest can be
// counted from the lines.
type Metrics interface {
	proxy.Metrics
	Hosts(group string, healthy, unhealthy int)
	// GroupGone takes back the counts of a group that is no longer used.
	GroupGone(group string)
}

// Outputs are where the load balancers tell what happens. Any may be nil.
type Outputs struct {
	// Log opens the log of a load balancer when it is created.
	Log func(loadBalancer string) (Log, error)
	// Metrics returns those of a load balancer when it is created.
	Metrics func(loadBalancer string) Metrics
	// States gets each change of a target's state, in order. It is called with
	// a lock held: it must be quick and must not call the API.
	States func(StateChange)
	// Messages gets lines for people. It must be safe for concurrent use.
	Messages io.Writer
	// Hangups watches connections to targets. nil: the Service has its own.
	Hangups *proxy.Hangups
}

var (
	defaultDeregistrationLag = Range{5 * time.Second, 20 * time.Second}
	defaultRegistrationLag   = Range{2 * time.Second, 5 * time.Second}
	defaultWeightLag         = Range{10 * time.Second, 20 * time.Second}
)

// orDefault sets a field that is not set.
func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (s Settings) withDefaults() Settings {
	orDefault(&s.DeregistrationLag, &defaultDeregistrationLag)
	orDefault(&s.RegistrationLag, &defaultRegistrationLag)
	orDefault(&s.WeightLag, &defaultWeightLag)
	orDefault(&s.PoolOrder, proxy.PoolLIFO)
	orDefault(&s.UnusableStatus, 503)
	orDefault(&s.ConnectTimeout, 10*time.Second)
	orDefault(&s.AnomalyInterval, time.Second)
	orDefault(&s.Quotas.TargetsPerGroup, 1000)
	orDefault(&s.Quotas.TargetsPerLoadBalancer, 1000)
	orDefault(&s.Quotas.GroupsPerLoadBalancer, 100)
	orDefault(&s.Quotas.GroupsPerAction, 5)
	orDefault(&s.Rates.Targets, Rate{10, 40})
	orDefault(&s.Rates.Describe, Rate{100, 400})
	orDefault(&s.Rates.Modify, Rate{10, 40})
	return s
}

// Check finds all that is wrong with the settings.
func (s Settings) Check() error { return s.withDefaults().check() }

// check is for settings with defaults.
func (s Settings) check() error {
	var errs []error
	if len(s.Nodes) == 0 {
		errs = append(errs, errors.New("nodes: want at least one address, two to be like an ALB"))
	}
	seen := make(map[netip.Addr]bool)
	for _, a := range s.Nodes {
		if !a.IsValid() || seen[a] {
			errs = append(errs, fmt.Errorf("nodes: %s is invalid or named twice: want different IP addresses", a))
		}
		seen[a] = true
	}
	for name, r := range map[string]*Range{
		"deregistration lag": s.DeregistrationLag, "registration lag": s.RegistrationLag, "weight lag": s.WeightLag,
	} {
		if err := r.check(); err != nil {
			errs = append(errs, fmt.Errorf("%s %w", name, err))
		}
	}
	errs = append(errs, checkUnknowns(s.PoolOrder, s.UnusableStatus))
	if s.ConnectTimeout < 0 || s.AnomalyInterval < 0 {
		errs = append(errs, fmt.Errorf("connect timeout is %s, anomaly interval %s: want more than 0s", s.ConnectTimeout, s.AnomalyInterval))
	}
	if q := s.Quotas; min(q.TargetsPerGroup, q.TargetsPerLoadBalancer, q.GroupsPerLoadBalancer, q.GroupsPerAction) < 1 {
		errs = append(errs, fmt.Errorf("quotas are %+v: want 1 or more", q))
	}
	for name, r := range map[string]Rate{"targets": s.Rates.Targets, "describe": s.Rates.Describe, "modify": s.Rates.Modify} {
		if r.Burst >= 0 && (r.PerSecond <= 0 || r.Burst == 0) {
			errs = append(errs, fmt.Errorf("rate of %s is %+v: want more than 0 for both, or a burst below 0 for no limit", name, r))
		}
	}
	return errors.Join(errs...)
}

// checkUnknowns checks what Settings and a TargetGroup both have.
func checkUnknowns(order proxy.PoolOrder, unusable int) error {
	var errs []error
	if order != proxy.PoolLIFO && order != proxy.PoolFIFO {
		errs = append(errs, fmt.Errorf("pool order is %q: want %v or %v", order, proxy.PoolLIFO, proxy.PoolFIFO))
	}
	if unusable != 502 && unusable != 503 {
		errs = append(errs, fmt.Errorf("unusable status is %d: want 502 or 503", unusable))
	}
	return errors.Join(errs...)
}
