//go:build e2e

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"lameduck/clusters"
	"lameduck/clusters/alb"
	"lameduck/clusters/embedded"
	"lameduck/clusters/embedded/embeddedtest"
	"lameduck/clusters/images"
	"lameduck/clusters/kube"
	"lameduck/experiments"
	"lameduck/harness"
)

// TestE2EALBAsPod ends the load balancer of an embedded cluster and lets the one
// of "lameduck alb manifest" take its place.
func TestE2EALBAsPod(t *testing.T) {
	const name = "e2e-alb"
	abs := func(path string) string {
		path, err := filepath.Abs(filepath.Join("../../bin", path))
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	provider := embedded.NewProvider(embedded.Config{Self: abs("lameduck"), Binaries: abs("embedded")})
	embeddedtest.RemoveAround(t, provider, name)
	cluster, err := provider.Up(ctx, clusters.Options{Name: name, Nodes: 2}, io.Discard)
	if err != nil {
		t.Fatalf("%v; run: make build", err)
	}
	status, err := provider.Status(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range status.Parts {
		if p.Name == "alb" {
			if err := syscall.Kill(p.PID, syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
	}
	archive := filepath.Join(t.TempDir(), "alb.tar")
	p := start(t, "", "alb", "manifest", "--image-archive", archive)
	if code := p.wait(t); code != exitOK {
		t.Fatalf("alb manifest: exit code %d, stderr %s", code, p.errors())
	}
	loader := cluster.(clusters.ImageLoader)
	ref := regexp.MustCompile(`image: (\S+)`).FindStringSubmatch(p.stdout.String())[1]
	err = loader.LoadImage(ctx, func(path string) error {
		return images.Write(path, ref, map[string]string{alb.Binary: abs("lameduck")}, []string{alb.Binary})
	})
	if err != nil {
		t.Fatal(err)
	}
	config, err := cluster.REST()
	if err != nil {
		t.Fatal(err)
	}
	apply(t, ctx, config, p.stdout.Bytes())

	target, err := images.Ref("target", abs("target"))
	if err == nil {
		err = loader.LoadImage(ctx, func(path string) error {
			return images.Write(path, target, map[string]string{"/target": abs("target")}, []string{"/target"})
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	world, err := kube.NewWorld(kube.Config{REST: config, Provider: "embedded", TargetImage: target})
	if err != nil {
		t.Fatal(err)
	}
	e, err := experiments.Builtin("scale-in")
	if err != nil {
		t.Fatal(err)
	}
	e.Base.LoadBalancer.TargetType = harness.TargetIP
	d, err := world.Deploy(ctx, harness.Trial{Number: 1, RunID: "pod", Setup: e.Base}, harness.NewClock(), noRecord{})
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(d.Target().ReadyURL)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(at.Host, "198.19.") {
		t.Errorf("the Ingress's address is %s, want that of a pod", at.Host)
	}
	// The target is healthy a little after the address is there.
	request := fmt.Sprintf(`exec 3<>/dev/tcp/%s/%s && printf 'GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n' >&3 && head -1 <&3`,
		at.Hostname(), at.Port(), at.Path)
	var answer []byte
	for limit := time.Now().Add(time.Minute); !bytes.Contains(answer, []byte(" 200 ")); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("answer %q, want 200", answer)
		}
		answer, _ = cluster.(clusters.ClientHost).ClientCommand(ctx, "bash", "-c", request).CombinedOutput()
	}
	if err := errors.Join(d.Remove(ctx), world.Close(ctx)); err != nil {
		t.Error(err)
	}
}

// apply creates what a manifest has and is not there yet.
func apply(t *testing.T, ctx context.Context, config *rest.Config, manifest []byte) {
	t.Helper()
	dc, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(dc))
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096)
	for {
		var object unstructured.Unstructured
		if err := decoder.Decode(&object); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		kind := object.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Resource(mapping.Resource).Namespace(object.GetNamespace()).Create(ctx, &object, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatalf("create %s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
}

// noRecord is a harness.Recorder that keeps nothing.
type noRecord struct{}

func (noRecord) Request(harness.Request) {}
func (noRecord) Event(harness.Event)     {}
func (noRecord) Log(string, []byte)      {}
