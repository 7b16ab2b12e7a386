package controller

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"

	"lameduck/clusters/alb/elb"
)

// binding is what a TargetGroupBinding is to the original: the targets of a
// target group are those of a Service port.
type binding struct {
	name       string // as bindingName makes it
	group      string // the target group
	namespace  string
	service    string
	port       networkingv1.ServiceBackendPort
	targetType elb.TargetType
	nodeLabels labels.Set // of nodes that are targets; nil: all
	lag        elb.Range  // controller-lag
	overQuota  OverQuota
	ingress    *networkingv1.Ingress // gets the Events
}

// targetHealthPrefix is in front of a binding's name in the type of its pod
// condition (controller, pkg/targetgroupbinding/utils.go).
const targetHealthPrefix = "target-health.elbv2.k8s.aws/"

// condition is the readiness gate of pods whose targets are in the group.
func (b *binding) condition() corev1.PodConditionType {
	return corev1.PodConditionType(targetHealthPrefix + b.name)
}

// bindingState is a binding and what is remembered about it.
type bindingState struct {
	binding
	// removed says that nobody wants it any more: its pods are still to be let
	// go. That is done by the binding queue, so that no look at the binding that
	// is under way comes after it.
	removed bool
	// until is when the change of endpoints that is waiting for the controller
	// lag may be looked at.
	until time.Time
	// said is the last failure that was told, so that none is repeated.
	said string
}

// bindingSet has all bindings. Both queues and the webhook use it.
type bindingSet struct {
	mu  sync.Mutex
	all map[string]*bindingState
}

func newBindingSet() *bindingSet { return &bindingSet{all: make(map[string]*bindingState)} }

// put adds a binding or changes it. Removed ones come back.
func (s *bindingSet) put(b binding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.all[b.name]; old != nil {
		old.binding, old.removed = b, false
		return
	}
	s.all[b.name] = &bindingState{binding: b}
}

func (s *bindingSet) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state := s.all[name]; state != nil {
		state.removed = true
	}
}

// forget is the end of a removed binding.
func (s *bindingSet) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state := s.all[name]; state != nil && state.removed {
		delete(s.all, name)
	}
}

// get returns a binding and how long it must not be looked at.
func (s *bindingSet) get(name string) (b binding, removed bool, held time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.all[name]
	if state == nil {
		return binding{}, false, 0, false
	}
	return state.binding, state.removed, time.Until(state.until), true
}

// with returns the bindings for which match holds.
func (s *bindingSet) with(match func(*binding) bool) []binding {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []binding
	for _, state := range s.all {
		if !state.removed && match(&state.binding) {
			found = append(found, state.binding)
		}
	}
	return found
}

// hold delays what is done about a change that is seen now, and returns by how
// much. One that comes while another waits goes with it.
func (s *bindingSet) hold(name string, lag time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	state, now := s.all[name], time.Now()
	if state == nil {
		return 0
	}
	if !state.until.After(now) {
		state.until = now.Add(lag)
	}
	return state.until.Sub(now)
}

// news says whether a failure ("" is none) is another than last time.
func (s *bindingSet) news(name, failure string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.all[name]
	if state == nil || state.said == failure {
		return false
	}
	state.said = failure
	return true
}

// change is what has to be done to a target group.
type change struct {
	deregister, register []netip.AddrPort
	// again are to be registered while they still drain. A call with such an
	// address may be refused as a whole, so they have one of their own.
	again []netip.AddrPort
	// fits says that the group will have no more targets than it has, so that
	// no quota can be in the way.
	fits bool
}

// difference compares what a group has with what it should have. Draining
// targets count as gone: an endpoint at such an address is registered anew
// (controller, pkg/targetgroupbinding/resource_manager.go).
func difference[V any](wanted map[netip.AddrPort]V, health []elb.TargetHealth) (c change) {
	has, draining := make(map[netip.AddrPort]bool, len(health)), make(map[netip.AddrPort]bool)
	for _, h := range health {
		if h.State == elb.StateDraining {
			draining[h.Target] = true
			continue
		}
		has[h.Target] = true
		if _, ok := wanted[h.Target]; !ok {
			c.deregister = append(c.deregister, h.Target)
		}
	}
	for target := range wanted {
		switch {
		case draining[target]:
			c.again = append(c.again, target)
		case !has[target]:
			c.register = append(c.register, target)
		}
	}
	slices.SortFunc(c.again, netip.AddrPort.Compare)
	c.fits = len(wanted) <= len(health)
	slices.SortFunc(c.register, netip.AddrPort.Compare)
	return c
}
