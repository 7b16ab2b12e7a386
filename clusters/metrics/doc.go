// Package metrics serves metrics whose values are set by hand, as the API
// external.metrics.k8s.io/v1beta1, which a HorizontalPodAutoscaler with a metric
// of type External asks through the API server.
//
//	HPA controller --> API server --aggregation--> this server --> ConfigMap lameduck-metrics of the namespace
//
// A metric is a key of the ConfigMap of its namespace, its value a quantity. The
// server keeps nothing: a change counts at the controller's next sync.
//
// It leaves authorization to the API server, which has decided about a request
// before it passes it on, and takes connections from nobody else: a client must
// have a certificate of the front proxy's CA (Kubernetes documentation, Configure
// the Aggregation Layer).
package metrics
