package kube

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lameduck/clusters/metrics"
	"lameduck/harness"
)

// seen is an HPA's status with so many pods, and the average of the metric.
func seen(current, desired int32, average string) autoscalingv2.HorizontalPodAutoscalerStatus {
	value := resource.MustParse(average)
	return autoscalingv2.HorizontalPodAutoscalerStatus{
		CurrentReplicas: current, DesiredReplicas: desired,
		CurrentMetrics: []autoscalingv2.MetricStatus{{
			Type: autoscalingv2.ExternalMetricSourceType,
			External: &autoscalingv2.ExternalMetricStatus{
				Metric: autoscalingv2.MetricIdentifier{Name: metricName}, Current: autoscalingv2.MetricValueStatus{AverageValue: &value},
			},
		}},
	}
}

func TestFollows(t *testing.T) {
	other := seen(6, 6, "200")
	other.CurrentMetrics[0].External.Metric.Name = "orders"
	for name, c := range map[string]struct {
		status autoscalingv2.HorizontalPodAutoscalerStatus
		value  int
		want   bool
	}{
		"follows":              {seen(6, 6, "200"), 1200, true},
		"rounded up":           {seen(7, 7, "171429m"), 1200, true},
		"another value":        {seen(6, 6, "200"), 100, false},
		"wants fewer":          {seen(6, 2, "200"), 1200, false},
		"another metric":       {other, 1200, false},
		"no metric yet":        {autoscalingv2.HorizontalPodAutoscalerStatus{CurrentReplicas: 6, DesiredReplicas: 6}, 1200, false},
		"controller not there": {autoscalingv2.HorizontalPodAutoscalerStatus{}, 1200, false},
	} {
		if got := follows(c.status, c.value); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

func TestSetMetric(t *testing.T) {
	c, d := deployed(t, func(s *harness.Setup) { s.Scenario.Drive = harness.DriveMetric })
	value := func() string {
		cm, err := c.CoreV1().ConfigMaps(testNamespace).Get(t.Context(), metrics.ConfigMap, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return cm.Data[metricName]
	}
	if got := value(); got != "1200" {
		t.Errorf("the metric begins at %s, want 1200: twice what six pods are for", got)
	}
	if err := d.(harness.MetricDriver).SetMetric(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	if got := value(); got != "100" {
		t.Errorf("the metric is %s, want 100", got)
	}
}

func TestWaitMetric(t *testing.T) {
	c, d := deployed(t, func(s *harness.Setup) { s.Scenario.Drive = harness.DriveMetric })
	hpas := c.AutoscalingV2().HorizontalPodAutoscalers(testNamespace)
	set := func(status autoscalingv2.HorizontalPodAutoscalerStatus) {
		t.Helper()
		hpa, err := hpas.Get(t.Context(), appName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		hpa.Status = status
		if _, err := hpas.Update(t.Context(), hpa, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	set(autoscalingv2.HorizontalPodAutoscalerStatus{CurrentReplicas: 6, Conditions: []autoscalingv2.HorizontalPodAutoscalerCondition{
		{Type: autoscalingv2.ScalingActive, Message: "the server could not find the requested resource"},
	}})
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("limit is over"))
	checkError(t, d.(harness.MetricDriver).WaitMetric(ended, 1200),
		"sees metric lameduck-demand at 1200", "6 pods, 0 wanted; the controller says: the server could not find the requested resource")
	set(seen(6, 6, "200"))
	if err := d.(harness.MetricDriver).WaitMetric(testContext(t), 1200); err != nil {
		t.Error(err)
	}
}

// The HPA of an application of the user's own follows the metric too, and keeps
// the behaviour that it has.
func TestOwnHPAFollowsTheMetric(t *testing.T) {
	trial := ownTrial(t)
	trial.Setup.Scenario.Drive = harness.DriveMetric
	app := trial.Setup.Workload.App
	app.Manifests = strings.Replace(app.Manifests, "maxReplicas: 20\n", "maxReplicas: 20\n  behavior: {scaleDown: {stabilizationWindowSeconds: 7}}\n", 1)
	o, err := Manifests(trial, "image", 20007)
	if err != nil {
		t.Fatal(err)
	}
	own := o.HPA.Spec
	if o.HPA.Name == appName || len(own.Metrics) != 1 || own.Metrics[0].External == nil || *own.MinReplicas != int32(trial.Setup.Scenario.To) {
		t.Errorf("HPA %s has %+v", o.HPA.Name, own)
	}
	if window := own.Behavior.ScaleDown.StabilizationWindowSeconds; *window != 7 {
		t.Errorf("its stabilization window is %d, want its own of 7 s", *window)
	}
	if !slices.ContainsFunc(o.Notes, func(n string) bool { return strings.Contains(n, "its metrics are lameduck's") }) {
		t.Errorf("no note about the metrics: %q", o.Notes)
	}
	lines, err := Describe(trial)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"ConfigMap lameduck-metrics: the metric lameduck-demand is 600",
		"HorizontalPodAutoscaler shop-scaler: 2..3 pods of Deployment shop-v1, for each 100 of the metric one",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("described without %q:\n%s", want, strings.Join(lines, "\n"))
		}
	}
}
