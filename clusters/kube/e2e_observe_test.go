//go:build e2e

package kube

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lameduck/harness"
)

// Everything that an instance target can have, and that the API server takes it:
// what is read back is checked by deployReal. One pod on two nodes shows the
// traffic policy: the load balancer finds one node healthy.
func testInstanceSettings(t *testing.T, w *World) {
	trial := testTrial()
	trial.Number = 14
	s := &trial.Setup
	s.Workload.Replicas = 1
	s.Workload.PreStopSleep, s.Workload.PreStopBy = harness.Dur(3*time.Second), harness.PreStopSleep
	s.Workload.MaxSurge, s.Workload.MaxUnavailable, s.Workload.MinReadySeconds = "50%", "0", 1
	s.Workload.PodDisruptionBudget = "1"
	s.Workload.HPA = harness.HPABehavior{Pods: 1, Period: harness.Dur(20 * time.Second), Stabilization: harness.Dur(30 * time.Second)}
	s.LoadBalancer.ExternalTrafficPolicy = harness.TrafficLocal
	s.Load.HTTP2 = true
	d := deployReal(t, w, trial, &memory{})
	states, err := d.(*deployment).targets(stepContext(t))
	if err != nil {
		t.Error(err)
	}
	if n := states[appName]; len(n) != 2 || healthy(n) != 1 {
		t.Errorf("nodes as targets: %v, want two, of which the one with the pod is healthy", n)
	}
	if n := states[controlName]; len(n) != 1 || healthy(n) != 1 {
		t.Errorf("targets of the control Service: %v, want its pod", n)
	}
	pod := d.(*deployment).view.podsOf(appName)[0]
	err = w.client.PolicyV1().Evictions(pod.Namespace).Evict(stepContext(t), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace}})
	if !apierrors.IsTooManyRequests(err) {
		t.Errorf("an eviction that the budget does not allow: %v, want it refused", err)
	}
	removeReal(t, w, d)
}

// The hook by request is answered by the application, and holds up the pod's end.
func testIPSettings(t *testing.T, w *World) {
	trial, rec := testTrial(), &memory{}
	trial.Number, trial.Attempt = 15, 2
	s := &trial.Setup
	s.Workload.Replicas = 2
	s.Workload.PreStopSleep, s.Workload.PreStopBy = harness.Dur(3*time.Second), harness.PreStopHTTP
	s.Workload.CloseWhileDraining, s.Workload.FailReadiness, s.Workload.KeepAlive = true, true, harness.Dur(70*time.Second)
	s.LoadBalancer.TargetType, s.LoadBalancer.ReadinessGate = harness.TargetIP, true
	s.Faults = []harness.Fault{{Kind: harness.FaultLostDeregistration}}
	d := deployReal(t, w, trial, rec)
	if err := d.(harness.HPABounds).SetHPABounds(stepContext(t), 1, 1); err != nil {
		t.Error(err)
	}
	eventually(t, "readiness fails while the hook is at it", func() bool {
		return slices.ContainsFunc(d.(*deployment).pods(), func(p *corev1.Pod) bool {
			_, err := w.http.get(stepContext(t), p.Namespace, p.Name, "/healthz")
			return p.DeletionTimestamp != nil && apierrors.IsServiceUnavailable(err)
		})
	})
	if err := d.WaitPods(stepContext(t), 1); err != nil {
		t.Error(err)
	}
	removeReal(t, w, d)
	first := slices.IndexFunc(rec.events, func(e harness.Event) bool { return e.Kind == harness.EventPodDeletionAsked })
	if first < 0 {
		t.Fatal("no pod was deleted")
	}
	asked := rec.events[first]
	for _, e := range rec.events {
		if e.Kind == harness.EventContainerExited && e.Object == asked.Object && e.At-asked.At < 3*time.Second {
			t.Errorf("pod %s ended %s after its deletion was asked for, in spite of a hook of 3s", e.Object, e.At-asked.At)
		}
	}
	if !slices.ContainsFunc(rec.lines, func(l string) bool {
		return strings.Contains(l, asked.Object) && strings.Contains(l, `"event":"prestop"`)
	}) {
		t.Errorf("pod %s was not asked to wait by its hook", asked.Object)
	}
}

// An application of the user's own: other names, labels, port and paths, here
// the built-in application's binary in another image.
func testOwnManifests(t *testing.T, w *World) {
	const manifests = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: shop, namespace: shop}
---
apiVersion: v1
kind: Service
metadata: {name: storefront, namespace: shop}
spec:
  selector: {tier: front, app.kubernetes.io/managed-by: somebody}
  ports: [{name: web, port: 8000, targetPort: web}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop, namespace: shop}
spec:
  replicas: 7
  selector: {matchLabels: {tier: front, app.kubernetes.io/managed-by: somebody}}
  template:
    metadata: {labels: {tier: front, app.kubernetes.io/managed-by: somebody}}
    spec:
      serviceAccountName: shop
      terminationGracePeriodSeconds: 7
      containers:
      - name: web
        image: IMAGE
        args: [--listen=:3000]
        ports: [{name: web, containerPort: 3000}]
        readinessProbe: {httpGet: {path: /basket, port: web}, periodSeconds: 1}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: shop}
spec: {defaultBackend: {service: {name: storefront, port: {number: 8000}}}}
`
	trial, rec := ownTestTrial(16), &memory{}
	trial.Setup.Workload.App = &harness.App{
		Manifests: strings.ReplaceAll(manifests, "IMAGE", w.cfg.TargetImage), Service: "storefront", Port: 8000, Path: "/basket", Ready: "/ready",
		Images: []harness.ImageSource{{Name: w.cfg.TargetImage, Binary: "bin/target"}},
	}
	d := deployReal(t, w, trial, rec)
	pods := d.(*deployment).view.podsOf(appName)
	for _, p := range pods {
		if grace := *p.Spec.TerminationGracePeriodSeconds; grace != 7 || p.Spec.ServiceAccountName != "shop" {
			t.Errorf("pod %s has grace %d and service account %s, want those of the manifests", p.Name, grace, p.Spec.ServiceAccountName)
		}
	}
	scaleOwn(t, w, d, rec)
}

func testOwnImage(t *testing.T, w *World) {
	trial, rec := ownTestTrial(17), &memory{}
	trial.Setup.LoadBalancer.TargetType = harness.TargetIP
	trial.Setup.Workload.App = &harness.App{
		Image: w.cfg.TargetImage, Args: []string{"--listen=:3000"}, Port: 3000, Path: "/basket", Ready: "/ready",
	}
	scaleOwn(t, w, deployReal(t, w, trial, rec), rec)
}

func ownTestTrial(number int) harness.Trial {
	trial := testTrial()
	trial.Number = number
	w := &trial.Setup.Workload
	w.Replicas, w.GracePeriod, w.CPURequest = 2, harness.Duration{}, ""
	return trial
}

// scaleOwn lets the HPA remove a pod, of which the record has the story: its end
// is seen by the name of its container.
func scaleOwn(t *testing.T, w *World, d harness.Deployment, rec *memory) {
	t.Helper()
	if err := d.(harness.HPABounds).SetHPABounds(stepContext(t), 1, 1); err != nil {
		t.Error(err)
	}
	if err := d.WaitPods(stepContext(t), 1); err != nil {
		t.Error(err)
	}
	removeReal(t, w, d)
	kinds := rec.kinds()
	for kind, want := range map[harness.EventKind]int{
		harness.EventPodCreated: 2, harness.EventPodDeletionAsked: 2, harness.EventContainerExited: 2, harness.EventPodGone: 2,
	} {
		if kinds[kind] != want {
			t.Errorf("%d events %s, want %d", kinds[kind], kind, want)
		}
	}
	if kinds[harness.EventEndpointTerminating] == 0 {
		t.Error("the record has no endpoint that terminates")
	}
}

func healthy(states map[string]string) int {
	n := 0
	for _, s := range states {
		if s == "healthy" {
			n++
		}
	}
	return n
}
