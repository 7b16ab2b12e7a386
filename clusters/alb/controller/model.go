package controller

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"lameduck/clusters/alb/elb"
)

// model is what one Ingress, or a group of them, asks for, fully resolved.
type model struct {
	lb       elb.LoadBalancer
	groups   []elb.TargetGroup
	bindings []binding // one for each group
}

// clusterState is what a model depends on besides the Ingresses.
type clusterState struct {
	// service returns nil if there is no such Service.
	service func(namespace, name string) *corev1.Service
	// groupName finds a free name for the target group of a binding.
	groupName func(wanted, binding string) string
	options   Options
}

// modelBuilder collects everything that is wrong, not only the first thing.
type modelBuilder struct {
	group    ingressGroup
	state    clusterState
	model    model
	attrs    map[string]string // load-balancer-attributes of all members
	redirect uint16            // the port of ssl-redirect
	fallback []elb.Rule        // the default backends
	warnings []string
	errs     []error
}

// memberBuilder adds one Ingress to a model.
type memberBuilder struct {
	*modelBuilder
	ingress     *networkingv1.Ingress
	annotations annotations
	overrides   overrides
	listeners   []elb.Listener
	used        map[string]bool   // actions.* and conditions.* that a backend names
	groupOf     map[string]string // Service and port -> target group
}

// buildModel resolves the Ingresses of a group. Warnings are for what is
// ignored; with an error the model must not be used.
func buildModel(group ingressGroup, state clusterState) (model, []string, error) {
	b := &modelBuilder{group: group, state: state, attrs: make(map[string]string)}
	b.model.lb.Name = group.key.loadBalancer()
	members := make([]*memberBuilder, 0, len(group.members))
	for _, ing := range group.members {
		m := &memberBuilder{
			modelBuilder: b,
			ingress:      ing,
			annotations:  annotationsOf(ing.Annotations),
			overrides:    withPrefix(ing.Annotations, overridePrefix),
			used:         make(map[string]bool),
			groupOf:      make(map[string]string),
		}
		m.loadBalancer()
		members = append(members, m)
	}
	for _, m := range members { // each may need to know all listeners
		m.rules()
		m.warnIgnored()
	}
	b.finish()
	slices.Sort(b.warnings)
	return b.model, slices.Compact(b.warnings), errors.Join(b.errs...)
}

func (b *modelBuilder) warn(format string, args ...any) {
	b.warnings = append(b.warnings, fmt.Sprintf(format, args...))
}

func (m *memberBuilder) fail(err error) {
	if err == nil {
		return
	}
	if len(m.group.members) > 1 {
		err = fmt.Errorf("ingress %s/%s: %w", m.ingress.Namespace, m.ingress.Name, err)
	}
	// Two paths to one Service find the same mistake twice.
	for _, e := range m.errs {
		if e.Error() == err.Error() {
			return
		}
	}
	m.errs = append(m.errs, err)
}

func (m *memberBuilder) warnIgnored() {
	for name := range m.annotations {
		prefixed := strings.HasPrefix(name, actionPrefix) || strings.HasPrefix(name, conditionPrefix)
		if prefixed && !m.used[name] {
			m.warn("%s%s: no backend has this name", annotationPrefix, name)
		}
	}
	m.warnUnsupported(m.annotations)
	if len(m.ingress.Spec.TLS) > 0 {
		m.warn("has no effect on this stand-in: spec.tls (HTTPS listeners have a self-signed certificate)")
	}
}

func (b *modelBuilder) warnUnsupported(a annotations) {
	unsupported, unknown := a.ignored()
	if len(unsupported) > 0 {
		b.warn("has no effect on this stand-in: %s", strings.Join(unsupported, ", "))
	}
	if len(unknown) > 0 {
		b.warn("not an annotation of the AWS Load Balancer Controller: %s", strings.Join(unknown, ", "))
	}
}

// loadBalancer reads what concerns the load balancer as a whole.
func (m *memberBuilder) loadBalancer() {
	var err error
	m.listeners, err = m.annotations.listenPorts()
	m.fail(err)
	lb := &m.model.lb
	for _, l := range m.listeners {
		same := slices.IndexFunc(lb.Listeners, func(other elb.Listener) bool { return other.Port == l.Port })
		switch {
		case same < 0:
			lb.Listeners = append(lb.Listeners, l)
		case lb.Listeners[same].Protocol != l.Protocol:
			m.fail(badValue(annotationPrefix+"listen-ports", m.annotations["listen-ports"],
				fmt.Sprintf("port %d with protocol %s, which another Ingress of the group gives it", l.Port, lb.Listeners[same].Protocol)))
		}
	}
	_, err = m.annotations.oneOf("scheme", "internal", "internet-facing")
	m.fail(err)
	values := m.attributes(m.annotations, "load-balancer-attributes", loadBalancerAttributes)
	for key, value := range values {
		if other, ok := m.attrs[key]; ok && other != value {
			m.fail(badValue(annotationPrefix+"load-balancer-attributes", key+"="+value, "the value "+other+", which another Ingress of the group has"))
		}
		m.attrs[key] = value
	}
	m.fail(m.overrides.check())
	if lag, err := m.overrides.lag("weight-lag"); err != nil || lag != nil {
		m.fail(err)
		lb.WeightLag = lag
	}
	// The port may be another member's: upstream looks at all listeners too.
	if _, ok := m.annotations["ssl-redirect"]; ok {
		port, err := m.annotations.sslRedirect(m.allListeners())
		m.fail(err)
		m.redirect = port
	}
}

// allListeners are those of the whole group, also of members that are not
// read yet, whose mistakes are told later.
func (b *modelBuilder) allListeners() []elb.Listener {
	var all []elb.Listener
	for _, ing := range b.group.members {
		listeners, err := annotationsOf(ing.Annotations).listenPorts()
		if err == nil {
			all = append(all, listeners...)
		}
	}
	return all
}

// rules adds a rule for each path, and the default backend.
func (m *memberBuilder) rules() {
	for _, rule := range m.ingress.Spec.Rules {
		if rule.HTTP == nil {
			continue
		}
		for _, path := range sortPaths(rule.HTTP.Paths) {
			m.rule(rule.Host, path)
		}
	}
	if be := m.ingress.Spec.DefaultBackend; be != nil {
		r := elb.Rule{Ports: m.ports(), Action: m.action(*be)}
		if slices.ContainsFunc(m.fallback, func(other elb.Rule) bool { return overlap(other.Ports, r.Ports) }) {
			m.fail(errors.New("spec.defaultBackend: another Ingress of the group has one for the same port"))
		}
		m.fallback = append(m.fallback, r)
	}
}

// overlap treats nil as all ports.
func overlap(a, b []uint16) bool {
	return a == nil || b == nil || slices.ContainsFunc(a, func(p uint16) bool { return slices.Contains(b, p) })
}

// ports are the member's if others of the group have more, nil otherwise.
func (m *memberBuilder) ports() []uint16 {
	if len(m.listeners) == len(m.model.lb.Listeners) {
		return nil
	}
	return portsOf(m.listeners)
}

func portsOf(listeners []elb.Listener) []uint16 {
	ports := make([]uint16, 0, len(listeners))
	for _, l := range listeners {
		ports = append(ports, l.Port)
	}
	return ports
}

func (m *memberBuilder) rule(host string, path networkingv1.HTTPIngressPath) {
	r := elb.Rule{Ports: m.ports()}
	if host != "" {
		r.Hosts = []string{strings.ToLower(host)}
	}
	patterns, err := pathPatterns(path)
	m.fail(err)
	r.Paths = patterns
	if path.Backend.Service != nil {
		name := conditionPrefix + path.Backend.Service.Name
		if value, ok := m.annotations[name]; ok {
			m.used[name] = true
			m.fail(addConditions(&r, annotationPrefix+name, value))
		}
	}
	m.fail(checkRule(&r))
	r.Action = m.action(path.Backend)
	if m.withoutLoops(&r) {
		m.model.lb.Rules = append(m.model.lb.Rules, r)
	}
}

// withoutLoops takes a redirect off the listeners on which it would redirect to
// itself, as the controller does for the sake of actions.ssl-redirect
// (controller, pkg/ingress/rule_optimizer.go). ok is false if none is left.
func (m *memberBuilder) withoutLoops(r *elb.Rule) (ok bool) {
	to := r.Action.Redirect
	if to == nil {
		return true
	}
	var ports []uint16
	for _, l := range m.listeners {
		same := (to.Host == "#{host}" || slices.Contains(r.Hosts, to.Host)) &&
			(to.Path == "/#{path}" || slices.Contains(r.Paths, to.Path)) &&
			(to.Port == "#{port}" || to.Port == fmt.Sprint(l.Port)) &&
			(to.Protocol == "#{protocol}" || to.Protocol == string(l.Protocol)) &&
			to.Query == "#{query}"
		if !same {
			ports = append(ports, l.Port)
		}
	}
	if len(ports) < len(m.listeners) {
		r.Ports = ports
	}
	return len(ports) > 0
}

// finish puts the rules in order of priority and adds what listeners do
// without one.
func (b *modelBuilder) finish() {
	lb := &b.model.lb
	lb.IdleTimeout = seconds(b.attrs, "idle_timeout.timeout_seconds", defaultIdleTimeout)
	lb.ClientKeepAlive = seconds(b.attrs, "client_keep_alive.seconds", defaultClientKeepAlive)
	for i := range lb.Rules {
		lb.Rules[i].Priority = i + 1
	}
	for _, r := range b.fallback {
		if r.Ports == nil {
			lb.Default = r.Action
		} else { // of one listener among several: default actions have priority 0
			lb.Rules = append(lb.Rules, r)
		}
	}
	if reflect.DeepEqual(lb.Default, elb.Action{}) {
		// controller, pkg/ingress/model_build_actions.go, build404Action
		lb.Default = elb.Action{Fixed: &elb.FixedResponse{Status: 404, ContentType: "text/plain"}}
	}
	b.redirectToHTTPS()
}

// redirectToHTTPS makes ssl-redirect the default action of HTTP listeners;
// their other rules are ignored (annotations page).
func (b *modelBuilder) redirectToHTTPS() {
	lb := &b.model.lb
	plain := slices.DeleteFunc(slices.Clone(lb.Listeners), func(l elb.Listener) bool { return l.Protocol != elb.HTTP })
	if b.redirect == 0 || len(plain) == 0 {
		return
	}
	lb.Rules = slices.Insert(lb.Rules, 0, elb.Rule{Ports: portsOf(plain), Action: elb.Action{Redirect: &elb.Redirect{
		Status: 301, Protocol: string(elb.HTTPS), Port: fmt.Sprint(b.redirect),
		Host: "#{host}", Path: "/#{path}", Query: "#{query}",
	}}})
}

// attributes reads an attribute list and warns of those that change nothing.
func (m *memberBuilder) attributes(a annotations, name string, accepted map[string]attribute) map[string]string {
	values, ignored, err := a.attributes(name, accepted)
	m.fail(err)
	if len(ignored) > 0 {
		m.warn("has no effect on this stand-in: %s%s: %s", annotationPrefix, name, strings.Join(ignored, ", "))
	}
	return values
}
