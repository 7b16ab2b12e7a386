package kube

import (
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"lameduck/harness"
	"lameduck/harness/evidence"
)

// Labels and names of what a trial deploys.
const (
	nameLabel      = "app.kubernetes.io/name"
	managedByLabel = "app.kubernetes.io/managed-by"
	managedBy      = "lameduck"
	runLabel       = "lameduck.dev/run"

	// gateLabel of a namespace makes the controller give its pods readiness gates
	// (its guide, Pod readiness gate).
	gateLabel = "elbv2.k8s.aws/pod-readiness-gate-inject"

	// appName is the Deployment, Service, HPA, Ingress and container of the
	// workload, where its own manifests do not name them; controlName those of the
	// static target beside it.
	appName     = evidence.RoleApp
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

// Objects are all that one trial deploys.
type Objects struct {
	Names     Names
	Namespace *corev1.Namespace
	// Others are what the application's own manifests have besides.
	Others      []*unstructured.Unstructured
	Services    []*corev1.Service // the workload's, the control target's
	Ingress     *networkingv1.Ingress
	Deployments []*appsv1.Deployment // the workload's, the control target's
	HPA         *autoscalingv2.HorizontalPodAutoscaler
	Metric      *corev1.ConfigMap             // that the HPA follows; nil: none of lameduck's
	Budget      *policyv1.PodDisruptionBudget // nil: none
	// Notes say what was left out or changed of the application's own manifests,
	// and why.
	Notes []string
}

// Names are what the parts of the workload are called.
type Names struct {
	Deployment, Service, HPA, Budget string
	Container                        string // that serves the requests
	ServicePort                      int32
}

// Manifests makes the objects of a trial. The load balancer's listener gets
// listenPort; image is the built-in application's. An error names the field of
// the setup that Kubernetes would refuse.
func Manifests(t harness.Trial, image string, listenPort int) (Objects, error) {
	w := t.Setup.Workload
	cpu := resource.MustParse(defaultCPU)
	if w.App == nil || w.CPURequest != "" {
		var err error
		if cpu, err = resource.ParseQuantity(w.CPURequest); err != nil || cpu.Sign() <= 0 {
			return Objects{}, fmt.Errorf("workload.cpuRequest is %q: want a Kubernetes quantity above 0, like 50m", w.CPURequest)
		}
	}
	if listenPort < 1 || listenPort > 65535 {
		return Objects{}, fmt.Errorf("listener port %d of trial %d: want 1..65535; run fewer trials at a time", listenPort, t.Number)
	}
	if err := errors.Join(checkPreStop(w), checkOwn(t.Setup)); err != nil {
		return Objects{}, err
	}
	m := maker{trial: t, image: image, cpu: cpu}
	workload, err := m.workload()
	if err != nil {
		return Objects{}, err
	}
	for _, d := range workload.Deployments {
		if err := checkSleep(d); err != nil {
			return Objects{}, err
		}
	}
	workload.Namespace = m.namespace()
	workload.Services = append(workload.Services, m.controlService())
	workload.Deployments = append(workload.Deployments, m.control())
	workload.Ingress = m.ingress(workload.Names, listenPort)
	workload.Metric = m.metric()
	return workload, workload.colour(t.Setup)
}

// workload makes the application under test and what belongs to it.
func (m maker) workload() (Objects, error) {
	app := m.trial.Setup.Workload.App
	if app != nil && app.Manifests != "" {
		return m.ownManifests(*app)
	}
	names := Names{Deployment: appName, Service: appName, HPA: appName, Budget: appName, Container: appName, ServicePort: servicePort}
	d, notes := m.builtin(), []string(nil)
	if app != nil {
		d, notes = m.ownImage(*app), noteSleep(m.trial.Setup.Workload, appName)
	}
	s := m.service(appName)
	m.exposeService(s)
	return Objects{
		Names: names, Services: []*corev1.Service{s}, Deployments: []*appsv1.Deployment{d},
		HPA: m.hpa(names), Budget: m.budget(names), Notes: notes,
	}, nil
}

// namespaceName is the namespace of a trial. A second attempt has another one:
// the first one's may still be going away.
func namespaceName(t harness.Trial) string {
	name := fmt.Sprintf("lameduck-%s-%04d", t.RunID, t.Number)
	if t.Attempt > 1 {
		name += fmt.Sprintf("-%d", t.Attempt)
	}
	return name
}

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
	labels := m.labels()
	if m.trial.Setup.LoadBalancer.ReadinessGate {
		labels[gateLabel] = "enabled"
	}
	return &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: namespaceName(m.trial), Labels: labels},
	}
}

// wholeSeconds rounds up: half a second of patience is not none.
func wholeSeconds(d harness.Duration) int64 {
	return int64((d.Duration + time.Second - 1) / time.Second)
}
