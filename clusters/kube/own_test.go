package kube

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"lameduck/clusters"
	"lameduck/harness"
)

// ownTrial runs the shop of testdata, with nothing of its settings changed.
func ownTrial(t *testing.T) harness.Trial {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "own", "shop.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	trial := testTrial()
	w := &trial.Setup.Workload
	w.App = &harness.App{Manifests: string(text), Service: "shop", Port: 8000, Path: "/basket", Ready: "/ready"}
	w.GracePeriod, w.CPURequest, w.Replicas = harness.Duration{}, "", 3
	return trial
}

func TestReadManifests(t *testing.T) {
	got, err := ReadManifests(*ownTrial(t).Setup.Workload.App)
	if err != nil {
		t.Fatal(err)
	}
	want := ManifestsInfo{
		Deployment: "shop-v1", Service: "shop", Port: 8000, Services: []string{"shop", "cache"},
		Replicas: 3, GracePeriod: harness.Dur(45 * time.Second),
		Notes: []string{
			"Namespace shop: left out: each trial has one of its own",
			"Ingress shop: left out: lameduck makes its own",
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v\nwant %+v", got, want)
	}
}

func TestReadManifestsDefaults(t *testing.T) {
	const text = `{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {selector: {x: z}, ports: [{port: 80}]}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {selector: {matchLabels: {x: z}}, template: {metadata: {labels: {x: z}}, spec: {containers: [{name: c, image: i}]}}}}
`
	got, err := ReadManifests(harness.App{Manifests: text})
	if err != nil {
		t.Fatal(err)
	}
	if got.Service != "a" || got.Port != 80 || got.Replicas != 1 || got.GracePeriod != harness.Dur(30*time.Second) {
		t.Errorf("read %+v, want the only Service and its only port, 1 replica and 30s", got)
	}
}

// What is wrong is said with the field of the setup and the object, before
// anything is created.
func TestReadManifestsRefuses(t *testing.T) {
	const deployment = `
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME}
spec:
  selector: {matchLabels: {app: shop}}
  template: {metadata: {labels: {app: shop}}, spec: {containers: [{name: c, image: i}]}}
`
	const service = `
---
apiVersion: v1
kind: Service
metadata: {name: NAME}
spec: {selector: {app: shop}, ports: [{port: 80}, {port: 81}]}
`
	const hpa = `
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: NAME}
spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: shop}, maxReplicas: 9}
`
	const budget = `
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: NAME}
spec: {maxUnavailable: 1, selector: {matchLabels: {app: shop}}}
`
	named := func(text, name string) string { return strings.ReplaceAll(text, "NAME", name) }
	shop := named(service, "shop") + named(deployment, "shop")
	for name, c := range map[string]struct {
		app  harness.App
		want string
	}{
		"not YAML":      {harness.App{Manifests: "kind: [", Port: 80}, "workload.app.manifests: document 1: "},
		"no kind":       {harness.App{Manifests: "a: b", Port: 80}, `document 1: has apiVersion "", kind "" and metadata.name ""`},
		"nothing":       {harness.App{Manifests: "# empty", Port: 80}, "workload.app.service: want the name of the Service to send to; workload.app.manifests has: none"},
		"which Service": {harness.App{Manifests: shop + named(service, "other"), Port: 80}, "workload.app.service: want the name of the Service to send to; workload.app.manifests has: shop, other"},
		"other Service": {harness.App{Manifests: shop, Service: "x", Port: 80}, "workload.app.service is x: want a Service of workload.app.manifests, which has: shop"},
		"port":          {harness.App{Manifests: shop, Port: 8080}, "workload.app.port is 8080: want a port of Service shop, which has: 80, 81"},
		"which port":    {harness.App{Manifests: shop}, "workload.app.port is 0: want a port of Service shop, which has: 80, 81"},
		"no Deployment": {harness.App{Manifests: named(service, "shop"), Port: 80}, "Service shop selects the pods of 0 Deployments (none has the labels app=shop): want exactly one"},
		"two":           {harness.App{Manifests: shop + named(deployment, "two"), Port: 80}, "Service shop selects the pods of 2 Deployments (shop, two): want exactly one"},
		"twice":         {harness.App{Manifests: shop + named(deployment, "shop"), Port: 80}, "Deployment shop is there twice"},
		"of the cluster": {harness.App{Manifests: shop + "---\n{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: all}}", Port: 80},
			"workload.app.manifests: ClusterRole all is of the whole cluster: leave it out"},
		"control's name": {harness.App{Manifests: shop + named(service, "control"), Service: "shop", Port: 80}, "Service control has the name of lameduck's control target"},
		"misspelled":     {harness.App{Manifests: strings.ReplaceAll(shop, "selector: {matchLabels", "selektor: {matchLabels"), Port: 80}, `workload.app.manifests: Deployment shop: strict decoding error: unknown field "spec.selektor"`},
		"old version": {harness.App{Manifests: shop + "---\n{apiVersion: autoscaling/v1, kind: HorizontalPodAutoscaler, metadata: {name: h}}", Port: 80},
			"HorizontalPodAutoscaler h has apiVersion autoscaling/v1: want autoscaling/v2"},
		"external": {harness.App{Manifests: strings.Replace(shop, "{selector: {app: shop}, ", "{type: ExternalName, externalName: shop.example, ", 1), Port: 80},
			"workload.app.service: Service shop is of type ExternalName"},
		"UDP": {harness.App{Manifests: strings.Replace(shop, "{port: 80}", "{port: 80, protocol: UDP}", 1), Port: 80},
			"workload.app.port: port 80 of Service shop is UDP: want TCP"},
		"targetPort": {harness.App{Manifests: strings.NewReplacer("{port: 80}", "{port: 80, targetPort: web}", "image: i", "image: i, ports: [{name: http, containerPort: 80}]").Replace(shop), Port: 80},
			"workload.app.port: port 80 of Service shop has targetPort web: want the name of a TCP port of a container of Deployment shop, which has: http"},
		"two autoscalers": {harness.App{Manifests: shop + named(hpa, "a") + named(hpa, "b"), Port: 80},
			"HorizontalPodAutoscalers a and b both scale Deployment shop: want one"},
		"two budgets": {harness.App{Manifests: shop + named(budget, "a") + named(budget, "b"), Port: 80},
			"PodDisruptionBudgets a and b both select the pods of Deployment shop: want one"},
		"generated name": {harness.App{Manifests: strings.Replace(named(deployment, "shop"), "{name: shop}", "{generateName: shop-}", 1), Port: 80},
			`Deployment has metadata.generateName "shop-": want metadata.name`},
		"no selector": {harness.App{Manifests: strings.Replace(shop, "selector: {app: shop}, ", "", 1), Port: 80}, "Service shop has no selector"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ReadManifests(c.app)
			checkError(t, err, c.want)
		})
	}
}

// Nothing happens to pods that are not the Deployment's: none of them may be
// behind the Service.
func TestReadManifestsRefusesOtherPods(t *testing.T) {
	const pod = "metadata: {labels: {app: shop, tier: web}}"
	for kind, spec := range map[string]string{
		"DaemonSet": "spec: {template: {" + pod + "}}", "StatefulSet": "spec: {template: {" + pod + "}}",
		"ReplicaSet": "spec: {template: {" + pod + "}}", "Job": "spec: {template: {" + pod + "}}",
		"CronJob": "spec: {jobTemplate: {spec: {template: {" + pod + "}}}}", "Pod": "",
	} {
		trial := ownTrial(t)
		app := *trial.Setup.Workload.App
		object := "\n---\n{apiVersion: x/v1, kind: " + kind + ", metadata: {name: other, labels: {app: LABEL}}, " + spec + "}\n"
		if kind != "Pod" { // the labels of its maker do not count
			object = strings.Replace(object, "LABEL", "none", 1)
		}
		object = strings.Replace(object, "LABEL", "shop", 1)
		own := app.Manifests
		app.Manifests = own + object
		if _, err := ReadManifests(app); err != nil {
			t.Errorf("%s with other labels: %v", kind, err)
		}
		app.Manifests = strings.ReplaceAll(own, "{app.kubernetes.io/name: shop, app.kubernetes.io/managed-by: Helm}", "{app: shop}") + object
		app.Manifests = strings.ReplaceAll(app.Manifests, "matchLabels: {app.kubernetes.io/name: shop}", "matchLabels: {app: shop}")
		_, err := ReadManifests(app)
		checkError(t, err, "workload.app.service: Service shop selects pods of "+kind+" other too: want those of Deployment shop-v1 only")
	}
}

// The port by TCP counts where another protocol has the same number.
func TestReadManifestsPortOfTwoProtocols(t *testing.T) {
	app := *ownTrial(t).Setup.Workload.App
	app.Manifests = strings.Replace(app.Manifests, "    - {name: admin,", "    - {name: quic, port: 8000, protocol: UDP}\n    - {name: admin,", 1)
	if got, err := ReadManifests(app); err != nil || got.Port != 8000 {
		t.Errorf("read %+v, error %v", got, err)
	}
}

// The manifests' own settings stay unless the setup asks, and then all that it
// asks for is there: see the golden files own-*.yaml.
func TestOwnManifests(t *testing.T) {
	for name, edit := range map[string]func(*harness.Setup){
		"own-as-it-is": func(s *harness.Setup) { s.LoadBalancer.TargetType = harness.TargetIP },
		"own-changed": func(s *harness.Setup) {
			w := &s.Workload
			w.PreStopSleep, w.GracePeriod, w.CPURequest = harness.Dur(20*time.Second), harness.Dur(60*time.Second), "70m"
			w.MaxSurge, w.MaxUnavailable, w.PodDisruptionBudget = "0", "1", "2"
			w.HPA = harness.HPABehavior{Pods: 1, Period: harness.Dur(20 * time.Second)}
			w.App.Manifests += `---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects:
- {kind: ServiceAccount, name: default, namespace: shop}
- {kind: ServiceAccount, name: other, namespace: elsewhere}
`
			w.App.Images = []harness.ImageSource{{Name: "shop:latest", Binary: "x"}}
		},
		"own-image": func(s *harness.Setup) {
			s.Workload.App = &harness.App{Image: "shop:1", Args: []string{"--listen=:3000"}, Port: 3000, Path: "/basket", Ready: "/ready"}
			s.Workload.PreStopSleep, s.Workload.PreStopBy = harness.Dur(20*time.Second), harness.PreStopSleep
			s.Workload.CPURequest = "70m"
		},
	} {
		t.Run(name, func(t *testing.T) {
			trial := ownTrial(t)
			edit(&trial.Setup)
			compareGolden(t, name, trial)
		})
	}
}

func TestOwnRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*harness.Setup)
		want string
	}{
		"both":        {func(s *harness.Setup) { s.Workload.App.Image = "shop:1" }, "workload.app: want either image or manifests"},
		"neither":     {func(s *harness.Setup) { s.Workload.App.Manifests = "" }, "workload.app: want either image or manifests"},
		"port":        {func(s *harness.Setup) { s.Workload.App = &harness.App{Image: "shop:1", Path: "/", Ready: "/"} }, "workload.app.port is 0: want 1..65535"},
		"path":        {func(s *harness.Setup) { s.Workload.App.Path = "" }, "workload.app.path is \"\""},
		"readiness":   {func(s *harness.Setup) { s.Workload.App.Ready = "ready" }, "workload.app.readinessPath is \"ready\""},
		"CPU":         {func(s *harness.Setup) { s.Scenario.Drive = harness.DriveCPU }, "scenario.drive is cpu: want bounds or metric"},
		"streams":     {func(s *harness.Setup) { s.Load.Streams = 1 }, "load.streams is 1: want 0"},
		"CPU request": {func(s *harness.Setup) { s.Workload.CPURequest = "much" }, "workload.cpuRequest is \"much\""},
		"longer than its grace period": {func(s *harness.Setup) {
			s.Workload.PreStopSleep, s.Workload.PreStopBy = harness.Dur(46*time.Second), harness.PreStopSleep
		}, "preStop hook of container web in Deployment shop-v1: is a sleep action of 46s, the grace period is 45s: the API server refuses it"},
		"grace period below its hook": {func(s *harness.Setup) {
			s.Workload.App.Manifests = strings.Replace(s.Workload.App.Manifests, "exec: {command: [nginx, -s, quit]}", "sleep: {seconds: 20}", 1)
			s.Workload.GracePeriod = harness.Dur(10 * time.Second)
		}, "is a sleep action of 20s, the grace period is 10s"},
		"longer than the default": {func(s *harness.Setup) {
			s.Workload.App = &harness.App{Image: "shop:1", Port: 80, Path: "/", Ready: "/"}
			s.Workload.CPURequest, s.Workload.GracePeriod = "70m", harness.Duration{}
			s.Workload.PreStopSleep, s.Workload.PreStopBy = harness.Dur(31*time.Second), harness.PreStopSleep
		}, "a sleep action of 31s, the grace period is 30s"},
		"half a second": {func(s *harness.Setup) { s.Workload.PreStopSleep = harness.Dur(1500 * time.Millisecond) },
			"workload.preStopSleep is 1.5s: want whole seconds"},
	} {
		t.Run(name, func(t *testing.T) {
			trial := ownTrial(t)
			c.edit(&trial.Setup)
			_, err := Describe(trial)
			checkError(t, err, c.want)
		})
	}
}

func TestDescribe(t *testing.T) {
	trial := ownTrial(t)
	trial.Attempt = 2
	trial.Setup.Workload.PreStopSleep = harness.Dur(20 * time.Second)
	trial.Setup.LoadBalancer.ExternalTrafficPolicy = harness.TrafficLocal
	got, err := Describe(trial)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"Namespace lameduck-0102150405-0007-2",
		"ConfigMap settings",
		"Service cache",
		"Deployment cache",
		"Service shop: NodePort, externalTrafficPolicy Local",
		"Service control: ClusterIP",
		"Ingress app: HTTP listener, instance targets, idle timeout 1m0s, deregistration delay 30s",
		"Deployment shop-v1: 3 replicas of sidecar:1, shop:latest, preStop sleep 20, grace period 45s",
		"Deployment control: 1 replicas of (built in), preStop none, grace period 30s",
		"HorizontalPodAutoscaler shop-scaler: 3..3 pods of Deployment shop-v1",
		"PodDisruptionBudget shop-budget: maxUnavailable 1",
		"Namespace shop: left out: each trial has one of its own",
		"Ingress shop: left out: lameduck makes its own",
		"Service shop: not of type LoadBalancer: the Ingress is in front of it",
		"Service shop: without nodePort 31000: trials run side by side",
		"Deployment shop-v1: its preStop hook needs a command sleep in the image; with workload.preStopBy sleep it does not",
		"HorizontalPodAutoscaler shop-scaler: its bounds are lameduck's, so that it does nothing but what the scenario asks for",
	}
	if !slices.Equal(got, want) {
		t.Errorf("described:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// All of it is deployed, its pods are found by no label of their own, and the
// load goes where the setup says.
func TestDeployOwn(t *testing.T) {
	c, trial, rec := newFakeCluster(), ownTrial(t), &memory{}
	d, err := c.world().Deploy(testContext(t), trial, harness.NewClock(), rec)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Remove(testContext(t)); err != nil {
			t.Error(err)
		}
		if left := c.left(t, testNamespace); left != nil {
			t.Errorf("left behind: %v", left)
		}
	}()
	if want := []string{testNamespace + "/ConfigMap settings", testNamespace + "/Service cache", testNamespace + "/Deployment cache"}; !slices.Equal(c.others, want) {
		t.Errorf("besides %v, want %v", c.others, want)
	}
	want := harness.Target{
		URL: "http://198.18.0.5:20014/basket", ReadyURL: "http://198.18.0.5:20014/ready", ControlURL: "http://198.18.0.5:20014/lameduck-control",
	}
	if !reflect.DeepEqual(d.Target(), want) {
		t.Errorf("target %+v, want %+v", d.Target(), want)
	}
	d.(*deployment).world.cfg.LoadBalancerLog = fakeLog(func(namespace, _ string, _ clusters.LogName) (string, error) {
		return strings.ReplaceAll(settingsLog(namespace, "instance", 60, 30), "/app:80", "/shop:8000"), nil
	})
	live, err := d.Observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diffs := harness.CheckLive(trial.Setup, live); diffs != nil || len(live.Pods) != 3 {
		t.Errorf("%d pods observed, which differ: %v", len(live.Pods), diffs)
	}
	// By this Event it is known that a hook of the manifests has failed.
	pod := live.Pods[0].Name
	failed := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "failed", Namespace: testNamespace, UID: "e"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: pod}, Reason: "FailedPreStopHook",
	}
	if _, err := c.CoreV1().Events(testNamespace).Create(t.Context(), failed, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	recorded := func(context.Context) (bool, error) {
		rec.mu.Lock()
		defer rec.mu.Unlock()
		return slices.ContainsFunc(rec.events, func(e harness.Event) bool {
			return e.Kind == harness.EventKubernetes && e.Object == "Pod/"+pod && e.Detail["reason"] == "FailedPreStopHook"
		}), nil
	}
	if err := wait.PollUntilContextCancel(testContext(t), time.Millisecond, true, recorded); err != nil {
		t.Errorf("the Event about the hook of pod %s is not recorded: %v", pod, err)
	}
	if err := d.(harness.HPABounds).SetHPABounds(t.Context(), 1, 1); err != nil {
		t.Error(err)
	}
	_, err = d.(harness.CPUBurn).BurnCPU(t.Context(), 50)
	checkError(t, err, "only the built-in application can")
	d.(*deployment).world.cfg.LoadBalancerLog = nil
}
