package elb

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"time"

	"lameduck/clusters/alb/accesslog"
	"lameduck/clusters/alb/proxy"
)

// Settings are what no attribute of a load balancer or target group sets: what
// AWS documents as fixed, and what it does not publish. A zero field takes its
// default. Grades: D documented by AWS, O observed and reported by users, I
// inferred, U unknown.
type Settings struct {
	// ConnectTimeout bounds a connection to a target; then 504. Default 10 s (D:
	// user guide, Troubleshooting: HTTP 504).
	ConnectTimeout time.Duration
	// DeregistrationLag is how long a node may go on sending new requests to a
	// target after DeregisterTargets, drawn per node and target. Default 5..20 s
	// (O: 17 s, 15 s or more, about 10 s, 3 to 5 s;
	// kubernetes-sigs/aws-load-balancer-controller 1064, 1131, 2366).
	DeregistrationLag *Range
	// RegistrationLag is how long a new target waits for its first health check
	// by a node. Default 2..5 s (O: "a few seconds").
	RegistrationLag *Range
	// WeightLag is how long a change of weights takes to reach a node. Default
	// 10..20 s (O: argoproj/argo-rollouts 3333).
	WeightLag *Range
	// CloseIdleAtDeregistration closes idle connections to a target when its
	// deregistration reaches the node; else they stay until their idle timeout,
	// unused (U).
	CloseIdleAtDeregistration bool
	// PoolOrder is which idle connection to a target is used next. Default
	// proxy.PoolLIFO (U).
	PoolOrder proxy.PoolOrder
	// UnusableStatus is what clients get when only initial and draining targets
	// are left: 503 (default) or 502 (I: reports differ).
	UnusableStatus int
	// OverQuota is what comes of a registration beyond the quota of targets.
	// Default OverQuotaRefuse (D), OverQuotaStale is reported (O).
	OverQuota OverQuota
	// APIRate bounds the calls per second that change something, with bursts of
	// APIBurst; beyond them calls fail with ErrThrottling. Default: no bound. AWS
	// documents the mechanism (D) but not the numbers for an account (U).
	APIRate  float64
	APIBurst int
	// DrainTimeout bounds how long Close waits for requests in flight. Default 5 s.
	DrainTimeout time.Duration
	// LogFlush is the longest time a log line waits in memory. Default 100 ms.
	LogFlush time.Duration
}

// OverQuota is what a group does when it is to get more targets than the quota.
type OverQuota string

// The choices.
const (
	// OverQuotaRefuse refuses the call and leaves the group as it is.
	OverQuotaRefuse OverQuota = "refuse"
	// OverQuotaStale refuses the call, and takes no change of the group's targets
	// until a registration fits again.
	OverQuotaStale OverQuota = "stale"
)

// Quotas (D: user guide, Quotas for your Application Load Balancers).
const (
	MaxTargetsPerGroup        = 1000
	MaxTargetsPerLoadBalancer = 1000
	MaxGroupsPerLoadBalancer  = 100
	MaxGroupsPerAction        = 5
	MaxWeight                 = 999
)

// Options of a Service.
type Options struct {
	// Nodes are the addresses of the load balancer nodes. Every load balancer
	// listens on all of them; an ALB has at least two (D).
	Nodes    []netip.Addr
	Settings Settings
	// LogDir gets the logs of each load balancer (see accesslog.Log).
	LogDir string
	// Counters count requests; nil: nothing is counted.
	Counters *accesslog.Counters
	// Certificate is for HTTPS listeners.
	Certificate tls.Certificate
	// Messages is for people, a line each. Safe for concurrent use.
	Messages io.Writer
	// StateChanged, if set, is told of every change of a target's state over all
	// nodes. It must not block.
	StateChanged func(groupID string, target netip.AddrPort, s State)
	// Dial replaces the connections to targets, for tests.
	Dial func(ctx context.Context, addr string, timeout time.Duration) (net.Conn, error)
}

func (s Settings) withDefaults() Settings {
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	set(&s.ConnectTimeout, 10*time.Second)
	set(&s.DrainTimeout, 5*time.Second)
	set(&s.LogFlush, 100*time.Millisecond)
	lag := func(r **Range, low, high time.Duration) {
		if *r == nil {
			*r = &Range{low, high}
		}
	}
	lag(&s.DeregistrationLag, 5*time.Second, 20*time.Second)
	lag(&s.RegistrationLag, 2*time.Second, 5*time.Second)
	lag(&s.WeightLag, 10*time.Second, 20*time.Second)
	if s.PoolOrder == "" {
		s.PoolOrder = proxy.PoolLIFO
	}
	if s.UnusableStatus == 0 {
		s.UnusableStatus = 503
	}
	if s.OverQuota == "" {
		s.OverQuota = OverQuotaRefuse
	}
	return s
}

// Check finds values that are not accepted, all at once.
func (s Settings) Check() error {
	var errs []error
	if s.PoolOrder != "" && s.PoolOrder != proxy.PoolLIFO && s.PoolOrder != proxy.PoolFIFO {
		errs = append(errs, fmt.Errorf("pool order is %q: want %s or %s", s.PoolOrder, proxy.PoolLIFO, proxy.PoolFIFO))
	}
	if s.UnusableStatus != 0 && s.UnusableStatus != 502 && s.UnusableStatus != 503 {
		errs = append(errs, fmt.Errorf("unusable status is %d: want 502 or 503", s.UnusableStatus))
	}
	if s.OverQuota != "" && s.OverQuota != OverQuotaRefuse && s.OverQuota != OverQuotaStale {
		errs = append(errs, fmt.Errorf("over quota is %q: want %s or %s", s.OverQuota, OverQuotaRefuse, OverQuotaStale))
	}
	if s.APIRate < 0 || s.APIRate > 0 && s.APIBurst < 1 {
		errs = append(errs, fmt.Errorf("API rate is %g with burst %d: want 0 or more, and a burst of at least 1", s.APIRate, s.APIBurst))
	}
	return errors.Join(errs...)
}

// lagPresets are ranges with a name.
var lagPresets = map[string]Range{
	"none": {},
	"17s":  {17 * time.Second, 17 * time.Second},   // O: kubernetes-sigs/aws-load-balancer-controller 2366
	"nlb":  {120 * time.Second, 180 * time.Second}, // O: what users report of Network Load Balancers
}

// ParseRange reads a lag: a preset (none, 17s, nlb), a duration, or two with
// ".." between them, the lower first; at most an hour.
func ParseRange(text string) (Range, error) {
	if r, ok := lagPresets[text]; ok {
		return r, nil
	}
	from, to, isRange := strings.Cut(text, "..")
	if !isRange {
		to = from
	}
	low, errLow := time.ParseDuration(from)
	high, errHigh := time.ParseDuration(to)
	if errLow != nil || errHigh != nil || low < 0 || low > high || high > time.Hour {
		return Range{}, fmt.Errorf("%q: want none, nlb, a duration like 17s or a range like 5s..20s, up to 1h", text)
	}
	return Range{low, high}, nil
}

// Draw is a time within the range.
func (r Range) Draw() time.Duration {
	if r.Max <= r.Min {
		return r.Min
	}
	return r.Min + rand.N(r.Max-r.Min+1)
}
