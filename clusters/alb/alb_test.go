package alb

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"lameduck/clusters/alb/elb"
)

// freePort is a port that was free a moment ago.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// eventually polls until cond holds, or fails the test after a time that only
// a hang exceeds.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for limit := time.Now().Add(30 * time.Second); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("no %s within 30 s", what)
		}
	}
}

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}

// TestRun has one node, one Service in instance mode and one Ingress with an
// HTTP and an HTTPS listener, and two load balancer nodes. There is no
// certificate-arn, without which the AWS controller makes no HTTPS listener: the
// stand-in's certificate is its own.
func TestRun(t *testing.T) {
	app, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello") })}
	go func() { _ = server.Serve(app) }()
	defer server.Close()
	class, prefix, port, tlsPort := "alb", networkingv1.PathTypePrefix, freePort(t), freePort(t)
	client := fake.NewClientset(
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}},
		}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "app"}, Spec: corev1.ServiceSpec{
			Type:  corev1.ServiceTypeNodePort,
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, NodePort: int32(app.Addr().(*net.TCPAddr).Port)}},
		}},
		&networkingv1.Ingress{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "app", Annotations: map[string]string{
				"alb.ingress.kubernetes.io/listen-ports": fmt.Sprintf(`[{"HTTP": %d}, {"HTTPS": %d}]`, port, tlsPort),
			}},
			Spec: networkingv1.IngressSpec{IngressClassName: &class, Rules: []networkingv1.IngressRule{{IngressRuleValue: networkingv1.IngressRuleValue{
				HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{
					Path: "/", PathType: &prefix,
					Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "app", Port: networkingv1.ServiceBackendPort{Number: 80}}},
				}}},
			}}}},
		})
	ctx, cancel := context.WithCancel(t.Context())
	healthz, dir := fmt.Sprintf("127.0.0.1:%d", freePort(t)), t.TempDir()
	var log strings.Builder
	done := make(chan error)
	o, err := Options{
		Addresses: []string{"127.0.0.1", "127.0.0.2"}, LogDir: dir, Log: &log, HealthzAddr: healthz,
		Settings: elb.Settings{RegistrationLag: &elb.Range{}},
	}.resolve()
	if err != nil {
		t.Fatal(err)
	}
	go func() { done <- run(ctx, client, o) }()
	var addresses []string
	eventually(t, "address", func() bool {
		ing, err := client.NetworkingV1().Ingresses("ns").Get(t.Context(), "app", metav1.GetOptions{})
		addresses = nil
		for _, lb := range ing.Status.LoadBalancer.Ingress {
			addresses = append(addresses, lb.IP)
		}
		return err == nil && len(addresses) > 0
	})
	if got, want := fmt.Sprint(addresses), "[127.0.0.1 127.0.0.2]"; got != want {
		t.Errorf("status shows %s, want %s", got, want)
	}
	plain := &http.Transport{DisableKeepAlives: true}
	http2 := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer http2.CloseIdleConnections()
	protocol := ""
	get := func(transport *http.Transport, url string) (int, string) {
		resp, err := (&http.Client{Transport: transport}).Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		protocol = resp.Proto
		return resp.StatusCode, string(body)
	}
	for _, a := range addresses {
		eventually(t, "healthy target on "+a, func() bool {
			status, body := get(plain, fmt.Sprintf("http://%s:%d/", a, port))
			return status == 200 && body == "hello"
		})
		if status, body := get(http2, fmt.Sprintf("https://%s:%d/", a, tlsPort)); status != 200 || body != "hello" || protocol != "HTTP/2.0" {
			t.Errorf("HTTPS listener on %s: status %d, %q, %s; want 200 by HTTP/2.0", a, status, body, protocol)
		}
	}
	if status, _ := get(plain, "http://"+healthz+"/healthz"); status != 200 {
		t.Errorf("healthz: status %d", status)
	}
	eventually(t, "metrics", func() bool {
		_, text := get(plain, "http://"+healthz+"/metrics")
		return strings.Contains(text, `HealthyHostCount{LoadBalancer="ns/app",TargetGroup="ns/app:80"} 1`) && strings.Contains(text, `HTTPCode_Target_2XX_Count{LoadBalancer="ns/app",TargetGroup="ns/app:80"}`)
	})
	eventually(t, "event in the API server", func() bool {
		events, err := client.CoreV1().Events("ns").List(t.Context(), metav1.ListOptions{})
		return err == nil && len(events.Items) > 0
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "load balancer on [127.0.0.1 127.0.0.2]") {
		t.Errorf("messages: %q", log.String())
	}
	for _, ending := range []string{".jsonl", ".log", ".targets.jsonl", ".settings.jsonl"} {
		if b, err := os.ReadFile(filepath.Join(dir, "ns", "app"+ending)); err != nil || len(b) == 0 {
			t.Errorf("log %s: %d bytes, error %v", ending, len(b), err)
		}
	}
}

func TestUnreachableAPIServerIsSaid(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:%d"}}]
contexts: [{name: c, context: {cluster: c}}]
current-context: c
`, freePort(t))
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, Options{Kubeconfig: kubeconfig, Addresses: []string{"127.0.0.1"}, LogDir: t.TempDir(), Log: in})
		in.Close()
	}()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "waiting for the API server: ") {
			cancel() // and the rest is read until Run returns
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if ctx.Err() == nil {
		t.Error("nothing was said")
	}
	cancel()
}

func TestBadOptions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := Run(t.Context(), Options{LogDir: file, Addresses: []string{"here"}, WebhookAddr: "there", Settings: elb.Settings{}})
	for _, want := range []string{`address is "here": want an IP address`, `webhook address is "there"`, "make log directory"} {
		wantError(t, err, want)
	}
	err = Run(t.Context(), Options{LogDir: t.TempDir()})
	wantError(t, err, "no address: want at least one")
	err = Run(t.Context(), Options{Addresses: []string{"198.18.255.254"}, LogDir: t.TempDir()})
	wantError(t, err, "listen on 198.18.255.254")
}
