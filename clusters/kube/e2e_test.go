//go:build e2e

package kube

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lameduck/clusters"
	"lameduck/clusters/embedded"
	"lameduck/clusters/embedded/embeddedtest"
	"lameduck/clusters/images"
	"lameduck/harness"
)

// e2ePatience bounds each step on the real cluster.
const e2ePatience = 3 * time.Minute

// TestE2EDeployments needs root and what make build makes. One cluster serves
// all steps, each of which has a namespace of its own.
func TestE2EDeployments(t *testing.T) {
	_, world := realWorld(t, "e2e-kube", 2)
	t.Run("scale in by bounds", func(t *testing.T) { testScaleInByBounds(t, world) })
	t.Run("IP mode", func(t *testing.T) { testIPMode(t, world) })
	t.Run("instance settings", func(t *testing.T) { testInstanceSettings(t, world) })
	t.Run("IP settings", func(t *testing.T) { testIPSettings(t, world) })
	t.Run("own manifests", func(t *testing.T) { testOwnManifests(t, world) })
	t.Run("own image", func(t *testing.T) { testOwnImage(t, world) })
	t.Run("scale in by metric", func(t *testing.T) { testScaleInByMetric(t, world) })
	t.Run("scale in by CPU", func(t *testing.T) { testScaleInByCPU(t, world) })
	t.Run("preStop longer than grace", func(t *testing.T) { testLongPreStop(t, world) })
	t.Run("image missing", func(t *testing.T) { testImageMissing(t, world) })
	t.Run("left by a killed run", func(t *testing.T) { testLeftBehind(t, world) })
}

// realWorld brings up a cluster, which the test's end removes.
func realWorld(t *testing.T, name string, nodes int) (clusters.Cluster, *World) {
	t.Helper()
	abs := func(path string) string {
		path, err := filepath.Abs(filepath.Join("../../bin", path))
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	provider := embedded.NewProvider(embedded.Config{Self: abs("lameduck"), Binaries: abs("embedded")})
	embeddedtest.RemoveAround(t, provider, name)
	cluster, err := provider.Up(stepContext(t), clusters.Options{Name: name, Nodes: nodes}, io.Discard)
	if err != nil {
		t.Fatalf("%v; run: make build", err)
	}
	image, err := images.Ref("target", abs("target"))
	if err != nil {
		t.Fatal(err)
	}
	err = cluster.(clusters.ImageLoader).LoadImage(stepContext(t), func(archive string) error {
		return images.Write(archive, image, map[string]string{targetBinary: abs("target")}, []string{targetBinary})
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := cluster.REST()
	if err != nil {
		t.Fatal(err)
	}
	world, err := NewWorld(Config{
		REST: cfg, Provider: cluster.Provider(), TargetImage: image,
		LoadBalancerLog: cluster.(clusters.LoadBalancerLog),
		Machines:        cluster.(clusters.Machines), Breaker: cluster.(clusters.Breaker), KubeProxies: cluster.(clusters.KubeProxies),
	})
	if err != nil {
		t.Fatal(err)
	}
	return cluster, world
}

func stepContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), e2ePatience)
	t.Cleanup(cancel)
	return ctx
}

// deployReal deploys and checks that the setup is live.
func deployReal(t *testing.T, w *World, trial harness.Trial, rec harness.Recorder) harness.Deployment {
	t.Helper()
	start := time.Now()
	d, err := w.Deploy(stepContext(t), trial, harness.NewClock(), rec)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("Deploy took %s", time.Since(start).Round(time.Millisecond))
	live, err := d.Observe(stepContext(t))
	if err != nil {
		t.Error(err)
	}
	if diffs := harness.CheckLive(trial.Setup, live); len(diffs) > 0 || len(live.Pods) != trial.Setup.Workload.Replicas {
		t.Errorf("%d pods observed, which differ: %v", len(live.Pods), diffs)
	}
	return d
}

func removeReal(t *testing.T, w *World, d harness.Deployment) {
	t.Helper()
	start := time.Now()
	if err := d.Remove(stepContext(t)); err != nil {
		t.Error(err)
	}
	t.Logf("Remove took %s", time.Since(start).Round(time.Millisecond))
	if err := w.Close(stepContext(t)); err != nil {
		t.Error(err)
	}
	noneLeft(t, w)
}

// noneLeft looks for our namespaces with nothing but the API.
func noneLeft(t *testing.T, w *World) {
	t.Helper()
	list, err := w.client.CoreV1().Namespaces().List(stepContext(t), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, ns := range list.Items {
		if strings.HasPrefix(ns.Name, "lameduck-") {
			t.Errorf("namespace %s is left", ns.Name)
		}
	}
}

// checkScaleIn reads the story of four of six pods from the record.
func checkScaleIn(t *testing.T, rec *memory) {
	t.Helper()
	rec.mu.Lock()
	defer rec.mu.Unlock()
	at := make(map[string]time.Duration) // first event of a kind, by kind and object
	for _, e := range rec.events {
		key := string(e.Kind) + " " + e.Object
		if _, known := at[key]; !known {
			at[key] = e.At
		}
	}
	rescaled, ok := at["replicas Deployment/app"]
	if !ok {
		t.Error("the record does not show that the HPA changed the Deployment")
	}
	gone := 0
	for _, e := range rec.events {
		if e.Kind != harness.EventPodDeletionAsked {
			continue
		}
		gone++
		for _, kind := range []harness.EventKind{
			harness.EventPodCreated, harness.EventPodReady, harness.EventEndpointReady,
			harness.EventEndpointTerminating, harness.EventContainerExited, harness.EventPodGone,
		} {
			if _, ok := at[string(kind)+" "+e.Object]; !ok {
				t.Errorf("pod %s: no %s", e.Object, kind)
			}
		}
		exit := `"event":"exit"`
		if !slices.ContainsFunc(rec.lines, func(l string) bool {
			return strings.Contains(l, e.Object) && strings.Contains(l, exit)
		}) {
			t.Errorf("pod %s: the log lacks its last line", e.Object)
		}
	}
	if gone != 6 { // four by the HPA, two by Remove
		t.Errorf("%d pods were deleted, want 6", gone)
	}
	t.Logf("the HPA changed the Deployment %s after the start of the trial", rescaled.Round(time.Millisecond))
}

func testScaleInByBounds(t *testing.T, w *World) {
	rec := &memory{}
	trial := testTrial()
	d := deployReal(t, w, trial, rec)
	start := time.Now()
	if err := d.(harness.HPABounds).SetHPABounds(stepContext(t), 2, 2); err != nil {
		t.Error(err)
	}
	if err := d.WaitPods(stepContext(t), 2); err != nil {
		t.Error(err)
	}
	t.Logf("bounds to 2 pods left: %s", time.Since(start).Round(time.Millisecond))
	removeReal(t, w, d)
	checkScaleIn(t, rec)
}

// The controller asks our server, follows the value, and its behaviour is in
// force: one pod in each period.
func testScaleInByMetric(t *testing.T, w *World) {
	rec := &memory{}
	trial := testTrial()
	const period = 3 * time.Second
	trial.Number, trial.Setup.Scenario.Drive = 13, harness.DriveMetric
	trial.Setup.Workload.HPA = harness.HPABehavior{Pods: 1, Period: harness.Dur(period)}
	d := deployReal(t, w, trial, rec)
	driver := d.(harness.MetricDriver)
	start := time.Now()
	if err := driver.WaitMetric(stepContext(t), trial.Setup.MetricBefore()); err != nil {
		t.Error(err)
	}
	t.Logf("deployed to seen by the HPA: %s", time.Since(start).Round(time.Millisecond))
	if err := d.WaitPods(stepContext(t), 6); err != nil {
		t.Error(err)
	}
	start, lowered := time.Now(), d.(*deployment).clock.Now()
	if err := driver.SetMetric(stepContext(t), trial.Setup.MetricAfter()); err != nil {
		t.Error(err)
	}
	if err := d.WaitPods(stepContext(t), 2); err != nil {
		t.Error(err)
	}
	t.Logf("metric to 2 pods left: %s", time.Since(start).Round(time.Millisecond))
	removeReal(t, w, d)
	oneByOne(t, rec, lowered, 0, period)
	checkScaleIn(t, rec)
	var reasons []string
	for _, e := range rec.events {
		if e.Kind == harness.EventKubernetes && e.Detail["reason"] == "SuccessfulRescale" {
			reasons = append(reasons, e.Detail["message"])
		}
	}
	if len(reasons) == 0 || slices.ContainsFunc(reasons, func(r string) bool { return !strings.Contains(r, "All metrics below target") }) {
		t.Errorf("the HPA says why it scaled: %q, want that all metrics are below target", reasons)
	}
}

// As the scenario hpa-scale-in does it: burn, wait until the HPA has seen it,
// stop, wait until it follows, here slowly: each behaviour is of its policy.
func testScaleInByCPU(t *testing.T, w *World) {
	rec := &memory{}
	trial := testTrial()
	const stabilization, period = 5 * time.Second, 3 * time.Second
	trial.Number, trial.Setup.Scenario.Drive, trial.Setup.Workload.CPURequest = 8, harness.DriveCPU, "100m"
	trial.Setup.Workload.HPA = harness.HPABehavior{Pods: 1, Period: harness.Dur(period), Stabilization: harness.Dur(stabilization)}
	d := deployReal(t, w, trial, rec)
	stop, err := d.(harness.CPUBurn).BurnCPU(stepContext(t), 100)
	if err != nil {
		t.Fatal(err)
	}
	status := func() autoscalingv2.HorizontalPodAutoscalerStatus {
		hpa, err := w.client.AutoscalingV2().HorizontalPodAutoscalers(namespaceName(trial)).Get(stepContext(t), appName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return hpa.Status
	}
	eventually(t, "the HPA sees the burn", func() bool {
		return slices.ContainsFunc(status().CurrentMetrics, func(m autoscalingv2.MetricStatus) bool {
			return m.Resource != nil && m.Resource.Current.AverageUtilization != nil && *m.Resource.Current.AverageUtilization > cpuTarget
		})
	})
	if err := d.WaitPods(stepContext(t), 6); err != nil {
		t.Error(err)
	}
	start, stopped := time.Now(), d.(*deployment).clock.Now()
	if err := stop(stepContext(t)); err != nil {
		t.Error(err)
	}
	// The HPA controller's own word for what the window does (AbleToScale).
	eventually(t, "the HPA holds back for its stabilization window", func() bool {
		return slices.ContainsFunc(status().Conditions, func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool { return c.Reason == "ScaleDownStabilized" })
	})
	if err := d.WaitPods(stepContext(t), 2); err != nil {
		t.Error(err)
	}
	t.Logf("end of burn to 2 pods left: %s", time.Since(start).Round(time.Millisecond))
	removeReal(t, w, d)
	oneByOne(t, rec, stopped, stabilization, period)
	checkScaleIn(t, rec)
}

// The API accepts the hook, and removal does not sit it out.
func testLongPreStop(t *testing.T, w *World) {
	trial := testTrial()
	trial.Number, trial.Setup.Workload.PreStopSleep = 9, harness.Dur(40*time.Second)
	removeReal(t, w, deployReal(t, w, trial, &memory{}))
}

func testImageMissing(t *testing.T, w *World) {
	without := &World{cfg: w.cfg, client: w.client, http: w.http, createOther: w.createOther}
	without.cfg.TargetImage = "lameduck.local/target:missing"
	trial := testTrial()
	trial.Number = 10
	_, err := without.Deploy(stepContext(t), trial, harness.NewClock(), &memory{})
	checkError(t, err, "ErrImageNeverPull", "0 of 6 pods ready", "last warnings")
	if err := without.Close(stepContext(t)); err != nil {
		t.Error(err)
	}
	noneLeft(t, w)
}

func testLeftBehind(t *testing.T, w *World) {
	trial := testTrial()
	trial.Number = 11
	d := deployReal(t, w, trial, &memory{})
	var log bytes.Buffer
	if err := Clean(stepContext(t), w.cfg.REST, trial.RunID, &log); err != nil {
		t.Error(err)
	}
	if want := "removed namespace " + namespaceName(trial) + "\n"; log.String() != want {
		t.Errorf("Clean said %q, want %q", log.String(), want)
	}
	noneLeft(t, w)
	// What is gone already is no error to remove; this also stops the watchers.
	removeReal(t, w, d)
}

// In IP mode the pods are the targets. The record shows that those which go are
// deregistered, and the others are not.
func testIPMode(t *testing.T, w *World) {
	rec := &memory{}
	trial := testTrial()
	trial.Number, trial.Setup.LoadBalancer.TargetType = 12, harness.TargetIP
	d := deployReal(t, w, trial, rec)
	if n := len(d.Target().Nodes); n != 2 {
		t.Errorf("the load balancer has %d nodes, want 2", n)
	}
	before, err := d.(*deployment).targets(stepContext(t))
	if err != nil {
		t.Error(err)
	}
	if err := d.(harness.HPABounds).SetHPABounds(stepContext(t), 2, 2); err != nil {
		t.Error(err)
	}
	if err := d.WaitPods(stepContext(t), 2); err != nil {
		t.Error(err)
	}
	after, err := d.(*deployment).targets(stepContext(t))
	if err != nil {
		t.Error(err)
	}
	removeReal(t, w, d)
	if b, a := healthy(before[appName]), healthy(after[appName]); b != 6 || a != 2 {
		t.Errorf("%d targets are healthy before and %d after, want 6 and 2: %v, %v", b, a, before, after)
	}
	lines := 0
	rec.mu.Lock()
	defer rec.mu.Unlock()
	for _, l := range rec.lines {
		if strings.HasPrefix(l, harness.LogTargets+" ") {
			lines++
		}
	}
	if lines == 0 {
		t.Error("the record has no changes of targets' states")
	}
}
