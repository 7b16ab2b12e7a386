package controller

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestDeletedIngressClosesItsPort(t *testing.T) {
	w := newWorld(t, node("a", "127.0.0.1"), service("app"), ingress("app", freePort(t)))
	addr := w.address("app")
	w.get("app")
	w.remove("app")
	eventually(t, "closed port", func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	if lines := readLog(t, filepath.Join(w.dir, "ns", "app.jsonl")); len(lines) != 1 {
		t.Errorf("log has %d lines, want 1", len(lines))
	}
}

func TestIngressesSideBySide(t *testing.T) {
	w := newWorld(t, node("a", "127.0.0.1"), service("app"), ingress("one", freePort(t)), ingress("two", freePort(t)))
	if one, two := w.address("one"), w.address("two"); one == two {
		t.Errorf("both at %s", one)
	}
	w.get("one")
	w.get("two")
	for _, name := range []string{"one", "two"} {
		if lines := readLog(t, filepath.Join(w.dir, "ns", name+".jsonl")); len(lines) != 1 {
			t.Errorf("%s: log has %d lines, want 1", name, len(lines))
		}
	}
}

func TestTakenPort(t *testing.T) {
	port := freePort(t)
	w := newWorld(t, node("a", "127.0.0.1"), service("app"), ingress("one", port))
	w.address("one")
	w.create(ingress("two", port))
	w.event("Warning FailedBuildModel", fmt.Sprintf("port %d is taken by Ingress ns/one", port), "listen-ports")
	w.remove("one")
	w.address("two") // takes over as soon as the port is free
}

func TestPortOfAnotherProcess(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	w := newWorld(t, node("a", "127.0.0.1"), service("app"), ingress("app", port))
	w.event("Warning FailedDeployModel", "address already in use")
	l.Close()
	w.address("app") // it is tried again
}

func TestWrongAnnotationGetsEventAndNoListener(t *testing.T) {
	port := freePort(t)
	ing := ingress("app", port)
	ing.Annotations[annotationPrefix+"target-group-attributes"] = "deregistration_delay.timeout_seconds=3601"
	w := newWorld(t, node("a", "127.0.0.1"), service("app"), ing)
	w.event("Warning FailedBuildModel", annotationPrefix+"target-group-attributes", "deregistration_delay.timeout_seconds=3601", "0..3600")
	if c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
		c.Close()
		t.Error("it listens all the same")
	}
	w.update(ingress("app", port))
	w.address("app")
	w.event("Normal SuccessfullyReconciled")
}

func TestUnknownAnnotationGetsWarning(t *testing.T) {
	ing := ingress("app", freePort(t))
	ing.Annotations[annotationPrefix+"waf-acl-id"] = "x"
	ing.Annotations["example.com/other"] = "x"
	w := newWorld(t, node("a", "127.0.0.1"), service("app"), ing)
	w.event("Warning Ignored", annotationPrefix+"waf-acl-id")
	w.address("app")
}

func TestOtherClassesAreLeftAlone(t *testing.T) {
	other, legacy := ingress("other", freePort(t)), ingress("legacy", freePort(t))
	class := "nginx"
	other.Spec.IngressClassName = &class
	legacy.Spec.IngressClassName = nil
	legacy.Annotations[legacyClassAnnotation] = IngressClass
	w := newWorld(t, node("a", "127.0.0.1"), service("app"), other, legacy)
	w.address("legacy")
	ing, err := w.client.NetworkingV1().Ingresses("ns").Get(t.Context(), "other", metav1.GetOptions{})
	if err != nil || len(ing.Status.LoadBalancer.Ingress) != 0 {
		t.Errorf("status %+v, %v", ing.Status, err)
	}
}

func TestServiceThatComesLater(t *testing.T) {
	w := newWorld(t, node("a", "127.0.0.1"), ingress("app", freePort(t)))
	if status := w.get("app"); status != http.StatusServiceUnavailable {
		t.Errorf("status %d, want 503", status)
	}
	w.create(service("app"))
	eventually(t, "target", func() bool { return w.get("app") != http.StatusServiceUnavailable })
}

func TestRunStopsWhenContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	client := fake.NewClientset(node("a", "127.0.0.1"), service("app"), ingress("app", freePort(t)))
	w := &world{t: t, client: client}
	healthz := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	var log strings.Builder
	done := make(chan error)
	go func() {
		done <- run(ctx, client, Options{Address: "127.0.0.1", LogDir: t.TempDir(), Log: &log, HealthzAddr: healthz})
	}()
	w.address("app")
	w.get("app")
	resp, err := http.Get("http://" + healthz + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Errorf("healthz: status %d", resp.StatusCode)
	}
	eventually(t, "event in the API server", func() bool {
		events, err := client.CoreV1().Events("ns").List(t.Context(), metav1.ListOptions{})
		return err == nil && len(events.Items) > 0
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "load balancer on 127.0.0.1") {
		t.Errorf("messages: %q", log.String())
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
		done <- Run(ctx, Options{Kubeconfig: kubeconfig, Address: "127.0.0.1", LogDir: t.TempDir(), Log: in})
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
	err := Run(t.Context(), Options{LogDir: file, Settings: Settings{PoolOrder: "random"}})
	for _, want := range []string{`address is "": want an IP address`, "make log directory", `pool order is "random": want lifo or fifo`} {
		wantError(t, err, want)
	}
	err = Run(t.Context(), Options{Address: "198.18.255.254", LogDir: t.TempDir()})
	wantError(t, err, "listen on 198.18.255.254")
}
