package controller

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"lameduck/clusters/alb/elb"
)

// Options of the controller. A zero field takes its default.
type Options struct {
	// Addresses of the load balancer's nodes, as Ingress status shows them. At
	// least one.
	Addresses []netip.Addr
	// Messages gets lines for people. nil: none. It must be safe for concurrent
	// use.
	Messages io.Writer
	// Webhook serves the readiness gates' admission webhook; nil: pods get none.
	Webhook *WebhookOptions
	// Limits of the calls to elb.API. Zero: DefaultLimits.
	Limits Limits
	// RetryBase is the longest pause before the first retry of a throttled
	// call; it doubles with each up to 20 s. Default 1 s (AWS SDK for Go v2,
	// ExponentialJitterBackoff).
	RetryBase time.Duration
	// HealthInterval is how often a group is looked at while a pod waits for
	// its readiness gate. Default 15 s (controller,
	// pkg/targetgroupbinding/resource_manager.go, defaultRequeueDuration).
	HealthInterval time.Duration
	// ControllerLag is how long a change of endpoints waits before it is acted
	// on, drawn anew for each. Default 0. The annotation controller-lag
	// overrides it. How late the original is depends on its load (U).
	ControllerLag elb.Range
	// OverQuota is what becomes of a group whose targets would exceed the
	// quota. Default OverQuotaRefuse. The annotation over-quota overrides it.
	OverQuota OverQuota
	// MaxBackoff bounds the pauses between tries of what failed. Default
	// 1000 s for bindings (controller, targetgroupbinding-max-exponential-backoff-delay)
	// and 5 s for Ingresses, whose usual failure is a port that is free soon.
	MaxBackoff time.Duration
}

// OverQuota is what becomes of a target group with more targets than allowed.
type OverQuota string

// The choices.
const (
	// OverQuotaRefuse: new targets are refused, the others are kept in step,
	// as with the controller, which deregisters before it registers (S).
	OverQuotaRefuse OverQuota = "refuse"
	// OverQuotaStale: nothing is deregistered any more either, so that all
	// targets grow stale (O: controller issue 4360).
	OverQuotaStale OverQuota = "stale"
)

// maxIngressBackoff is MaxBackoff's default for Ingresses.
const maxIngressBackoff = 5 * time.Second

func (o Options) withDefaults() Options {
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	set(&o.RetryBase, time.Second)
	set(&o.HealthInterval, 15*time.Second)
	set(&o.MaxBackoff, 1000*time.Second)
	if o.Limits == (Limits{}) {
		o.Limits = DefaultLimits
	}
	if o.Messages == nil {
		o.Messages = io.Discard
	}
	if o.OverQuota == "" {
		o.OverQuota = OverQuotaRefuse
	}
	return o
}

func (o Options) check() error {
	var errs []error
	if len(o.Addresses) == 0 {
		errs = append(errs, errors.New("addresses: want at least one, which Ingress status can show"))
	}
	for _, a := range o.Addresses {
		if !a.IsValid() {
			errs = append(errs, errors.New("addresses: one is empty: want IP addresses"))
		}
	}
	if q := o.OverQuota; q != OverQuotaRefuse && q != OverQuotaStale {
		errs = append(errs, fmt.Errorf("over quota is %q: want %s or %s", q, OverQuotaRefuse, OverQuotaStale))
	}
	if lag := o.ControllerLag; lag.Min < 0 || lag.Max < lag.Min {
		errs = append(errs, fmt.Errorf("controller lag is %s..%s: want no negative time, the lower end first", lag.Min, lag.Max))
	}
	if o.Webhook != nil {
		errs = append(errs, o.Webhook.check())
	}
	return errors.Join(errs...)
}
