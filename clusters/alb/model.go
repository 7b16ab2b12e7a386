package alb

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// model is what one Ingress asks of a load balancer, fully resolved.
type model struct {
	ports           []uint16
	idleTimeout     time.Duration
	clientKeepAlive time.Duration
	rules           []ruleModel // in order of priority
	groups          map[string]groupModel
	fallback        string // group of the default backend
	hasFallback     bool
}

// ruleModel sends what matches to a group; "" if the Service does not exist.
type ruleModel struct {
	host  string // lower case
	paths []string
	group string
}

// groupModel is one target group.
type groupModel struct {
	targets             []string // host:port, sorted
	deregistrationDelay time.Duration
	// health is read and checked; in instance mode every Ready node counts as
	// healthy so far.
	health healthCheck
}

// clusterState is what a model depends on besides the Ingress.
type clusterState struct {
	// service returns nil if there is no such Service.
	service func(name string) *corev1.Service
	nodes   []*corev1.Node
}

// modelBuilder collects everything that is wrong, not only the first thing.
type modelBuilder struct {
	ingress     *networkingv1.Ingress
	annotations annotations
	state       clusterState
	model       model
	warnings    []string
	errs        []error
}

// buildModel resolves an Ingress. Warnings are for things that are ignored;
// with an error the model must not be used.
func buildModel(ing *networkingv1.Ingress, state clusterState) (model, []string, error) {
	b := &modelBuilder{ingress: ing, annotations: annotationsOf(ing.Annotations), state: state}
	b.model.groups = make(map[string]groupModel)
	if ignored := b.annotations.ignored(); len(ignored) > 0 {
		b.warn("has no effect on this stand-in (yet): %s", strings.Join(ignored, ", "))
	}
	b.loadBalancer()
	for _, rule := range ing.Spec.Rules {
		if rule.HTTP == nil {
			continue
		}
		for _, path := range sortPaths(rule.HTTP.Paths) {
			patterns, err := pathPatterns(path)
			b.fail(err)
			b.model.rules = append(b.model.rules, ruleModel{
				host:  strings.ToLower(rule.Host),
				paths: patterns,
				group: b.backend(path.Backend),
			})
		}
	}
	if ing.Spec.DefaultBackend != nil {
		b.model.hasFallback = true
		b.model.fallback = b.backend(*ing.Spec.DefaultBackend)
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

// loadBalancer reads what concerns the load balancer as a whole.
func (b *modelBuilder) loadBalancer() {
	var err error
	b.model.ports, err = b.annotations.listenPorts()
	b.fail(err)
	_, err = b.annotations.oneOf("scheme", "internal", "internet-facing")
	b.fail(err)
	attrs := b.attributes(b.annotations, "load-balancer-attributes", loadBalancerAttributes)
	b.model.idleTimeout = seconds(attrs, "idle_timeout.timeout_seconds", defaultIdleTimeout)
	b.model.clientKeepAlive = seconds(attrs, "client_keep_alive.seconds", defaultClientKeepAlive)
	if len(b.ingress.Spec.TLS) > 0 {
		b.warn("has no effect on this stand-in (yet): spec.tls")
	}
}

func (b *modelBuilder) attributes(a annotations, name string, accepted map[string]attribute) map[string]string {
	values, ignored, err := a.attributes(name, accepted)
	b.fail(err)
	if len(ignored) > 0 {
		b.warn("has no effect on this stand-in (yet): %s%s: %s", annotationPrefix, name, strings.Join(ignored, ", "))
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

// backend makes the target group of a backend and returns its name, "" if the
// Service does not exist: a rule without a Service answers 503.
func (b *modelBuilder) backend(be networkingv1.IngressBackend) string {
	if be.Service == nil {
		b.fail(fmt.Errorf("backend %s: want a service: resource backends are not supported", describe(be)))
		return ""
	}
	if be.Service.Port.Name == "use-annotation" {
		b.fail(fmt.Errorf("backend %s: annotation %sactions.%s is not supported yet by this stand-in: name a Service and its port",
			be.Service.Name, annotationPrefix, be.Service.Name))
		return ""
	}
	name := fmt.Sprintf("%s/%s:%s", b.ingress.Namespace, be.Service.Name, portName(be.Service.Port))
	if _, done := b.model.groups[name]; done {
		return name
	}
	svc := b.state.service(be.Service.Name)
	if svc == nil {
		b.warn("Service %s/%s does not exist: its paths answer 503", b.ingress.Namespace, be.Service.Name)
		return ""
	}
	g, err := b.group(svc, be.Service.Port)
	if err != nil {
		b.fail(err)
		return ""
	}
	b.model.groups[name] = g
	return name
}

func (b *modelBuilder) group(svc *corev1.Service, port networkingv1.ServiceBackendPort) (groupModel, error) {
	a := annotationsOf(svc.Annotations).over(b.annotations)
	attrs := b.attributes(a, "target-group-attributes", targetGroupAttributes)
	g := groupModel{deregistrationDelay: seconds(attrs, "deregistration_delay.timeout_seconds", defaultDeregistrationDelay)}
	var err error
	g.health, err = a.healthCheck()
	_, errProtocol := a.oneOf("backend-protocol", "HTTP")
	_, errVersion := a.oneOf("backend-protocol-version", "HTTP1")
	targetType, errType := a.oneOf("target-type", "instance", "ip")
	if err := errors.Join(err, errProtocol, errVersion, errType); err != nil {
		return groupModel{}, err
	}
	servicePort, err := findPort(svc, port)
	if err != nil {
		return groupModel{}, err
	}
	g.targets, err = b.targets(targetType, svc, servicePort)
	return g, err
}

// targets resolves what a target type registers. This is where IP mode will
// look at EndpointSlices; the data plane knows addresses only.
func (b *modelBuilder) targets(targetType string, svc *corev1.Service, port corev1.ServicePort) ([]string, error) {
	if targetType == "ip" {
		return nil, badValue("target-type", targetType, "instance: ip is not supported yet by this stand-in")
	}
	if svc.Spec.Type != corev1.ServiceTypeNodePort && svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return nil, fmt.Errorf("service %s/%s is of type %s: want NodePort or LoadBalancer with target-type instance", svc.Namespace, svc.Name, svc.Spec.Type)
	}
	if port.NodePort == 0 {
		return nil, fmt.Errorf("service %s/%s port %d has no nodePort yet", svc.Namespace, svc.Name, port.Port)
	}
	return instanceTargets(b.state.nodes, port.NodePort), nil
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
