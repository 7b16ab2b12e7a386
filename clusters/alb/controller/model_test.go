package controller

import (
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"lameduck/clusters/alb/elb"
)

// build makes a model of Ingresses of one group, in a cluster with Services.
func build(t *testing.T, services []*corev1.Service, ings ...*networkingv1.Ingress) (model, []string, error) {
	t.Helper()
	group, err := newIngressGroup(keyOf(ings[0]), ings)
	if err != nil {
		t.Fatal(err)
	}
	return buildModel(group, clusterState{
		options:   Options{}.withDefaults(),
		groupName: newGroupNames().assign,
		service: func(_, name string) *corev1.Service {
			for _, s := range services {
				if s.Name == name {
					return s
				}
			}
			return nil
		},
	})
}

func services(names ...string) (all []*corev1.Service) {
	for _, name := range names {
		all = append(all, service(name))
	}
	return all
}

func TestAnnotationDefaults(t *testing.T) {
	ing := ingress("app", 80)
	ing.Annotations = nil
	m, warnings, err := build(t, services("app"), ing)
	if err != nil || len(warnings) != 0 {
		t.Fatalf("%v, %v", warnings, err)
	}
	wantLB := elb.LoadBalancer{
		Name: "ns/app", Listeners: []elb.Listener{{Port: 80, Protocol: elb.HTTP}}, IdleTimeout: time.Minute, ClientKeepAlive: time.Hour,
		Rules:   []elb.Rule{{Priority: 1, Paths: []string{"/*"}, Action: elb.Action{Forward: []elb.WeightedGroup{{Group: "ns/app:80", Weight: 1}}}}},
		Default: elb.Action{Fixed: &elb.FixedResponse{Status: 404, ContentType: "text/plain"}},
	}
	if !reflect.DeepEqual(m.lb, wantLB) {
		t.Errorf("load balancer %+v, want %+v", m.lb, wantLB)
	}
	want := []elb.TargetGroup{{
		Name: "ns/app:80", Type: elb.TargetInstance, Protocol: elb.HTTP, DeregistrationDelay: 300 * time.Second, Algorithm: elb.RoundRobin,
		HealthCheck: elb.HealthCheck{Protocol: elb.HTTP, Path: "/", Interval: 15 * time.Second, Timeout: 5 * time.Second,
			Healthy: 2, Unhealthy: 2, Codes: []elb.CodeRange{{Low: 200, High: 200}}},
	}}
	if !reflect.DeepEqual(m.groups, want) {
		t.Errorf("groups %+v, want %+v", m.groups, want)
	}
	b := m.bindings[0]
	if len(m.bindings) != 1 || b.group != "ns/app:80" || b.targetType != elb.TargetInstance || b.lag != (elb.Range{}) || b.overQuota != OverQuotaRefuse {
		t.Errorf("bindings %+v", m.bindings)
	}
	if !strings.HasPrefix(b.name, "k8s-ns-app-") || len(b.name) != len("k8s-ns-app-")+10 {
		t.Errorf("binding is called %q", b.name)
	}
}

func TestAnnotationValues(t *testing.T) {
	ing := annotated(ingress("app", 80),
		"listen-ports", `[{"HTTP": 80, "HTTPS": 8443}, {"HTTP": 8080}]`,
		"scheme", "internet-facing",
		"target-type", "instance",
		"target-node-labels", "role=web, zone=a",
		"backend-protocol", "HTTPS",
		"load-balancer-attributes", "idle_timeout.timeout_seconds=4000, client_keep_alive.seconds=604800,deletion_protection.enabled=false",
		"target-group-attributes", "deregistration_delay.timeout_seconds=0,slow_start.duration_seconds=0,load_balancing.algorithm.type=weighted_random,"+
			"load_balancing.algorithm.anomaly_mitigation=on,stickiness.enabled=true,stickiness.type=app_cookie,stickiness.app_cookie.cookie_name=sid,stickiness.app_cookie.duration_seconds=9",
		"healthcheck-protocol", "HTTP",
		"healthcheck-path", "/healthz",
		"healthcheck-port", "admin",
		"healthcheck-interval-seconds", "300",
		"healthcheck-timeout-seconds", "120",
		"healthy-threshold-count", "10",
		"unhealthy-threshold-count", "3",
		"success-codes", "200,301-302",
		overridePrefix+"deregistration-lag", "5s..20s",
		overridePrefix+"registration-lag", "none",
		overridePrefix+"weight-lag", "17s",
		overridePrefix+"controller-lag", "1s",
		overridePrefix+"lose-deregistrations", "true",
		overridePrefix+"close-idle-at-deregistration", "false",
		overridePrefix+"pool-order", "fifo",
		overridePrefix+"unusable-status", "502",
		overridePrefix+"targets-api-interval", "30s",
		overridePrefix+"over-quota", "stale",
	)
	m, warnings, err := build(t, services("app"), ing)
	if err != nil || len(warnings) != 0 {
		t.Fatalf("%v, %v", warnings, err)
	}
	if want := []elb.Listener{{Port: 80, Protocol: elb.HTTP}, {Port: 8443, Protocol: elb.HTTPS}, {Port: 8080, Protocol: elb.HTTP}}; !slices.Equal(m.lb.Listeners, want) {
		t.Errorf("listeners %v, want %v", m.lb.Listeners, want)
	}
	if m.lb.IdleTimeout != 4000*time.Second || m.lb.ClientKeepAlive != 604800*time.Second || *m.lb.WeightLag != (elb.Range{Min: 17 * time.Second, Max: 17 * time.Second}) {
		t.Errorf("load balancer %+v", m.lb)
	}
	want := elb.TargetGroup{
		Name: "ns/app:80", Type: elb.TargetInstance, Protocol: elb.HTTPS, Algorithm: elb.WeightedRandom, AnomalyMitigation: true,
		Stickiness: elb.Stickiness{Duration: 9 * time.Second, AppCookie: "sid"},
		HealthCheck: elb.HealthCheck{Port: 30081, Protocol: elb.HTTP, Path: "/healthz", Interval: 300 * time.Second, Timeout: 120 * time.Second,
			Healthy: 10, Unhealthy: 3, Codes: []elb.CodeRange{{Low: 200, High: 200}, {Low: 301, High: 302}}},
		DeregistrationLag: &elb.Range{Min: 5 * time.Second, Max: 20 * time.Second}, RegistrationLag: &elb.Range{}, LoseDeregistrations: true,
		CallInterval: 30 * time.Second, CloseIdle: ptr(false), PoolOrder: "fifo", UnusableStatus: 502,
	}
	if !reflect.DeepEqual(m.groups[0], want) {
		t.Errorf("group %+v, want %+v", m.groups[0], want)
	}
	b := m.bindings[0]
	if b.lag.Min != time.Second || b.overQuota != OverQuotaStale || !reflect.DeepEqual(map[string]string(b.nodeLabels), map[string]string{"role": "web", "zone": "a"}) {
		t.Errorf("binding %+v", b)
	}
}

// TestAnnotationErrors: a wrong value is refused with its name, the value and
// what is wanted.
func TestAnnotationErrors(t *testing.T) {
	redirect := func(fields string) string {
		return `{"type":"redirect","redirectConfig":{"statusCode":"HTTP_301","port":"443",` + fields + `}}`
	}
	for _, c := range []struct{ name, value, want string }{
		{"target-type", "pod", "one of instance, ip"},
		{"scheme", "public", "one of internal, internet-facing"},
		{"listen-ports", "80", "a JSON list"},
		{"listen-ports", "[]", "a JSON list"},
		{"listen-ports", "[{}]", "a JSON list"},
		{"listen-ports", `[{"HTTP": 0}]`, "ports 1..65535"},
		{"listen-ports", `[{"HTTP": 65536}]`, "ports 1..65535"},
		{"listen-ports", `[{"TCP": 80}]`, "a JSON list"},
		{"listen-ports", `[{"HTTP": 80}, {"HTTPS": 80}]`, "port 80 only once"},
		{"ssl-redirect", "0", "1..65535"},
		{"ssl-redirect", "443", "a port that listen-ports has as HTTPS"},
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
		{"target-group-attributes", "slow_start.duration_seconds=30,load_balancing.algorithm.type=weighted_random", "type=round_robin with it"},
		{"target-group-attributes", "load_balancing.algorithm.anomaly_mitigation=on", "type=weighted_random with it"},
		{"target-group-attributes", "load_balancing.algorithm.type=random", "one of round_robin"},
		{"target-group-attributes", "stickiness.lb_cookie.duration_seconds=604801", "1..604800"},
		{"target-group-attributes", "stickiness.enabled=true,stickiness.type=app_cookie", "the application's cookie"},
		{"target-node-labels", "role", "a list like role=web,zone=a"},
		{"target-node-labels", "role=a b", "labels as nodes have them"},
		{"healthcheck-interval-seconds", "4", "5..300"},
		{"healthcheck-timeout-seconds", "1", "2..120"},
		{"healthcheck-timeout-seconds", "15", "less than healthcheck-interval-seconds"},
		{"healthy-threshold-count", "11", "2..10"},
		{"unhealthy-threshold-count", "1", "2..10"},
		{"success-codes", "200-500", "within 200..499"},
		{"success-codes", "ok", "within 200..499"},
		{"healthcheck-path", "healthz", "begins with /"},
		{"healthcheck-port", "70000", "1..65535"},
		{"healthcheck-port", "no-such", "the name of a port"},
		{"healthcheck-protocol", "TCP", "one of HTTP, HTTPS"},
		{"backend-protocol", "TCP", "one of HTTP, HTTPS"},
		{"backend-protocol-version", "GRPC", "HTTP1: this stand-in"},
		{"backend-protocol-version", "HTTP3", "one of HTTP1, HTTP2, GRPC"},
		{"actions.a", "{", "JSON of an action"},
		{"actions.a", `{"type":"send"}`, "forward, fixed-response or redirect"},
		{"actions.a", `{"type":"forward"}`, "either forwardConfig or targetGroupARN"},
		{"actions.a", `{"type":"forward","forwardConfig":{"targetGroups":[]}}`, "1..5"},
		{"actions.a", `{"type":"forward","forwardConfig":{"targetGroups":[{"weight":1}]}}`, "either serviceName or targetGroupARN"},
		{"actions.a", `{"type":"forward","forwardConfig":{"targetGroups":[{"serviceName":"app"}]}}`, "the number or name of a port"},
		{"actions.a", `{"type":"forward","forwardConfig":{"targetGroups":[{"serviceName":"app","servicePort":80,"weight":1000}]}}`, "0..999"},
		{"actions.a", `{"type":"forward","forwardConfig":{"targetGroups":[{"serviceName":"app","servicePort":80},{"serviceName":"app","servicePort":81,"weight":1}]}}`, "a weight for each"},
		{"actions.a", `{"type":"forward","forwardConfig":{"targetGroups":[{"serviceName":"app","servicePort":80}],"targetGroupStickinessConfig":{"enabled":true}}}`, "1..604800"},
		{"actions.a", `{"type":"fixed-response"}`, "statusCode, contentType"},
		{"actions.a", `{"type":"fixed-response","fixedResponseConfig":{"statusCode":"302"}}`, `"2XX", "4XX" or "5XX"`},
		{"actions.a", `{"type":"fixed-response","fixedResponseConfig":{"statusCode":"200","contentType":"image/png"}}`, "text/plain, text/css"},
		{"actions.a", `{"type":"fixed-response","fixedResponseConfig":{"statusCode":"200","messageBody":"` + strings.Repeat("x", 1025) + `"}}`, "at most 1024"},
		{"actions.a", `{"type":"redirect"}`, "statusCode and where to"},
		{"actions.a", `{"type":"redirect","redirectConfig":{"statusCode":"HTTP_307","host":"x"}}`, "HTTP_301 or HTTP_302"},
		{"actions.a", `{"type":"redirect","redirectConfig":{"statusCode":"HTTP_301"}}`, "another protocol, host, port or path"},
		{"actions.a", redirect(`"port":"0"`), "1..65535 or #{port}"},
		{"actions.a", redirect(`"protocol":"http"`), "HTTP, HTTPS or #{protocol}"},
		{"actions.a", redirect(`"path":"x"`), "begins with /"},
		{"actions.a", redirect(`"query":"?x"`), "without the leading ?"},
		{"actions.a", redirect(`"host":""`), "1..128 characters"},
		{"conditions.a", "{}", "JSON of a list of conditions"},
		{"conditions.a", `[{"field":"cookie"}]`, "host-header, path-pattern"},
		{"conditions.a", `[{"field":"host-header"}]`, "want values"},
		{"conditions.a", `[{"field":"host-header","hostHeaderConfig":{"values":[]}}]`, "1..3 of them"},
		{"conditions.a", `[{"field":"host-header","hostHeaderConfig":{"regexValues":["x"]}}]`, "no regular expressions"},
		{"conditions.a", `[{"field":"source-ip","sourceIpConfig":{"values":["192.0.2.1"]}}]`, "CIDRs"},
		{"conditions.a", `[{"field":"http-request-method","httpRequestMethodConfig":{"values":["get"]}}]`, "upper-case method"},
		{"conditions.a", `[{"field":"http-header","httpHeaderConfig":{"values":["x"]}}]`, "1..40 characters"},
		{"conditions.a", `[{"field":"http-header","httpHeaderConfig":{"httpHeaderName":"host","values":["x"]}}]`, "host-header condition"},
		{"conditions.a", `[{"field":"query-string","queryStringConfig":{"values":[{"key":"x"}]}}]`, "1..128 characters"},
		{"conditions.a", `[{"field":"source-ip","sourceIpConfig":{"values":["198.18.0.0/15"]}},{"field":"source-ip","sourceIpConfig":{"values":["198.18.0.0/15"]}}]`, "only one condition"},
		{overridePrefix + "deregistration-lag", "soon", "a range like 5s..20s"},
		{overridePrefix + "controller-lag", "-1s", "within 0s.."},
		{overridePrefix + "lose-deregistrations", "yes", "one of true, false"},
		{overridePrefix + "pool-order", "random", "one of lifo, fifo"},
		{overridePrefix + "unusable-status", "504", "one of 502, 503"},
		{overridePrefix + "over-quota", "ignore", "one of refuse, stale"},
		{overridePrefix + "weight-lag", "2h", "within 0s.."},
		{overridePrefix + "targets-api-interval", "0s", "above 0s"},
		{overridePrefix + "targets-api-interval", "61m", "at most 1h"},
		{overridePrefix + "targets-api-interval", "5s..20s", "a time like 30s"},
		{overridePrefix + "wieght-lag", "1s", "is unknown: want one of"},
	} {
		ing := annotated(ingress("app", 80), c.name, c.value)
		paths := &ing.Spec.Rules[0].HTTP.Paths
		*paths = append(*paths, networkingv1.HTTPIngressPath{Path: "/a", Backend: actionBackend("a")})
		_, _, err := build(t, services("app"), ing)
		if err == nil {
			t.Errorf("%s %q is accepted", c.name, c.value)
			continue
		}
		wantError(t, err, strings.TrimPrefix(c.name, annotationPrefix))
		wantError(t, err, c.want)
	}
}

func TestAllMistakesAtOnce(t *testing.T) {
	ing := annotated(ingress("app", 80), "scheme", "x", "success-codes", "x", "target-group-attributes", "x=1", "target-type", "x")
	_, _, err := build(t, services("app"), ing)
	for _, want := range []string{"scheme", "success-codes", "target-group-attributes", "target-type"} {
		wantError(t, err, want)
	}
}

func TestIgnoredAnnotations(t *testing.T) {
	ing := annotated(ingress("app", 80),
		"inbound-cidrs", "198.18.0.0/15", "listener-attributes.HTTP-80", "a=b", "no-such", "x", "tags", "a=b", "example.com/other", "x",
		"actions.unused", "{}", "load-balancer-attributes", "access_logs.s3.enabled=true")
	_, warnings, err := build(t, services("app"), ing)
	if err != nil {
		t.Fatal(err)
	}
	p := annotationPrefix
	want := []string{
		p + "actions.unused: no backend has this name",
		"has no effect on this stand-in: " + p + "inbound-cidrs, " + p + "listener-attributes.HTTP-80",
		"has no effect on this stand-in: " + p + "load-balancer-attributes: access_logs.s3.enabled",
		"not an annotation of the AWS Load Balancer Controller: " + p + "no-such",
	}
	if !slices.Equal(warnings, want) {
		t.Errorf("warnings %q, want %q", warnings, want)
	}
}

func TestServiceAnnotationsWin(t *testing.T) {
	svc := annotated(service("app"), "target-type", "ip", overridePrefix+"controller-lag", "3s")
	m, _, err := build(t, []*corev1.Service{svc}, annotated(ingress("app", 80), "target-type", "instance", overridePrefix+"controller-lag", "1s"))
	if err != nil || m.groups[0].Type != elb.TargetIP || m.bindings[0].lag.Min != 3*time.Second {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestBackends(t *testing.T) {
	with := func(be networkingv1.IngressBackend) *networkingv1.Ingress {
		ing := ingress("app", 80)
		ing.Spec.Rules[0].HTTP.Paths[0].Backend = be
		return ing
	}
	named := networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "app", Port: networkingv1.ServiceBackendPort{Name: "http"}}}
	m, warnings, err := build(t, services("app"), with(named))
	if err != nil || len(warnings) != 0 || m.lb.Rules[0].Action.Forward[0].Group != "ns/app:http" {
		t.Errorf("named port: %+v, %v, %v", m, warnings, err)
	}
	m, warnings, err = build(t, nil, with(backend("gone")))
	if err != nil || len(m.groups) != 0 || m.lb.Rules[0].Action.Fixed == nil || m.lb.Rules[0].Action.Fixed.Body != "Backend service does not exist" || len(warnings) != 1 || !strings.Contains(warnings[0], "503") {
		t.Errorf("missing service: %+v, %v, %v", m, warnings, err)
	}
	m, warnings, err = build(t, nil, with(actionBackend("gone")))
	if err != nil || m.lb.Rules[0].Action.Fixed == nil || m.lb.Rules[0].Action.Fixed.Status != 503 || len(warnings) != 1 {
		t.Errorf("missing action: %+v, %v, %v", m, warnings, err)
	}

	noPort := networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "app", Port: networkingv1.ServiceBackendPort{Number: 99}}}
	resource := networkingv1.IngressBackend{Resource: &corev1.TypedLocalObjectReference{Kind: "Bucket", Name: "b"}}
	clusterIP, noNodePort := service("app"), service("app")
	clusterIP.Spec.Type = corev1.ServiceTypeClusterIP
	noNodePort.Spec.Ports[0].NodePort = 0
	weighted := annotated(with(actionBackend("w")), "actions.w",
		`{"type":"forward","forwardConfig":{"targetGroups":[{"serviceName":"app","servicePort":80,"weight":1},{"serviceName":"gone","servicePort":80,"weight":1}]}}`)
	named81 := annotated(ingress("app", 80), "target-type", "ip", "healthcheck-port", "http")
	for _, c := range []struct {
		want     string
		services []*corev1.Service
		ing      *networkingv1.Ingress
	}{
		{"service ns/app has no port 99", services("app"), with(noPort)},
		{"backend Bucket/b: want a service", services("app"), with(resource)},
		{"is of type ClusterIP: want NodePort or LoadBalancer", []*corev1.Service{clusterIP}, ingress("app", 80)},
		{"has no nodePort yet", []*corev1.Service{noNodePort}, ingress("app", 80)},
		{"service ns/gone does not exist: want all Services", services("app"), weighted},
		{"may be a different port in each pod", services("app"), named81},
	} {
		_, _, err := build(t, c.services, c.ing)
		wantError(t, err, c.want)
	}

	ing := ingress("app", 80)
	ing.Spec.Rules = nil
	ing.Spec.DefaultBackend = ptr(backend("app"))
	if m, _, err := build(t, services("app"), ing); err != nil || m.lb.Default.Forward[0].Group != "ns/app:80" {
		t.Errorf("default backend: %+v, %v", m, err)
	}
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
	m, _, err := build(t, services("app"), ing)
	if err != nil {
		t.Fatal(err)
	}
	want := [][]string{{"/exact"}, {"/a/long/one", "/a/long/one/*"}, {"/*"}, {"/any*"}, nil}
	var got [][]string
	for i, r := range m.lb.Rules {
		got = append(got, r.Paths)
		if !slices.Equal(r.Hosts, []string{"shop.example.com"}) || r.Priority != i+1 {
			t.Errorf("rule %+v", r)
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("paths %q, want %q", got, want)
	}
	ing.Spec.Rules[0].HTTP.Paths = []networkingv1.HTTPIngressPath{path("/a*", networkingv1.PathTypePrefix)}
	_, _, err = build(t, services("app"), ing)
	wantError(t, err, `path "/a*": want no * or ? with pathType Prefix`)
}

// TestRuleLimits: a rule may have five values in its conditions.
func TestRuleLimits(t *testing.T) {
	ing := annotated(ingress("app", 80), "conditions.app",
		`[{"field":"host-header","hostHeaderConfig":{"values":["a.example.com","b.example.com"]}},{"field":"http-header","httpHeaderConfig":{"httpHeaderName":"x","values":["1","2"]}}]`)
	if _, _, err := build(t, services("app"), ing); err != nil {
		t.Errorf("five values: %v", err)
	}
	ing.Spec.Rules[0].Host = "c.example.com"
	_, _, err := build(t, services("app"), ing)
	wantError(t, err, "6 values")
}

func TestDocumentationStyle(t *testing.T) {
	text, err := os.ReadFile("testdata/shop.yaml")
	if err != nil {
		t.Fatal(err)
	}
	ing := &networkingv1.Ingress{}
	if err := yaml.UnmarshalStrict(text, ing); err != nil {
		t.Fatal(err)
	}
	m, warnings, err := build(t, services("blue", "green"), ing)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"targetGroupARN: there are no target groups outside of the cluster here: its requests get 503"}; !slices.Equal(warnings, want) {
		t.Errorf("warnings %q, want %q", warnings, want)
	}
	forward := func(groups ...elb.WeightedGroup) elb.Action { return elb.Action{Forward: groups} }
	blueGreen := forward(elb.WeightedGroup{Group: "ns/blue:http", Weight: 100}, elb.WeightedGroup{Group: "ns/green:80", Weight: 0})
	blueGreen.Sticky = 200 * time.Second
	https := &elb.Redirect{Status: 301, Protocol: "HTTPS", Host: "#{host}", Port: "443", Path: "/#{path}", Query: "#{query}"}
	want := []elb.Rule{
		// Not on the HTTPS listener, where it would loop.
		{Priority: 1, Paths: []string{"/*"}, Ports: []uint16{80}, Action: elb.Action{Redirect: https}},
		{Priority: 2, Hosts: []string{"www.example.com"}, Paths: []string{"/today"}, Methods: []string{"GET", "HEAD"},
			Sources: []netip.Prefix{netip.MustParsePrefix("198.19.0.0/16")},
			Action:  elb.Action{Fixed: &elb.FixedResponse{Status: 503, ContentType: "text/plain", Body: "closed today"}}},
		{Priority: 3, Hosts: []string{"www.example.com"}, Paths: []string{"/shop", "/shop/*"}, Action: blueGreen},
		{Priority: 4, Hosts: []string{"www.example.com"}, Paths: []string{"/v?/*"}, Action: forward(elb.WeightedGroup{Weight: 1})},
		{Priority: 5, Hosts: []string{"*.example.com", "beta.example.com"}, Paths: []string{"/beta"},
			Headers: map[string][]string{"X-Beta": {"1", "yes*"}}, Action: forward(elb.WeightedGroup{Group: "ns/blue:80", Weight: 1})},
		{Priority: 6, Hosts: []string{"*.example.com"}, Paths: []string{"/old", "/also"},
			Query:      []elb.QueryCondition{{Key: "v", Value: "1"}},
			AllQueries: [][]elb.QueryCondition{{{Value: "old"}}},
			Action: elb.Action{Redirect: &elb.Redirect{Status: 302, Protocol: "#{protocol}", Host: "new.example.com", Port: "#{port}",
				Path: "/from/#{path}", Query: "a=b"}}},
	}
	for i := range want {
		if i >= len(m.lb.Rules) || !reflect.DeepEqual(m.lb.Rules[i], want[i]) {
			t.Errorf("rules %+v, want rule %d to be %+v", m.lb.Rules, i, want[i])
		}
	}
	if len(m.lb.Rules) != len(want) || !reflect.DeepEqual(m.lb.Default, forward(elb.WeightedGroup{Group: "ns/green:http", Weight: 1})) {
		t.Errorf("%d rules, default %+v", len(m.lb.Rules), m.lb.Default)
	}
	if len(m.groups) != 4 || m.groups[0].Stickiness.Duration != time.Minute || m.groups[0].Type != elb.TargetIP {
		t.Errorf("groups %+v", m.groups)
	}
}

func TestSSLRedirect(t *testing.T) {
	ing := annotated(ingress("app", 80), "listen-ports", `[{"HTTP": 80}, {"HTTPS": 443}, {"HTTP": 8080}]`, "ssl-redirect", "443")
	m, _, err := build(t, services("app"), ing)
	if err != nil {
		t.Fatal(err)
	}
	r := m.lb.Rules[0]
	if len(m.lb.Rules) != 2 || r.Priority != 0 || !slices.Equal(r.Ports, []uint16{80, 8080}) || r.Action.Redirect == nil || r.Action.Redirect.Port != "443" || r.Action.Redirect.Status != 301 {
		t.Errorf("rules %+v", m.lb.Rules)
	}
	cert := annotated(ingress("app", 80), "certificate-arn", "arn:aws:acm:eu-central-1:1:certificate/x")
	delete(cert.Annotations, annotationPrefix+"listen-ports")
	if m, _, err := build(t, services("app"), cert); err != nil || !slices.Equal(m.lb.Listeners, []elb.Listener{{Port: 443, Protocol: elb.HTTPS}}) {
		t.Errorf("with a certificate: %+v, %v", m.lb.Listeners, err)
	}
}

// TestIngressGroup: Ingresses with one group.name share a load balancer, in
// their order, each with its own ports.
func TestIngressGroup(t *testing.T) {
	group := func(name string, port int, pairs ...string) *networkingv1.Ingress {
		return annotated(annotated(ingress(name, port), "group.name", "team"), pairs...)
	}
	first, second := group("b", 80, "group.order", "-1"), group("a", 81, "ssl-redirect", "443", "listen-ports", `[{"HTTP": 80}, {"HTTPS": 443}]`)
	second.Spec.DefaultBackend = ptr(backend("app"))
	m, _, err := build(t, services("app"), second, first)
	if err != nil {
		t.Fatal(err)
	}
	if m.lb.Name != "group.name/team" || !slices.Equal(m.lb.Listeners, []elb.Listener{{Port: 80, Protocol: elb.HTTP}, {Port: 443, Protocol: elb.HTTPS}}) {
		t.Errorf("load balancer %+v", m.lb)
	}
	// The redirect of one member is everybody's; then b's rule, on its port
	// only; then a's. Both have a target group of their own.
	rules := m.lb.Rules
	if len(rules) != 3 || rules[0].Action.Redirect == nil || !slices.Equal(rules[1].Ports, []uint16{80}) || rules[1].Action.Forward[0].Group != "ns/app:80" ||
		rules[2].Ports != nil || !strings.HasPrefix(rules[2].Action.Forward[0].Group, "ns/app:80@") || rules[2].Priority != 2 {
		t.Errorf("rules %+v", rules)
	}
	if m.lb.Default.Forward[0].Group != rules[2].Action.Forward[0].Group {
		t.Errorf("default %+v", m.lb.Default)
	}

	for _, c := range []struct {
		want string
		x, y *networkingv1.Ingress
	}{
		{"ingress ns/y: annotation " + annotationPrefix + "listen-ports", group("x", 80), group("y", 80, "listen-ports", `[{"HTTPS": 80}]`)},
		{"the value 60, which another Ingress of the group has", group("x", 80, "load-balancer-attributes", "idle_timeout.timeout_seconds=60"),
			group("y", 80, "load-balancer-attributes", "idle_timeout.timeout_seconds=61")},
	} {
		_, _, err := build(t, services("app"), c.x, c.y)
		wantError(t, err, c.want)
	}
	x, y := group("x", 80), group("y", 80)
	x.Spec.DefaultBackend, y.Spec.DefaultBackend = ptr(backend("app")), ptr(backend("app"))
	_, _, err = build(t, services("app"), x, y)
	wantError(t, err, "ingress ns/y: spec.defaultBackend: another Ingress")

	_, err = newIngressGroup(groupKey{name: "team"}, []*networkingv1.Ingress{group("x", 80, "group.order", "1001")})
	wantError(t, err, "-1000..1000")
	wantError(t, checkGroupName(annotated(ingress("x", 80), "group.name", "Team_1")), "at most 63 of a-z")
}

func TestOptionErrors(t *testing.T) {
	_, err := New(nil, nil, nil, Options{
		OverQuota: "x", ControllerLag: elb.Range{Min: 2, Max: 1},
		Webhook: &WebhookOptions{Listen: netip.MustParseAddrPort("0.0.0.0:0")},
	})
	for _, want := range []string{"addresses", "over quota", "controller lag", "webhook: listen is 0.0.0.0:0"} {
		wantError(t, err, want)
	}
}
