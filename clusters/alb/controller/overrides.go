package controller

import (
	"errors"
	"strconv"
	"strings"

	"lameduck/clusters/alb/elb"
	"lameduck/clusters/alb/proxy"
)

// OverridePrefix is in front of the annotations by which an Ingress or a Service
// sets what AWS does not publish. The AWS controller does not look at them, so
// that a manifest with them runs on EKS unchanged.
const OverridePrefix = "alb.lameduck.dev/"

// overrides are the annotations of one object under OverridePrefix.
type overrides map[string]string

func overridesOf(all map[string]string) overrides {
	o := make(overrides)
	for name, value := range all {
		if suffix, ok := strings.CutPrefix(name, OverridePrefix); ok {
			o[suffix] = value
		}
	}
	return o
}

func (o overrides) bad(name, want string) error {
	return errors.New("annotation " + OverridePrefix + name + " is " + strconv.Quote(o[name]) + ": want " + want)
}

// lag reads a range; nil: it is not set.
func (o overrides) lag(name string) (*elb.Range, error) {
	v, ok := o[name]
	if !ok {
		return nil, nil
	}
	r, err := elb.ParseRange(v)
	if err != nil {
		return nil, o.bad(name, "none, nlb, a duration like 17s or a range like 5s..20s, up to 1h")
	}
	return &r, nil
}

// choice reads one of some words; "": it is not set.
func (o overrides) choice(name string, words ...string) (string, error) {
	v, ok := o[name]
	if !ok {
		return "", nil
	}
	for _, w := range words {
		if v == w {
			return v, nil
		}
	}
	return "", o.bad(name, "one of "+strings.Join(words, ", "))
}

var overrideNames = []string{"deregistration-lag", "registration-lag", "weight-lag", "controller-lag",
	"lose-deregistrations", "close-idle-at-deregistration", "pool-order", "unusable-status", "over-quota"}

// forGroup are the settings of a target group.
func (o overrides) forGroup() (elb.Overrides, error) {
	var out elb.Overrides
	var errs []error
	note := func(err error) { errs = append(errs, err) }
	var err error
	out.DeregistrationLag, err = o.lag("deregistration-lag")
	note(err)
	out.RegistrationLag, err = o.lag("registration-lag")
	note(err)
	lose, err := o.choice("lose-deregistrations", "true", "false")
	note(err)
	out.LoseDeregistrations = lose == "true"
	idle, err := o.choice("close-idle-at-deregistration", "true", "false")
	note(err)
	if idle != "" {
		closes := idle == "true"
		out.CloseIdleAtDeregistration = &closes
	}
	order, err := o.choice("pool-order", string(proxy.PoolLIFO), string(proxy.PoolFIFO))
	note(err)
	out.PoolOrder = proxy.PoolOrder(order)
	status, err := o.choice("unusable-status", "502", "503")
	note(err)
	if status != "" {
		out.UnusableStatus, _ = strconv.Atoi(status) // one of two numbers
	}
	quota, err := o.choice("over-quota", string(elb.OverQuotaRefuse), string(elb.OverQuotaStale))
	note(err)
	out.OverQuota = elb.OverQuota(quota)
	return out, errors.Join(errs...)
}

// unknown are the names, sorted, that mean nothing.
func (o overrides) unknown() []string {
	var names []string
	for name := range o {
		found := false
		for _, n := range overrideNames {
			found = found || n == name
		}
		if !found {
			names = append(names, OverridePrefix+name)
		}
	}
	return names
}
