package kube

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"lameduck/clusters/metrics"
	"lameduck/harness"
)

// metricName is the metric that the HPA follows with harness.DriveMetric.
const metricName = "lameduck-demand"

// metricSpec is an HPA's metric: one pod for each harness.MetricPerPod.
func metricSpec() autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{
		Type: autoscalingv2.ExternalMetricSourceType,
		External: &autoscalingv2.ExternalMetricSource{
			Metric: autoscalingv2.MetricIdentifier{Name: metricName},
			Target: autoscalingv2.MetricTarget{
				Type: autoscalingv2.AverageValueMetricType, AverageValue: resource.NewQuantity(harness.MetricPerPod, resource.DecimalSI),
			},
		},
	}
}

// metric has the value; nil where the HPA follows nothing of lameduck's.
func (m maker) metric() *corev1.ConfigMap {
	if m.trial.Setup.Scenario.Drive != harness.DriveMetric {
		return nil
	}
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: m.meta(metrics.ConfigMap),
		Data:       map[string]string{metricName: strconv.Itoa(m.trial.Setup.MetricBefore())},
	}
}

// SetMetric implements harness.MetricDriver.
func (d *deployment) SetMetric(ctx context.Context, value int) error {
	patch := fmt.Sprintf(`{"data":{%q:"%d"}}`, metricName, value)
	_, err := d.world.client.CoreV1().ConfigMaps(d.namespace).
		Patch(ctx, metrics.ConfigMap, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("set metric %s in namespace %s to %d: %w", metricName, d.namespace, value, err)
	}
	return nil
}

// WaitMetric implements harness.MetricDriver.
func (d *deployment) WaitMetric(ctx context.Context, value int) error {
	var last *autoscalingv2.HorizontalPodAutoscaler
	err := wait.PollUntilContextCancel(ctx, confirmPoll, true, func(ctx context.Context) (bool, error) {
		hpa, err := d.world.client.AutoscalingV2().HorizontalPodAutoscalers(d.namespace).Get(ctx, d.names.HPA, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		last = hpa
		return follows(hpa.Status, value), nil
	})
	if err != nil {
		return fmt.Errorf("wait until the HPA in namespace %s sees metric %s at %d: %w: %s", d.namespace, metricName, value, err, hpaState(last))
	}
	return nil
}

// follows says whether a controller has seen the metric at this value, with as
// many pods as it wants. It reports the average over the pods, rounded up
// (pkg/controller/podautoscaler, GetExternalPerPodMetricReplicas).
func follows(s autoscalingv2.HorizontalPodAutoscalerStatus, value int) bool {
	pods := int64(s.CurrentReplicas)
	if pods == 0 || s.DesiredReplicas != s.CurrentReplicas {
		return false
	}
	average := (int64(value)*1000 + pods - 1) / pods
	for _, m := range s.CurrentMetrics {
		if m.External != nil && m.External.Metric.Name == metricName && m.External.Current.AverageValue != nil {
			return m.External.Current.AverageValue.MilliValue() == average
		}
	}
	return false
}

// hpaState is what an HPA's controller says of its metrics, for an error.
func hpaState(hpa *autoscalingv2.HorizontalPodAutoscaler) string {
	if hpa == nil {
		return "it could not be read"
	}
	said := "nothing"
	for _, c := range hpa.Status.Conditions {
		if c.Type == autoscalingv2.ScalingActive {
			said = cmp.Or(c.Message, c.Reason)
		}
	}
	return fmt.Sprintf("%d pods, %d wanted; the controller says: %s", hpa.Status.CurrentReplicas, hpa.Status.DesiredReplicas, said)
}
