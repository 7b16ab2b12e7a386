package controller

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"golang.org/x/time/rate"

	"lameduck/clusters/alb/elb"
)

// Limits are the token buckets that the controller puts before its own calls,
// so that one cluster does not use up an account's share.
type Limits struct {
	Targets  Limit // RegisterTargets and DeregisterTargets together
	Describe Limit
	Modify   Limit // everything else that changes something
}

// Limit is a token bucket.
type Limit struct {
	PerSecond float64
	Burst     int
}

// DefaultLimits are those of the original (controller,
// pkg/aws/throttle/defaults.go).
var DefaultLimits = Limits{
	Targets:  Limit{4, 20},
	Describe: Limit{50, 200},
	Modify:   Limit{3, 20},
}

const (
	// maxTargetsPerCall (controller, pkg/targetgroupbinding/targets_manager.go:
	// the chunk sizes of RegisterTargets and DeregisterTargets).
	maxTargetsPerCall = 200
	// maxAttempts of a throttled call (controller, flag aws-max-retries).
	maxAttempts = 10
	maxRetry    = 20 * time.Second // AWS SDK for Go v2, retry.DefaultMaxBackoff
)

// throttled is an elb.API behind the controller's limits. A call that the API
// throttles is made again, with growing pauses, before it fails.
type throttled struct {
	api                       elb.API
	targets, describe, modify *rate.Limiter
	retryBase                 time.Duration
}

func newThrottled(api elb.API, l Limits, retryBase time.Duration) *throttled {
	limiter := func(l Limit) *rate.Limiter { return rate.NewLimiter(rate.Limit(l.PerSecond), l.Burst) }
	return &throttled{api: api, targets: limiter(l.Targets), describe: limiter(l.Describe), modify: limiter(l.Modify), retryBase: retryBase}
}

// call makes a call when its bucket has a token.
func (t *throttled) call(ctx context.Context, bucket *rate.Limiter, name string, f func() error) error {
	longest := t.retryBase
	for attempt := 1; ; attempt++ {
		if err := bucket.Wait(ctx); err != nil {
			return fmt.Errorf("%s: wait for the controller's own rate limit: %w", name, err)
		}
		err := f()
		if err == nil {
			return nil
		}
		if !errors.Is(err, elb.ErrThrottling) || attempt == maxAttempts {
			return fmt.Errorf("%s: %w", name, err)
		}
		select {
		case <-time.After(rand.N(longest)):
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", name, err)
		}
		longest = min(2*longest, maxRetry)
	}
}

func (t *throttled) PutTargetGroup(ctx context.Context, g elb.TargetGroup) error {
	return t.call(ctx, t.modify, "PutTargetGroup "+g.Name, func() error { return t.api.PutTargetGroup(ctx, g) })
}

func (t *throttled) DeleteTargetGroup(ctx context.Context, name string) error {
	return t.call(ctx, t.modify, "DeleteTargetGroup "+name, func() error { return t.api.DeleteTargetGroup(ctx, name) })
}

func (t *throttled) PutLoadBalancer(ctx context.Context, lb elb.LoadBalancer) error {
	return t.call(ctx, t.modify, "PutLoadBalancer "+lb.Name, func() error { return t.api.PutLoadBalancer(ctx, lb) })
}

func (t *throttled) DeleteLoadBalancer(ctx context.Context, name string) error {
	return t.call(ctx, t.modify, "DeleteLoadBalancer "+name, func() error { return t.api.DeleteLoadBalancer(ctx, name) })
}

func (t *throttled) RegisterTargets(ctx context.Context, group string, targets []netip.AddrPort) error {
	return t.inChunks(ctx, "RegisterTargets "+group, targets, func(chunk []netip.AddrPort) error {
		return t.api.RegisterTargets(ctx, group, chunk)
	})
}

func (t *throttled) DeregisterTargets(ctx context.Context, group string, targets []netip.AddrPort) error {
	return t.inChunks(ctx, "DeregisterTargets "+group, targets, func(chunk []netip.AddrPort) error {
		return t.api.DeregisterTargets(ctx, group, chunk)
	})
}

// inChunks makes a call for every 200 targets. The first that fails is the
// last, as in the original.
func (t *throttled) inChunks(ctx context.Context, name string, targets []netip.AddrPort, f func([]netip.AddrPort) error) error {
	for len(targets) > 0 {
		n := min(len(targets), maxTargetsPerCall)
		if err := t.call(ctx, t.targets, name, func() error { return f(targets[:n]) }); err != nil {
			return err
		}
		targets = targets[n:]
	}
	return nil
}

func (t *throttled) DescribeTargetHealth(ctx context.Context, group string) (health []elb.TargetHealth, err error) {
	err = t.call(ctx, t.describe, "DescribeTargetHealth "+group, func() error {
		health, err = t.api.DescribeTargetHealth(ctx, group)
		return err
	})
	return health, err
}
