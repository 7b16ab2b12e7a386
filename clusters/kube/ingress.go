package kube

import (
	"fmt"
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"lameduck/harness"
)

// Annotations of the AWS Load Balancer Controller (its guide, Ingress
// annotations), and for the stand-in, which the controller does not look at.
const (
	targetTypeAnnotation      = "alb.ingress.kubernetes.io/target-type"
	healthPathAnnotation      = "alb.ingress.kubernetes.io/healthcheck-path"
	lagAnnotation             = "alb.lameduck.dev/deregistration-lag"
	loseAnnotation            = "alb.lameduck.dev/lose-deregistrations"
	targetsIntervalAnnotation = "alb.lameduck.dev/targets-api-interval"
	weightLagAnnotation       = "alb.lameduck.dev/weight-lag"
	registrationLagAnnotation = "alb.lameduck.dev/registration-lag"
)

// The health checks, in seconds: as often as ELBv2 allows (CreateTargetGroup:
// HealthCheckIntervalSeconds 5..300), so that a target whose first check fails
// costs a trial one interval. With the controller's default of 2 for
// unhealthy-threshold-count, a target that has become silent is unhealthy at most
// 2 intervals and one timeout later, 12 s; package harness (unhealthyAfter) waits
// for that long.
const (
	healthCheckInterval = 5
	healthCheckTimeout  = 2
)

// service is one for our own pods, reached from within the cluster.
func (m maker) service(name string) *corev1.Service {
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: m.meta(name),
		Spec: corev1.ServiceSpec{
			Type:     corev1.ServiceTypeClusterIP,
			Selector: map[string]string{nameLabel: name},
			Ports:    []corev1.ServicePort{{Name: portName, Port: servicePort, TargetPort: intstr.FromString(portName)}},
		},
	}
}

// exposeService lets the load balancer reach a Service of the workload, and
// breaks what the deployed faults break: on the Service, whose annotations are
// over the Ingress's, so that they do not touch the control target.
func (m maker) exposeService(s *corev1.Service) {
	lb := m.trial.Setup.LoadBalancer
	if lb.TargetType == harness.TargetInstance {
		s.Spec.Type = corev1.ServiceTypeNodePort // where the load balancer sends to
		if lb.ExternalTrafficPolicy != "" {
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicy(lb.ExternalTrafficPolicy)
		}
	}
	for _, f := range m.trial.Setup.Faults {
		switch f.Kind {
		case harness.FaultLateDeregistration:
			annotate(s, lagAnnotation, f.Lag.String())
		case harness.FaultLostDeregistration:
			annotate(s, loseAnnotation, "true")
		case harness.FaultThrottledAPI:
			annotate(s, targetsIntervalAnnotation, f.Every.String())
		}
	}
}

// controlService has its pod as its target, whatever the target type of the
// workload: a request that passed a node port would suffer with that node.
func (m maker) controlService() *corev1.Service {
	s := m.service(controlName)
	annotate(s, targetTypeAnnotation, string(harness.TargetIP))
	if m.readyPath() != healthPath {
		annotate(s, healthPathAnnotation, healthPath)
	}
	return s
}

func annotate(o metav1.Object, name, value string) {
	all := maps.Clone(o.GetAnnotations())
	if all == nil {
		all = make(map[string]string)
	}
	all[name] = value
	o.SetAnnotations(all)
}

// readyPath is where the application says whether it is ready.
func (m maker) readyPath() string {
	if app := m.trial.Setup.Workload.App; app != nil {
		return app.Ready
	}
	return healthPath
}

// ingress asks for the load balancer in the words of the AWS Load Balancer
// Controller (its guide, Ingress annotations). What is not asked for has the
// controller's defaults.
func (m maker) ingress(names Names, listenPort int) *networkingv1.Ingress {
	lb := m.trial.Setup.LoadBalancer
	meta := m.meta(appName)
	meta.Annotations = map[string]string{
		targetTypeAnnotation:                                 string(lb.TargetType),
		"alb.ingress.kubernetes.io/listen-ports":             fmt.Sprintf(`[{%q:%d}]`, m.listenProtocol(), listenPort),
		"alb.ingress.kubernetes.io/load-balancer-attributes": fmt.Sprintf("idle_timeout.timeout_seconds=%d", wholeSeconds(lb.IdleTimeout)),
		"alb.ingress.kubernetes.io/target-group-attributes":  fmt.Sprintf("deregistration_delay.timeout_seconds=%d", wholeSeconds(lb.DeregistrationDelay)),
		// The application is checked where it says whether it is ready.
		healthPathAnnotation: m.readyPath(),
		"alb.ingress.kubernetes.io/healthcheck-interval-seconds": strconv.Itoa(healthCheckInterval),
		"alb.ingress.kubernetes.io/healthcheck-timeout-seconds":  strconv.Itoa(healthCheckTimeout),
		lagAnnotation:             lb.DeregistrationLag.String(),
		registrationLagAnnotation: lb.RegistrationLag.String(),
	}
	if lb.WeightLag != (harness.DurationRange{}) {
		meta.Annotations[weightLagAnnotation] = lb.WeightLag.String()
	}
	class, prefix := IngressClass, networkingv1.PathTypePrefix
	path := func(path, service string, port int32) networkingv1.HTTPIngressPath {
		return networkingv1.HTTPIngressPath{
			Path: path, PathType: &prefix,
			Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
				Name: service, Port: networkingv1.ServiceBackendPort{Number: port},
			}},
		}
	}
	return &networkingv1.Ingress{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "Ingress"},
		ObjectMeta: meta,
		Spec: networkingv1.IngressSpec{
			IngressClassName: &class,
			Rules: []networkingv1.IngressRule{{IngressRuleValue: networkingv1.IngressRuleValue{
				HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{
					path(controlPath, controlName, servicePort), path("/", names.Service, names.ServicePort),
				}},
			}}},
		},
	}
}

// listenProtocol: an ALB speaks HTTP/2 to clients on HTTPS listeners only (user
// guide, Listeners).
func (m maker) listenProtocol() string {
	if m.trial.Setup.Load.HTTP2 {
		return "HTTPS"
	}
	return "HTTP"
}
