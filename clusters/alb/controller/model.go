package controller

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"lameduck/clusters/alb/elb"
)

// Defaults of attributes (D: AWS user guide for Application Load Balancers, Load
// balancer attributes and Target group attributes).
const (
	defaultIdleTimeout         = 60 * time.Second
	defaultClientKeepAlive     = 3600 * time.Second
	defaultDeregistrationDelay = 300 * time.Second
	defaultSticky              = 24 * time.Hour // stickiness.lb_cookie.duration_seconds
)

// model is what one Ingress asks for, fully resolved.
type model struct {
	loadBalancer elb.LoadBalancer
	bindings     []binding
}

// binding ties a target group to a port of a Service, as the AWS controller's
// TargetGroupBinding does. There are no such objects here: it lives in memory.
type binding struct {
	name    string // k8s-<namespace>-<service>-<hash>
	group   elb.TargetGroup
	service string // in the Ingress's namespace
	port    corev1.ServicePort
	lag     elb.Range // of the controller itself, for tests and faults
	labels  string    // target-node-labels, "" for all nodes
}

// modelBuilder collects everything that is wrong, not only the first thing.
type modelBuilder struct {
	ingress     *networkingv1.Ingress
	annotations annotations
	overrides   overrides
	service     func(name string) *corev1.Service // nil if there is none
	model       model
	warnings    []string
	errs        []error
}

// buildModel resolves an Ingress. Warnings are for things that are ignored;
// with an error the model must not be used.
func buildModel(ing *networkingv1.Ingress, service func(name string) *corev1.Service) (model, []string, error) {
	b := &modelBuilder{ingress: ing, annotations: annotationsOf(ing.Annotations), overrides: overridesOf(ing.Annotations), service: service}
	if ignored := append(b.annotations.ignored(), b.overrides.unknown()...); len(ignored) > 0 {
		b.warn("has no effect on this stand-in: %s", strings.Join(ignored, ", "))
	}
	b.readLoadBalancer()
	for _, rule := range ing.Spec.Rules {
		if rule.HTTP == nil {
			continue
		}
		for _, path := range sortPaths(rule.HTTP.Paths) {
			b.addRule(rule.Host, path)
		}
	}
	if ing.Spec.DefaultBackend != nil {
		b.model.loadBalancer.Default = b.action(*ing.Spec.DefaultBackend)
	}
	slices.Sort(b.warnings)
	return b.model, slices.Compact(b.warnings), errors.Join(b.errs...)
}

func (b *modelBuilder) warn(format string, args ...any) {
	b.warnings = append(b.warnings, fmt.Sprintf(format, args...))
}

func (b *modelBuilder) fail(err error) {
	if err == nil {
		return
	}
	// Two paths to one Service find the same mistake twice.
	for _, e := range b.errs {
		if e.Error() == err.Error() {
			return
		}
	}
	b.errs = append(b.errs, err)
}

// readLoadBalancer reads what concerns the load balancer as a whole.
func (b *modelBuilder) readLoadBalancer() {
	lb := &b.model.loadBalancer
	lb.Name = b.ingress.Namespace + "/" + b.ingress.Name
	var err error
	lb.Listeners, err = b.annotations.listenPorts()
	b.fail(err)
	_, err = b.annotations.oneOf("scheme", "internal", "internet-facing")
	b.fail(err)
	attrs := b.attributes(b.annotations, "load-balancer-attributes", loadBalancerAttributes)
	lb.IdleTimeout = seconds(attrs, "idle_timeout.timeout_seconds", defaultIdleTimeout)
	lb.ClientKeepAlive = seconds(attrs, "client_keep_alive.seconds", defaultClientKeepAlive)
	lb.WeightLag, err = b.overrides.lag("weight-lag")
	b.fail(err)
	if len(b.ingress.Spec.TLS) > 0 {
		b.warn("has no effect on this stand-in: spec.tls (HTTPS listeners have a self-signed certificate)")
	}
}

func (b *modelBuilder) attributes(a annotations, name string, accepted map[string]attribute) map[string]string {
	values, ignored, err := a.attributes(name, accepted)
	b.fail(err)
	if len(ignored) > 0 {
		b.warn("has no effect on this stand-in: %s%s: %s", annotationPrefix, name, strings.Join(ignored, ", "))
	}
	return values
}

// seconds reads an attribute whose range has been checked.
func seconds(attrs map[string]string, key string, byDefault time.Duration) time.Duration {
	n, err := strconv.Atoi(attrs[key])
	if err != nil {
		return byDefault // not set
	}
	return time.Duration(n) * time.Second
}

// addRule adds the rule of one path. Priorities are in the order of the rules,
// from 1, as the controller gives them.
func (b *modelBuilder) addRule(host string, path networkingv1.HTTPIngressPath) {
	patterns, err := pathPatterns(path)
	b.fail(err)
	rules := &b.model.loadBalancer.Rules
	rule := elb.Rule{Priority: len(*rules) + 1, Paths: patterns, Action: b.action(path.Backend)}
	if host != "" {
		rule.Hosts = []string{strings.ToLower(host)}
	}
	if path.Backend.Service != nil {
		b.fail(b.annotations.conditions(path.Backend.Service.Name, &rule))
	}
	*rules = append(*rules, rule)
}

// action is what a backend asks for: a forward to its Service, or what its
// annotation actions.<name> says.
func (b *modelBuilder) action(be networkingv1.IngressBackend) elb.Action {
	if be.Service == nil {
		b.fail(fmt.Errorf("backend %s: want a service: resource backends are not supported", describe(be)))
		return elb.Action{}
	}
	if be.Service.Port.Name == "use-annotation" {
		a, err := b.annotations.action(be.Service.Name, b.forward)
		b.fail(err)
		return a
	}
	return elb.Action{Forward: []elb.WeightedGroup{{GroupID: b.forward(be.Service.Name, be.Service.Port), Weight: 1}}}
}

// forward makes the target group of a Service's port and returns its ID, "" if
// the Service does not exist: a rule without a Service answers 503.
func (b *modelBuilder) forward(service string, port networkingv1.ServiceBackendPort) string {
	group := elb.TargetGroup{
		Name:         fmt.Sprintf("%s/%s:%s", b.ingress.Namespace, service, portName(port)),
		LoadBalancer: b.model.loadBalancer.Name,
	}
	for _, bound := range b.model.bindings {
		if bound.group.ID() == group.ID() {
			return group.ID()
		}
	}
	svc := b.service(service)
	if svc == nil {
		b.warn("Service %s/%s does not exist: its paths answer 503", b.ingress.Namespace, service)
		return ""
	}
	bound, err := b.bind(group, svc, port)
	if err != nil {
		b.fail(err)
		return ""
	}
	b.model.bindings = append(b.model.bindings, bound)
	return group.ID()
}

// bind resolves what a target group is and registers. Annotations of the Service
// win over those of the Ingress.
func (b *modelBuilder) bind(g elb.TargetGroup, svc *corev1.Service, port networkingv1.ServiceBackendPort) (binding, error) {
	a := annotationsOf(svc.Annotations).over(b.annotations)
	o := overrides(annotations(overridesOf(svc.Annotations)).over(annotations(b.overrides)))
	attrs := b.attributes(a, "target-group-attributes", targetGroupAttributes)
	g.DeregistrationDelay = seconds(attrs, "deregistration_delay.timeout_seconds", defaultDeregistrationDelay)
	g.SlowStart = seconds(attrs, "slow_start.duration_seconds", 0)
	g.Algorithm = elb.Algorithm(attrs["load_balancing.algorithm.type"])
	if g.Algorithm == "" {
		g.Algorithm = elb.RoundRobin
	}
	g.AnomalyMitigation = attrs["load_balancing.algorithm.anomaly_mitigation"] == "on"
	if attrs["stickiness.enabled"] == "true" {
		g.Sticky = seconds(attrs, "stickiness.lb_cookie.duration_seconds", defaultSticky)
	}
	if g.SlowStart > 0 && g.Algorithm != elb.RoundRobin {
		return binding{}, badValue("target-group-attributes", "slow_start.duration_seconds="+attrs["slow_start.duration_seconds"], "0 with an algorithm other than round_robin")
	}
	check, checkPort, errCheck := a.healthCheck()
	protocol, errProtocol := a.oneOf("backend-protocol", string(elb.HTTP), string(elb.HTTPS))
	_, errVersion := a.oneOf("backend-protocol-version", "HTTP1")
	targetType, errType := a.oneOf("target-type", string(elb.TargetInstance), string(elb.TargetIP))
	var errOverrides, errLag error
	g.Overrides, errOverrides = o.forGroup()
	lag, errLag := o.lag("controller-lag")
	if err := errors.Join(errCheck, errProtocol, errVersion, errType, errOverrides, errLag); err != nil {
		return binding{}, err
	}
	g.Protocol, g.Type, g.HealthCheck = elb.Protocol(protocol), elb.TargetType(targetType), check
	servicePort, err := findPort(svc, port)
	if err != nil {
		return binding{}, err
	}
	if g.Type == elb.TargetInstance {
		if svc.Spec.Type != corev1.ServiceTypeNodePort && svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
			return binding{}, fmt.Errorf("service %s/%s is of type %s: want NodePort or LoadBalancer with target-type instance", svc.Namespace, svc.Name, svc.Spec.Type)
		}
		if servicePort.NodePort == 0 {
			return binding{}, fmt.Errorf("service %s/%s port %d has no nodePort yet", svc.Namespace, svc.Name, servicePort.Port)
		}
	}
	if g.HealthCheck.Port, err = healthCheckPort(checkPort, g.Type, svc); err != nil {
		return binding{}, err
	}
	made := binding{name: bindingName(g), group: g, service: svc.Name, port: servicePort, labels: a["target-node-labels"]}
	if lag != nil {
		made.lag = *lag
	}
	return made, nil
}

// bindingName is a name as the controller makes them for its
// TargetGroupBindings: parts of the names, and a hash of all of them.
func bindingName(g elb.TargetGroup) string {
	namespace, rest, _ := strings.Cut(g.Name, "/")
	service, _, _ := strings.Cut(rest, ":")
	short := func(s string) string { return s[:min(8, len(s))] }
	sum := sha256.Sum256([]byte(g.ID()))
	return "k8s-" + short(namespace) + "-" + short(service) + "-" + hex.EncodeToString(sum[:])[:10]
}

func findPort(svc *corev1.Service, want networkingv1.ServiceBackendPort) (corev1.ServicePort, error) {
	for _, p := range svc.Spec.Ports {
		if want.Name != "" && p.Name == want.Name || want.Name == "" && p.Port == want.Number {
			return p, nil
		}
	}
	return corev1.ServicePort{}, fmt.Errorf("service %s/%s has no port %s", svc.Namespace, svc.Name, portName(want))
}

func portName(p networkingv1.ServiceBackendPort) string {
	if p.Name != "" {
		return p.Name
	}
	return strconv.Itoa(int(p.Number))
}

func describe(be networkingv1.IngressBackend) string {
	if be.Resource != nil {
		return be.Resource.Kind + "/" + be.Resource.Name
	}
	return "without a service"
}

// sortPaths orders one rule's paths as the controller does: exact ones, then
// prefixes, the longest first, then the others as they are given.
func sortPaths(paths []networkingv1.HTTPIngressPath) []networkingv1.HTTPIngressPath {
	rank := func(p networkingv1.HTTPIngressPath) int {
		switch pathType(p) {
		case networkingv1.PathTypeExact:
			return 0
		case networkingv1.PathTypePrefix:
			return 1
		}
		return 2
	}
	sorted := slices.Clone(paths)
	slices.SortStableFunc(sorted, func(x, y networkingv1.HTTPIngressPath) int {
		if d := rank(x) - rank(y); d != 0 {
			return d
		}
		if rank(x) == 1 {
			return len(y.Path) - len(x.Path)
		}
		return 0
	})
	return sorted
}

func pathType(p networkingv1.HTTPIngressPath) networkingv1.PathType {
	if p.PathType == nil {
		return networkingv1.PathTypeImplementationSpecific
	}
	return *p.PathType
}

// pathPatterns are the patterns of a listener rule for a path: ? and * have a
// meaning in ImplementationSpecific ones only.
func pathPatterns(p networkingv1.HTTPIngressPath) ([]string, error) {
	kind := pathType(p)
	if kind != networkingv1.PathTypeImplementationSpecific && strings.ContainsAny(p.Path, "*?") {
		return nil, fmt.Errorf("path %q: want no * or ? with pathType %s", p.Path, kind)
	}
	switch {
	case p.Path == "", kind == networkingv1.PathTypePrefix && p.Path == "/":
		return []string{"/*"}, nil
	case kind == networkingv1.PathTypePrefix:
		path := strings.TrimSuffix(p.Path, "/")
		return []string{path, path + "/*"}, nil
	}
	return []string{p.Path}, nil
}
