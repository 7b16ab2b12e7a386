package kube

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"lameduck/harness"
)

// Labels and names of what a trial deploys.
const (
	nameLabel      = "app.kubernetes.io/name"
	managedByLabel = "app.kubernetes.io/managed-by"
	managedBy      = "lameduck"
	runLabel       = "lameduck.dev/run"

	// appName is the Deployment, Service, HPA, Ingress and container of the
	// workload; controlName those of the static target beside it.
	appName     = "app"
	controlName = "control"

	// IngressClass is the class of the AWS Load Balancer Controller, and of the
	// stand-in.
	IngressClass = "alb"

	controlPath  = "/lameduck-control"
	portName     = "http"
	servicePort  = 80
	appPort      = 8080
	healthPath   = "/healthz"
	targetBinary = "/target"
)

const (
	// cpuTarget is the HPA's target, in percent of the CPU request. A pod that
	// burns its request is far above it and an idle one far below, so that
	// neither the HPA's tolerance of 10 % nor the load's own use matters.
	cpuTarget = 50
	// stabilization is how long the HPA looks back for a higher recommendation
	// before it scales in. The default of 300 s would add five minutes to each
	// trial; one scrape of metrics-server (15 s by default) is enough that no
	// single odd sample removes pods.
	stabilization = 15
)

// Objects are all that one trial deploys.
type Objects struct {
	Namespace   *corev1.Namespace
	Services    []*corev1.Service
	Ingress     *networkingv1.Ingress
	Deployments []*appsv1.Deployment
	HPA         *autoscalingv2.HorizontalPodAutoscaler
}

// Manifests makes the objects of a trial. The load balancer's listener gets
// listenPort; image is the built-in application's. An error names the field of
// the setup that Kubernetes would refuse.
func Manifests(t harness.Trial, image string, listenPort int) (Objects, error) {
	cpu, err := resource.ParseQuantity(t.Setup.Workload.CPURequest)
	if err != nil || cpu.Sign() <= 0 {
		return Objects{}, fmt.Errorf("workload.cpuRequest is %q: want a Kubernetes quantity above 0, like 50m", t.Setup.Workload.CPURequest)
	}
	if listenPort < 1 || listenPort > 65535 {
		return Objects{}, fmt.Errorf("listener port %d of trial %d: want 1..65535; run fewer trials at a time", listenPort, t.Number)
	}
	m := maker{trial: t, image: image, cpu: cpu}
	objects := Objects{
		Namespace:   m.namespace(),
		Services:    []*corev1.Service{m.service(appName), m.service(controlName)},
		Ingress:     m.ingress(listenPort),
		Deployments: []*appsv1.Deployment{m.app(), m.control()},
		HPA:         m.hpa(),
	}
	return objects, objects.colour(t.Setup, appName, appName)
}

// namespaceName is the namespace of a trial.
func namespaceName(t harness.Trial) string { return fmt.Sprintf("lameduck-%s-%04d", t.RunID, t.Number) }

type maker struct {
	trial harness.Trial
	image string
	cpu   resource.Quantity
}

func (m maker) labels() map[string]string {
	return map[string]string{managedByLabel: managedBy, runLabel: m.trial.RunID}
}

// meta names an object of the trial's namespace.
func (m maker) meta(name string) metav1.ObjectMeta {
	labels := m.labels()
	labels[nameLabel] = name
	return metav1.ObjectMeta{Name: name, Namespace: namespaceName(m.trial), Labels: labels}
}

func (m maker) namespace() *corev1.Namespace {
	return &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: namespaceName(m.trial), Labels: m.labels()},
	}
}

func (m maker) service(name string) *corev1.Service {
	kind := corev1.ServiceTypeClusterIP
	if m.trial.Setup.LoadBalancer.TargetType == harness.TargetInstance {
		kind = corev1.ServiceTypeNodePort // where the load balancer sends to
	}
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: m.meta(name),
		Spec: corev1.ServiceSpec{
			Type:     kind,
			Selector: map[string]string{nameLabel: name},
			Ports:    []corev1.ServicePort{{Name: portName, Port: servicePort, TargetPort: intstr.FromString(portName)}},
		},
	}
}

// ingress asks for the load balancer in the words of the AWS Load Balancer
// Controller (its guide, Ingress annotations). What is not asked for has the
// controller's defaults.
func (m maker) ingress(listenPort int) *networkingv1.Ingress {
	lb := m.trial.Setup.LoadBalancer
	meta := m.meta(appName)
	meta.Annotations = map[string]string{
		"alb.ingress.kubernetes.io/target-type":              string(lb.TargetType),
		"alb.ingress.kubernetes.io/listen-ports":             fmt.Sprintf(`[{"HTTP":%d}]`, listenPort),
		"alb.ingress.kubernetes.io/load-balancer-attributes": fmt.Sprintf("idle_timeout.timeout_seconds=%d", wholeSeconds(lb.IdleTimeout)),
		"alb.ingress.kubernetes.io/target-group-attributes":  fmt.Sprintf("deregistration_delay.timeout_seconds=%d", wholeSeconds(lb.DeregistrationDelay)),
		// The application is checked where it says whether it is ready, and as often
		// as ELBv2 allows (CreateTargetGroup: HealthCheckIntervalSeconds 5..300): a
		// target whose first check fails costs a trial one interval.
		"alb.ingress.kubernetes.io/healthcheck-path":             healthPath,
		"alb.ingress.kubernetes.io/healthcheck-interval-seconds": "5",
		"alb.ingress.kubernetes.io/healthcheck-timeout-seconds":  "2",
		// For the stand-in; the AWS controller does not look at them.
		"alb.lameduck.dev/deregistration-lag": lb.DeregistrationLag.String(),
		"alb.lameduck.dev/registration-lag":   lb.RegistrationLag.String(),
	}
	class, prefix := IngressClass, networkingv1.PathTypePrefix
	path := func(path, service string) networkingv1.HTTPIngressPath {
		return networkingv1.HTTPIngressPath{
			Path: path, PathType: &prefix,
			Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
				Name: service, Port: networkingv1.ServiceBackendPort{Number: servicePort},
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
					path(controlPath, controlName), path("/", appName),
				}},
			}}},
		},
	}
}

// hpa starts with bounds between which the controller cannot move, except with
// DriveCPU, where it must be free to follow the metric down.
func (m maker) hpa() *autoscalingv2.HorizontalPodAutoscaler {
	s := m.trial.Setup
	minReplicas, maxReplicas, target, window := int32(s.Workload.Replicas), int32(s.Workload.Replicas), int32(cpuTarget), int32(stabilization)
	var behavior *autoscalingv2.HorizontalPodAutoscalerBehavior
	if s.Scenario.Drive == harness.DriveCPU {
		minReplicas = int32(s.Scenario.To)
		behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{
			ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: &window},
		}
	}
	return &autoscalingv2.HorizontalPodAutoscaler{
		TypeMeta:   metav1.TypeMeta{APIVersion: "autoscaling/v2", Kind: "HorizontalPodAutoscaler"},
		ObjectMeta: m.meta(appName),
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: appName},
			MinReplicas:    &minReplicas,
			MaxReplicas:    maxReplicas,
			Metrics: []autoscalingv2.MetricSpec{{
				Type: autoscalingv2.ResourceMetricSourceType,
				Resource: &autoscalingv2.ResourceMetricSource{
					Name:   corev1.ResourceCPU,
					Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &target},
				},
			}},
			Behavior: behavior,
		},
	}
}

// wholeSeconds rounds up: half a second of patience is not none.
func wholeSeconds(d harness.Duration) int64 {
	return int64((d.Duration + time.Second - 1) / time.Second)
}
