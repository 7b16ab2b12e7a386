package metrics

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/metrics/pkg/client/external_metrics"
)

// shop has the metrics orders and broken in the namespace shop.
func shop(t *testing.T) (*fake.Clientset, *httptest.Server) {
	client := fake.NewClientset(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: ConfigMap, Namespace: "shop"},
		Data:       map[string]string{"orders": "600", "broken": "many"},
	})
	server := httptest.NewServer(Handler(client))
	t.Cleanup(server.Close)
	return client, server
}

// With the client that the HPA controller uses.
func TestTheControllersClientReadsTheMetric(t *testing.T) {
	client, server := shop(t)
	api, err := external_metrics.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	// A nil selector of an HPA is Nothing, which is written as "".
	list, err := api.NamespacedMetrics("shop").List("orders", labels.Nothing())
	if err != nil || len(list.Items) != 1 || list.Items[0].MetricName != "orders" || list.Items[0].Value.Value() != 600 || list.Items[0].Timestamp.IsZero() {
		t.Errorf("got %+v, error %v; want orders at 600", list, err)
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: ConfigMap, Namespace: "shop"}, Data: map[string]string{"orders": "200", "broken": "many"}}
	if err := client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("configmaps"), cm, "shop"); err != nil {
		t.Fatal(err)
	}
	if list, err = api.NamespacedMetrics("shop").List("orders", labels.Everything()); err != nil || list.Items[0].Value.Value() != 200 {
		t.Errorf("after a change: got %+v, error %v; want 200", list, err)
	}
	for _, c := range []struct{ namespace, metric, selector string }{
		{"shop", "visits", ""}, {"other", "orders", ""}, {"shop", "orders", "queue=q"},
	} {
		selector, err := labels.Parse(c.selector)
		if err != nil {
			t.Fatal(err)
		}
		list, err := api.NamespacedMetrics(c.namespace).List(c.metric, selector)
		if err != nil || len(list.Items) != 0 {
			t.Errorf("%v: got %+v, error %v; want an empty list", c, list, err)
		}
	}
	_, err = api.NamespacedMetrics("shop").List("broken", labels.Everything())
	if err == nil || !strings.Contains(err.Error(), `broken is "many": want a quantity, like 600`) {
		t.Errorf("got %v, want an error that names key and value", err)
	}
}

func TestDiscoveryAndErrors(t *testing.T) {
	client, server := shop(t)
	client.PrependReactor("get", "configmaps", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return a.GetNamespace() == "down", nil, errors.New("the API server is away")
	})
	const root = "/apis/external.metrics.k8s.io/v1beta1"
	for _, c := range []struct {
		method, path string
		code         int
		want         string
	}{
		{http.MethodGet, root, 200, `"kind":"APIResourceList","apiVersion":"v1","groupVersion":"external.metrics.k8s.io/v1beta1","resources":[]`},
		{http.MethodGet, root + "/namespaces/shop/visits", 200, `"items":[]`},
		{http.MethodGet, root + "/namespaces/shop/orders?labelSelector=!!", 400, `"reason":"BadRequest"`},
		{http.MethodGet, root + "/namespaces/down/orders", 500, "the API server is away"},
		{http.MethodPut, root + "/namespaces/shop/orders", 405, ""},
		{http.MethodGet, "/apis/external.metrics.k8s.io/v1", 404, ""},
	} {
		w := httptest.NewRecorder()
		server.Config.Handler.ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s %s: %d %s, want %d with %s", c.method, c.path, w.Code, w.Body, c.code, c.want)
		}
		if json := json.Valid(w.Body.Bytes()); c.want != "" && (!json || w.Header().Get("Content-Type") != "application/json") {
			t.Errorf("%s %s: not JSON", c.method, c.path)
		}
	}
}
