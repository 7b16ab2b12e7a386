package metrics

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/metrics/pkg/apis/external_metrics/v1beta1"
)

// ConfigMap has a namespace's metrics.
const ConfigMap = "lameduck-metrics"

// Handler answers as external.metrics.k8s.io/v1beta1.
func Handler(client kubernetes.Interface) http.Handler {
	h := handler{client}
	root := "/apis/" + v1beta1.SchemeGroupVersion.String()
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+root, h.resources)
	mux.HandleFunc("GET "+root+"/namespaces/{namespace}/{metric}", h.values)
	return mux
}

type handler struct{ client kubernetes.Interface }

// resources is what discovery asks for. There is nothing in it that could be
// listed or deleted, so none of the metrics is named.
func (h handler) resources(w http.ResponseWriter, _ *http.Request) {
	write(w, http.StatusOK, metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"},
		GroupVersion: v1beta1.SchemeGroupVersion.String(),
		APIResources: []metav1.APIResource{},
	})
}

func (h handler) values(w http.ResponseWriter, r *http.Request) {
	list, err := h.list(r.Context(), r.PathValue("namespace"), r.PathValue("metric"), r.URL.Query().Get("labelSelector"))
	if err == nil {
		write(w, http.StatusOK, list)
		return
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}
	s := status.Status()
	s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	write(w, int(s.Code), s)
}

// list is empty where nothing is set, which the controller takes for a metric
// that is not known: it leaves the pods alone.
func (h handler) list(ctx context.Context, namespace, metric, selector string) (v1beta1.ExternalMetricValueList, error) {
	list := v1beta1.ExternalMetricValueList{
		TypeMeta: metav1.TypeMeta{APIVersion: v1beta1.SchemeGroupVersion.String(), Kind: "ExternalMetricValueList"},
		Items:    []v1beta1.ExternalMetricValue{},
	}
	selects, err := labels.Parse(selector)
	if err != nil {
		return list, apierrors.NewBadRequest("labelSelector: " + err.Error())
	}
	cm, err := h.client.CoreV1().ConfigMaps(namespace).Get(ctx, ConfigMap, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return list, nil
	}
	if err != nil {
		return list, fmt.Errorf("read ConfigMap %s in namespace %s: %w", ConfigMap, namespace, err)
	}
	text, set := cm.Data[metric]
	if !set || !selects.Matches(labels.Set{}) { // the values have no labels
		return list, nil
	}
	value, err := resource.ParseQuantity(text)
	if err != nil {
		return list, fmt.Errorf("ConfigMap %s in namespace %s: %s is %q: want a quantity, like 600: %w", ConfigMap, namespace, metric, text, err)
	}
	list.Items = append(list.Items, v1beta1.ExternalMetricValue{
		MetricName: metric, MetricLabels: map[string]string{}, Timestamp: metav1.Now(), Value: value,
	})
	return list, nil
}

func write(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// An error here is of a client that is gone.
	json.NewEncoder(w).Encode(body)
}
