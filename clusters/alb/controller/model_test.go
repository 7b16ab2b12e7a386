package controller

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

func TestAnnotationDefaults(t *testing.T) {
	ing := ingress("app", 80)
	ing.Annotations = nil
	m, warnings, err := buildModel(ing, stateOf(service("app")))
	if err != nil || len(warnings) != 0 {
		t.Fatalf("%v, %v", warnings, err)
	}
	if !slices.Equal(m.ports, []uint16{80}) || m.idleTimeout != time.Minute || m.clientKeepAlive != time.Hour {
		t.Errorf("ports %v, idle %s, keep-alive %s", m.ports, m.idleTimeout, m.clientKeepAlive)
	}
	want := groupModel{
		targets:             []string{"198.18.0.11:30080"},
		deregistrationDelay: 300 * time.Second,
		health: healthCheck{port: "traffic-port", path: "/", interval: 15 * time.Second, timeout: 5 * time.Second, healthy: 2, unhealthy: 2,
			successCodes: []codeRange{{200, 200}}},
	}
	if got := m.groups["ns/app:80"]; !reflect.DeepEqual(got, want) {
		t.Errorf("group %+v, want %+v", got, want)
	}
}

func TestAnnotationValues(t *testing.T) {
	ing := ingress("app", 80)
	for name, value := range map[string]string{
		"listen-ports":                 `[{"HTTP": 80}, {"HTTP": 8080}]`,
		"scheme":                       "internet-facing",
		"target-type":                  "instance",
		"load-balancer-attributes":     "idle_timeout.timeout_seconds=4000, client_keep_alive.seconds=604800,deletion_protection.enabled=false",
		"target-group-attributes":      "deregistration_delay.timeout_seconds=0,slow_start.duration_seconds=0,load_balancing.algorithm.type=round_robin",
		"healthcheck-path":             "/healthz",
		"healthcheck-port":             "http",
		"healthcheck-interval-seconds": "300",
		"healthcheck-timeout-seconds":  "120",
		"healthy-threshold-count":      "10",
		"unhealthy-threshold-count":    "3",
		"success-codes":                "200,301-302",
	} {
		ing.Annotations[annotationPrefix+name] = value
	}
	m, warnings, err := buildModel(ing, stateOf(service("app")))
	if err != nil {
		t.Fatal(err)
	}
	if len(warnings) != 1 || strings.Contains(warnings[0], "attributes") || !strings.Contains(warnings[0], "healthcheck-path") {
		t.Errorf("warnings %q: want one, about health checks", warnings)
	}
	if !slices.Equal(m.ports, []uint16{80, 8080}) || m.idleTimeout != 4000*time.Second || m.clientKeepAlive != 604800*time.Second {
		t.Errorf("ports %v, idle %s, keep-alive %s", m.ports, m.idleTimeout, m.clientKeepAlive)
	}
	g := m.groups["ns/app:80"]
	if g.deregistrationDelay != 0 || g.health.path != "/healthz" || !reflect.DeepEqual(g.health.successCodes, []codeRange{{200, 200}, {301, 302}}) {
		t.Errorf("group %+v", g)
	}
}

// TestAnnotationErrors: a wrong value is refused with its name, the value and
// what is wanted.
func TestAnnotationErrors(t *testing.T) {
	for _, c := range []struct{ name, value, want string }{
		{"target-type", "ip", "instance: ip is not supported yet by this stand-in"},
		{"target-type", "pod", "one of instance, ip"},
		{"scheme", "public", "one of internal, internet-facing"},
		{"listen-ports", "80", "a JSON list"},
		{"listen-ports", "[]", "a JSON list"},
		{"listen-ports", "[{}]", "a JSON list"},
		{"listen-ports", `[{"HTTP": 0}]`, "ports 1..65535"},
		{"listen-ports", `[{"HTTP": 65536}]`, "ports 1..65535"},
		{"listen-ports", `[{"TCP": 80}]`, "a JSON list"},
		{"listen-ports", `[{"HTTPS": 443}]`, "HTTPS is not supported yet"},
		{"listen-ports", `[{"HTTP": 80}, {"HTTP": 80}]`, "port 80 only once"},
		{"load-balancer-attributes", "idle_timeout.timeout_seconds=0", "1..4000"},
		{"load-balancer-attributes", "idle_timeout.timeout_seconds=4001", "1..4000"},
		{"load-balancer-attributes", "idle_timeout.timeout_seconds=1m", "1..4000"},
		{"load-balancer-attributes", "client_keep_alive.seconds=59", "60..604800"},
		{"load-balancer-attributes", "idle_timeout", "key=value"},
		{"load-balancer-attributes", "no.such=1", "an attribute that AWS knows"},
		{"load-balancer-attributes", "routing.http2.enabled=yes", "one of true, false"},
		{"target-group-attributes", "deregistration_delay.timeout_seconds=-1", "0..3600"},
		{"target-group-attributes", "deregistration_delay.timeout_seconds=3601", "0..3600"},
		{"target-group-attributes", "slow_start.duration_seconds=29", "0 or 30..900"},
		{"target-group-attributes", "load_balancing.algorithm.type=random", "one of round_robin"},
		{"healthcheck-interval-seconds", "4", "5..300"},
		{"healthcheck-timeout-seconds", "1", "2..120"},
		{"healthcheck-timeout-seconds", "15", "less than healthcheck-interval-seconds"},
		{"healthy-threshold-count", "11", "2..10"},
		{"unhealthy-threshold-count", "1", "2..10"},
		{"success-codes", "200-500", "within 200..499"},
		{"success-codes", "ok", "within 200..499"},
		{"healthcheck-path", "healthz", "begins with /"},
		{"healthcheck-port", "70000", "1..65535"},
		{"healthcheck-protocol", "TCP", "one of HTTP"},
		{"backend-protocol", "HTTPS", "one of HTTP"},
		{"backend-protocol-version", "GRPC", "one of HTTP1"},
	} {
		ing := ingress("app", 80)
		ing.Annotations[annotationPrefix+c.name] = c.value
		_, _, err := buildModel(ing, stateOf(service("app")))
		if err == nil {
			t.Errorf("%s %q is accepted", c.name, c.value)
			continue
		}
		for _, want := range []string{annotationPrefix + c.name, c.want} {
			wantError(t, err, want)
		}
	}
}

func TestAllMistakesAtOnce(t *testing.T) {
	ing := ingress("app", 80)
	ing.Annotations[annotationPrefix+"scheme"] = "x"
	ing.Annotations[annotationPrefix+"success-codes"] = "x"
	ing.Annotations[annotationPrefix+"target-group-attributes"] = "x=1"
	_, _, err := buildModel(ing, stateOf(service("app")))
	for _, want := range []string{"scheme", "success-codes", "target-group-attributes"} {
		wantError(t, err, want)
	}
}

func TestBackends(t *testing.T) {
	named := networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "app", Port: networkingv1.ServiceBackendPort{Name: "http"}}}
	noPort := networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "app", Port: networkingv1.ServiceBackendPort{Number: 81}}}
	action := networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "blue-green", Port: networkingv1.ServiceBackendPort{Name: "use-annotation"}}}
	resource := networkingv1.IngressBackend{Resource: &corev1.TypedLocalObjectReference{Kind: "Bucket", Name: "b"}}

	m, warnings, err := buildModel(withBackend(named), stateOf(service("app")))
	if err != nil || len(warnings) != 0 || m.rules[0].group != "ns/app:http" {
		t.Errorf("named port: %+v, %v, %v", m, warnings, err)
	}
	m, warnings, err = buildModel(withBackend(backend("gone")), stateOf())
	if err != nil || m.rules[0].group != "" || len(warnings) != 1 || !strings.Contains(warnings[0], "503") {
		t.Errorf("missing service: %+v, %v, %v", m, warnings, err)
	}
	for want, be := range map[string]networkingv1.IngressBackend{
		"service ns/app has no port 81":           noPort,
		"actions.blue-green is not supported yet": action,
		"backend Bucket/b: want a service":        resource,
	} {
		_, _, err := buildModel(withBackend(be), stateOf(service("app")))
		wantError(t, err, want)
	}
	ing := ingress("app", 80)
	ing.Spec.Rules = nil
	be := backend("app")
	ing.Spec.DefaultBackend = &be
	if m, _, err := buildModel(ing, stateOf(service("app"))); err != nil || !m.hasFallback || m.fallback != "ns/app:80" {
		t.Errorf("default backend: %+v, %v", m, err)
	}
}

func withBackend(be networkingv1.IngressBackend) *networkingv1.Ingress {
	ing := ingress("app", 80)
	ing.Spec.Rules[0].HTTP.Paths[0].Backend = be
	return ing
}

func TestPathOrder(t *testing.T) {
	path := func(p string, kind networkingv1.PathType) networkingv1.HTTPIngressPath {
		return networkingv1.HTTPIngressPath{Path: p, PathType: &kind, Backend: backend("app")}
	}
	ing := ingress("app", 80)
	ing.Spec.Rules[0].Host = "Shop.example.com"
	ing.Spec.Rules[0].HTTP.Paths = []networkingv1.HTTPIngressPath{
		path("/any*", networkingv1.PathTypeImplementationSpecific),
		path("/", networkingv1.PathTypePrefix),
		path("/a/long/one/", networkingv1.PathTypePrefix),
		path("/exact", networkingv1.PathTypeExact),
		{Backend: backend("app")},
	}
	m, _, err := buildModel(ing, stateOf(service("app")))
	if err != nil {
		t.Fatal(err)
	}
	want := [][]string{{"/exact"}, {"/a/long/one", "/a/long/one/*"}, {"/*"}, {"/any*"}, {"/*"}}
	var got [][]string
	for _, r := range m.rules {
		got = append(got, r.paths)
		if r.host != "shop.example.com" {
			t.Errorf("host %q", r.host)
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("paths %q, want %q", got, want)
	}
	ing.Spec.Rules[0].HTTP.Paths = []networkingv1.HTTPIngressPath{path("/a*", networkingv1.PathTypePrefix)}
	_, _, err = buildModel(ing, stateOf(service("app")))
	wantError(t, err, `path "/a*": want no * or ? with pathType Prefix`)
}
