package controller

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"lameduck/clusters/alb/elb"
)

// overridePrefix is in front of the annotations that set what AWS does not
// publish for one Ingress or Service, over the process's defaults. The
// original ignores foreign prefixes, so that a manifest with them runs on EKS
// too.
const overridePrefix = "alb.lameduck.dev/"

// overrides are an object's annotations under overridePrefix, without it.
type overrides map[string]string

var knownOverrides = []string{
	"close-idle-at-deregistration", "controller-lag", "deregistration-lag", "lose-deregistrations",
	"over-quota", "pool-order", "registration-lag", "targets-api-interval", "unusable-status", "weight-lag",
}

// check finds misspelled names: nobody else uses the prefix.
func (o overrides) check() error {
	var errs []error
	for name := range o {
		if !slices.Contains(knownOverrides, name) {
			errs = append(errs, fmt.Errorf("annotation %s%s is unknown: want one of %s", overridePrefix, name, strings.Join(knownOverrides, ", ")))
		}
	}
	return errors.Join(errs...)
}

// lag reads a range of times as elb.ParseRange does; nil if it is not set.
func (o overrides) lag(name string) (*elb.Range, error) {
	v, ok := o[name]
	if !ok {
		return nil, nil
	}
	r, err := elb.ParseRange(v)
	if err != nil {
		return nil, fmt.Errorf("annotation %s%s is %w", overridePrefix, name, err)
	}
	return &r, nil
}

// interval reads a time; 0 if it is not set, or none.
func (o overrides) interval(name string) (time.Duration, error) {
	v, ok := o[name]
	if !ok || v == "none" {
		return 0, nil
	}
	d, err := time.ParseDuration(v)
	if err != nil || d <= 0 || d > time.Hour {
		return 0, badValue(overridePrefix+name, v, "none, or a time like 30s, above 0s and at most 1h")
	}
	return d, nil
}

// word reads one of a set of values; "" if it is not set.
func (o overrides) word(name string, values ...string) (string, error) {
	v, ok := o[name]
	if ok && !slices.Contains(values, v) {
		return "", badValue(overridePrefix+name, v, "one of "+strings.Join(values, ", "))
	}
	return v, nil
}

// group sets what concerns a target group.
func (o overrides) group(g *elb.TargetGroup) error {
	var errs [7]error
	g.DeregistrationLag, errs[0] = o.lag("deregistration-lag")
	g.RegistrationLag, errs[1] = o.lag("registration-lag")
	lose, err := o.word("lose-deregistrations", boolean...)
	g.LoseDeregistrations, errs[2] = lose == "true", err
	g.CallInterval, errs[6] = o.interval("targets-api-interval")
	closeIdle, err := o.word("close-idle-at-deregistration", boolean...)
	errs[3] = err
	if closeIdle != "" {
		yes := closeIdle == "true"
		g.CloseIdle = &yes
	}
	order, err := o.word("pool-order", "lifo", "fifo")
	errs[4] = err
	switch order {
	case "lifo":
		g.PoolOrder = "lifo"
	case "fifo":
		g.PoolOrder = "fifo"
	}
	status, err := o.word("unusable-status", "502", "503")
	errs[5] = err
	g.UnusableStatus, _ = strconv.Atoi(status) // "" is 0: not set
	return errors.Join(errs[:]...)
}
