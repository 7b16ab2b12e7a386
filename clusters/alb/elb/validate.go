package elb

import (
	"errors"
	"fmt"
)

// checkBalancer refuses what cannot be, and returns the groups that are named.
// Callers hold mu.
func (s *Service) checkBalancer(lb *LoadBalancer) (map[string]*group, error) {
	var errs []error
	if lb.Name == "" {
		errs = append(errs, fmt.Errorf("%w: it has no name", ErrInvalidConfiguration))
	}
	if min(lb.IdleTimeout, lb.ClientKeepAlive) <= 0 {
		errs = append(errs, fmt.Errorf("%w: idle timeout is %s, client keep-alive %s: want more than 0s", ErrInvalidConfiguration, lb.IdleTimeout, lb.ClientKeepAlive))
	}
	if lb.WeightLag != nil {
		if err := lb.WeightLag.check(); err != nil {
			errs = append(errs, fmt.Errorf("%w: weight lag %v", ErrInvalidConfiguration, err))
		}
	}
	errs = append(errs, s.checkListeners(lb))
	groups := make(map[string]*group)
	actions := []Action{lb.Default}
	for _, r := range lb.Rules {
		actions = append(actions, r.Action)
	}
	for i, a := range actions {
		if err := s.checkAction(a, groups); err != nil {
			errs = append(errs, fmt.Errorf("action of rule %d of %d (0 is the default): %w", i, len(lb.Rules), err))
		}
	}
	for _, g := range groups {
		if g.owner != nil && g.owner.config.Name != lb.Name {
			errs = append(errs, fmt.Errorf("%w: target group %s is load balancer %s's", ErrAssociationLimit, g.config.Name, g.owner.config.Name))
		}
	}
	quotas := s.settings.Quotas
	if n := len(groups); n > quotas.GroupsPerLoadBalancer {
		errs = append(errs, fmt.Errorf("%w: %d target groups: want at most %d", ErrTooManyGroups, n, quotas.GroupsPerLoadBalancer))
	}
	if n := (&balancer{groups: groups}).registered(); n > quotas.TargetsPerLoadBalancer {
		errs = append(errs, fmt.Errorf("%w: %d targets in all target groups: want at most %d", ErrTooManyTargets, n, quotas.TargetsPerLoadBalancer))
	}
	return groups, errors.Join(errs...)
}

func (s *Service) checkListeners(lb *LoadBalancer) error {
	var errs []error
	taken := make(map[uint16]string)
	for name, b := range s.balancers {
		if name == lb.Name {
			continue
		}
		for port := range b.listeners {
			taken[port] = "load balancer " + name
		}
	}
	delete(taken, 0) // any port
	for _, l := range lb.Listeners {
		if l.Protocol != HTTP && l.Protocol != HTTPS {
			errs = append(errs, fmt.Errorf("%w: protocol of port %d is %q: want %s or %s", ErrInvalidConfiguration, l.Port, l.Protocol, HTTP, HTTPS))
		}
		if by := taken[l.Port]; by != "" {
			errs = append(errs, fmt.Errorf("%w: port %d is that of %s", ErrDuplicateListener, l.Port, by))
		}
		taken[l.Port] = "another listener"
	}
	return errors.Join(errs...)
}

// checkAction adds the groups that an action names.
func (s *Service) checkAction(a Action, groups map[string]*group) error {
	var errs []error
	kinds := 0
	if a.Fixed != nil {
		kinds++
		if c := a.Fixed.Status; c < 200 || c > 599 {
			errs = append(errs, fmt.Errorf("%w: status of the fixed response is %d: want 200..599", ErrInvalidAction, c))
		}
	}
	if a.Redirect != nil {
		kinds++
		if c := a.Redirect.Status; c != 0 && c != 301 && c != 302 {
			errs = append(errs, fmt.Errorf("%w: status of the redirect is %d: want 301 or 302", ErrInvalidAction, c))
		}
	}
	if len(a.Forward) > 0 {
		kinds++
	}
	if kinds > 1 {
		errs = append(errs, fmt.Errorf("%w: want one of forward, fixed response and redirect", ErrInvalidAction))
	}
	if n, most := len(a.Forward), s.settings.Quotas.GroupsPerAction; n > most {
		errs = append(errs, fmt.Errorf("%w: %d target groups: want at most %d in one action", ErrInvalidAction, n, most))
	}
	if a.Sticky < 0 {
		errs = append(errs, fmt.Errorf("%w: group stickiness is %s: want 0s or more", ErrInvalidAction, a.Sticky))
	}
	for _, w := range a.Forward {
		if w.Weight < 0 || w.Weight > 999 {
			errs = append(errs, fmt.Errorf("%w: weight of target group %s is %d: want 0..999", ErrInvalidAction, w.Group, w.Weight))
		}
		if w.Group == "" {
			continue
		}
		if g := s.groups[w.Group]; g != nil {
			groups[w.Group] = g
		} else {
			errs = append(errs, fmt.Errorf("%w: %s", ErrTargetGroupNotFound, w.Group))
		}
	}
	return errors.Join(errs...)
}
