package controller

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"lameduck/clusters/alb/elb"
)

// action resolves what a backend asks for.
func (m *memberBuilder) action(be networkingv1.IngressBackend) elb.Action {
	if be.Service == nil {
		m.fail(fmt.Errorf("backend %s: want a service: resource backends are not supported by the AWS Load Balancer Controller", describe(be)))
		return elb.Action{}
	}
	if be.Service.Port.Name != useAnnotation {
		return m.forward(parsedAction{groups: []forwardGroup{{service: be.Service.Name, port: be.Service.Port, weight: 1}}})
	}
	name := actionPrefix + be.Service.Name
	value, ok := m.annotations[name]
	if !ok {
		// The controller tolerates it (controller, pkg/ingress/enhanced_backend_builder.go).
		m.warn("%s%s does not exist: its paths answer 503", annotationPrefix, name)
		return elb.Action{Fixed: &elb.FixedResponse{Status: 503, ContentType: "text/plain", Body: "Backend action does not exist"}}
	}
	m.used[name] = true
	parsed, err := parseAction(annotationPrefix+name, value)
	m.fail(err)
	if err != nil || parsed.groups == nil {
		return elb.Action{Fixed: parsed.fixed, Redirect: parsed.redirect}
	}
	return m.forward(parsed)
}

// forward makes the target groups of an action. Group "" is one that does not
// exist: its share of the requests gets 503.
func (m *memberBuilder) forward(p parsedAction) elb.Action {
	a := elb.Action{Sticky: p.sticky}
	for _, g := range p.groups {
		name := ""
		if g.service == "" {
			m.warn("targetGroupARN: there are no target groups outside of the cluster here: its requests get 503")
		} else if svc := m.state.service(m.ingress.Namespace, g.service); svc != nil {
			name = m.targetGroup(svc, g.port)
		} else if len(p.groups) > 1 {
			// Tolerated only where it is the only one (controller,
			// pkg/ingress/enhanced_backend_builder.go).
			m.fail(fmt.Errorf("service %s/%s does not exist: want all Services of a weighted forward", m.ingress.Namespace, g.service))
		} else {
			m.warn("Service %s/%s does not exist: its paths answer 503", m.ingress.Namespace, g.service)
			return elb.Action{Fixed: &elb.FixedResponse{Status: 503, ContentType: "text/plain", Body: "Backend service does not exist"}}
		}
		a.Forward = append(a.Forward, elb.WeightedGroup{Group: name, Weight: g.weight})
	}
	return a
}

// targetGroup makes the target group of a Service port and its binding, and
// returns the group's name, "" with a mistake.
func (m *memberBuilder) targetGroup(svc *corev1.Service, port networkingv1.ServiceBackendPort) string {
	key := svc.Name + ":" + portName(port)
	if name, done := m.groupOf[key]; done {
		return name
	}
	m.groupOf[key] = "" // a mistake is told once
	a := annotations(over(annotationsOf(svc.Annotations), m.annotations))
	o := overrides(over(withPrefix(svc.Annotations, overridePrefix), m.overrides))
	m.warnUnsupported(annotationsOf(svc.Annotations))

	g, err := m.readTargetGroup(a, o, svc)
	b, errBinding := m.readBinding(a, o, svc, port, g.Type)
	if err := errors.Join(err, errBinding); err != nil {
		m.fail(err)
		return ""
	}
	b.name = bindingName(m.group.key, m.ingress, svc, port, g)
	g.Name = m.state.groupName(svc.Namespace+"/"+key, b.name)
	b.group = g.Name
	m.model.groups = append(m.model.groups, g)
	m.model.bindings = append(m.model.bindings, b)
	m.groupOf[key] = g.Name
	return g.Name
}

func (m *memberBuilder) readTargetGroup(a annotations, o overrides, svc *corev1.Service) (elb.TargetGroup, error) {
	var errs [7]error
	var g elb.TargetGroup
	var targetType, protocol string
	targetType, errs[0] = a.oneOf("target-type", string(elb.TargetInstance), string(elb.TargetIP))
	protocol, errs[1] = a.oneOf("backend-protocol", string(elb.HTTP), string(elb.HTTPS))
	g.Type, g.Protocol = elb.TargetType(targetType), elb.Protocol(protocol)
	errs[2] = a.protocolVersion()
	g.HealthCheck, errs[3] = a.healthCheck(svc, g.Type, g.Protocol)
	errs[4] = targetGroupValues(m.attributes(a, "target-group-attributes", targetGroupAttributes)).apply(&g)
	errs[5] = o.group(&g)
	errs[6] = o.check()
	return g, errors.Join(errs[:]...)
}

// protocolVersion allows HTTP/1.1 to targets, which is all that the stand-in
// speaks to them.
func (a annotations) protocolVersion() error {
	const name = "backend-protocol-version"
	switch v, ok := a[name]; {
	case !ok, v == "HTTP1":
		return nil
	case v == "HTTP2", v == "GRPC":
		return badValue(annotationPrefix+name, v, "HTTP1: this stand-in speaks neither HTTP/2 nor gRPC to targets")
	default:
		return badValue(annotationPrefix+name, v, "one of HTTP1, HTTP2, GRPC")
	}
}

func (m *memberBuilder) readBinding(a annotations, o overrides, svc *corev1.Service, port networkingv1.ServiceBackendPort, targetType elb.TargetType) (binding, error) {
	b := binding{
		namespace: svc.Namespace, service: svc.Name, port: port, targetType: targetType,
		lag: m.state.options.ControllerLag, overQuota: m.state.options.OverQuota, ingress: m.ingress,
	}
	var errs [4]error
	b.nodeLabels, errs[0] = a.nodeLabels()
	lag, err := o.lag("controller-lag")
	errs[1] = err
	if lag != nil {
		b.lag = *lag
	}
	quota, err := o.word("over-quota", string(OverQuotaRefuse), string(OverQuotaStale))
	errs[2] = err
	if quota != "" {
		b.overQuota = OverQuota(quota)
	}
	servicePort, err := findPort(svc, port)
	errs[3] = err
	if err == nil && targetType == elb.TargetInstance {
		_, errs[3] = nodePort(svc, servicePort)
	}
	return b, errors.Join(errs[:]...)
}

// nodePort is where instance targets listen for a Service port.
func nodePort(svc *corev1.Service, port corev1.ServicePort) (uint16, error) {
	if svc.Spec.Type != corev1.ServiceTypeNodePort && svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return 0, fmt.Errorf("service %s/%s is of type %s: want NodePort or LoadBalancer with target-type instance", svc.Namespace, svc.Name, svc.Spec.Type)
	}
	if port.NodePort == 0 {
		return 0, fmt.Errorf("service %s/%s port %d has no nodePort yet", svc.Namespace, svc.Name, port.Port)
	}
	return uint16(port.NodePort), nil
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

var notAlphanumeric = regexp.MustCompile(`[^[:alnum:]]`)

// bindingName has the form of the original's names of target groups and
// bindings: k8s-<namespace>-<service>-<hash>. It is the same after a restart,
// so that pods that wait for the binding's readiness gate are found again, and
// another one where the original needs a new target group.
func bindingName(group groupKey, ing *networkingv1.Ingress, svc *corev1.Service, port networkingv1.ServiceBackendPort, g elb.TargetGroup) string {
	id := sha256.Sum256([]byte(strings.Join([]string{
		group.loadBalancer(), ing.Namespace, ing.Name, svc.Name, portName(port), string(g.Type), string(g.Protocol),
	}, "\n")))
	short := func(s string) string { return fmt.Sprintf("%.8s", notAlphanumeric.ReplaceAllString(s, "")) }
	return fmt.Sprintf("k8s-%s-%s-%.10s", short(svc.Namespace), short(svc.Name), hex.EncodeToString(id[:]))
}
