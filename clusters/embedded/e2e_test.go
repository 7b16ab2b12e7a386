//go:build e2e

package embedded

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"lameduck/clusters"
	"lameduck/clusters/alb"
	"lameduck/clusters/embedded/embeddedtest"
	"lameduck/clusters/images"
	"lameduck/clusters/metrics"
)

// The test binary is also "lameduck" for the clusters that it makes: their
// supervisors and load balancers, and the processes that tests kill.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	switch os.Args[1] {
	case "embedded-host":
		err = RunHost(ctx, os.Args[3])
	case "alb":
		o := alb.Options{Log: os.Stderr}
		fs := flag.NewFlagSet("alb", flag.ExitOnError)
		fs.StringVar(&o.Kubeconfig, "kubeconfig", "", "")
		fs.Func("address", "", func(a string) error { o.Addresses = append(o.Addresses, a); return nil })
		fs.StringVar(&o.WebhookAddr, "webhook-address", "", "")
		fs.StringVar(&o.LogDir, "log-dir", "", "")
		fs.StringVar(&o.HealthzAddr, "healthz-address", "", "")
		fs.Parse(os.Args[2:])
		err = alb.Run(ctx, o)
	case "up": // NAME STATEDIR
		p := provider(os.Args[3])
		_, err = p.Up(ctx, clusters.Options{Name: os.Args[2], Nodes: 1}, os.Stderr)
	case "pause": // NAME STATEDIR: until it is killed
		err = pauseAPIServer(ctx, provider(os.Args[3]), os.Args[2])
	case "external-metrics":
		var o metrics.Options
		fs := flag.NewFlagSet("external-metrics", flag.ExitOnError)
		for name, to := range map[string]*string{
			"kubeconfig": &o.Kubeconfig, "address": &o.Address, "tls-cert": &o.Cert, "tls-key": &o.Key, "client-ca": &o.ClientCA,
		} {
			fs.StringVar(to, name, "", "")
		}
		fs.Parse(os.Args[2:])
		err = metrics.Run(ctx, o)
	default:
		// As a process of a cluster that this function does not know, the tests would
		// run within the tests, and remove the cluster that is being made.
		if !strings.HasPrefix(os.Args[1], "-test.") {
			err = fmt.Errorf("%s: not one of lameduck's commands that these tests need", os.Args[1])
			break
		}
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

const bin = "../../bin"

func provider(stateDir string) *Provider {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	binaries, err := filepath.Abs(filepath.Join(bin, "embedded"))
	if err != nil {
		panic(err)
	}
	return NewProvider(Config{Self: self, Binaries: binaries, StateDir: stateDir})
}

// newProvider gives a test a state directory of its own, in the place of the
// default one because that is what machines hide, and checks at the end that
// nothing is left of the named cluster.
func newProvider(t testing.TB, name string) *Provider {
	t.Helper()
	dir, err := os.MkdirTemp("/var/lib", "lameduck-test-")
	if err != nil {
		t.Fatal(err)
	}
	p := provider(dir)
	t.Cleanup(func() { // after the cluster's removal
		os.Remove(dir) // Clean removes it with the last cluster
		for _, l := range embeddedtest.Leftovers(name, dir) {
			t.Errorf("left over: %s", l)
		}
	})
	embeddedtest.RemoveAround(t, p, name)
	t.Cleanup(func() {
		if t.Failed() {
			showLogs(t, p, name)
		}
	})
	return p
}

func showLogs(t testing.TB, p *Provider, name string) {
	s, err := p.Status(context.Background(), name)
	if err != nil {
		return
	}
	for _, part := range s.Parts {
		t.Logf("%s %s running=%t: %s", part.Host, part.Name, part.Running, tail(part.Log))
	}
}

// logWriter shows progress as a test's log.
type logWriter struct{ t testing.TB }

func (w logWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimRight(string(p), "\n"))
	return len(p), nil
}

func up(t testing.TB, p *Provider, name string, nodes int) (clusters.Cluster, kubernetes.Interface) {
	t.Helper()
	c, err := p.Up(t.Context(), clusters.Options{Name: name, Nodes: nodes}, logWriter{t})
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := c.REST()
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c, client
}

// loadTarget puts the image of the built-in application on the nodes.
func loadTarget(t testing.TB, c clusters.Cluster) string {
	t.Helper()
	target := filepath.Join(bin, "target")
	ref, err := images.Ref("target", target)
	if err != nil {
		t.Fatalf("%v; run: make build", err)
	}
	err = c.(clusters.ImageLoader).LoadImage(t.Context(), func(archive string) error {
		return images.Write(archive, ref, map[string]string{"/target": target}, []string{"/target"})
	})
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// TestCluster goes the way of a user, once from one end to the other.
func TestE2ECluster(t *testing.T) {
	const name = "e2e-cluster"
	before := embeddedtest.HostState(t)
	p := newProvider(t, name)
	c, client := up(t, p, name, 2)

	if st, err := os.Stat(c.Kubeconfig()); err != nil || st.Mode() != 0o600 {
		t.Errorf("kubeconfig: mode %v, error %v; want 0600", st.Mode(), err)
	}
	if after := embeddedtest.HostState(t); after != before {
		t.Errorf("the machine's own network has changed; before:\n%s\nafter:\n%s", before, after)
	}
	image := loadTarget(t, c)
	deploy(t, client, image, 4)
	waitReplicas(t, client, 4)

	t.Run("kubectl", func(t *testing.T) {
		out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "embedded", "kubectl"),
			"--kubeconfig", c.Kubeconfig(), "get", "nodes", "-o", "name").CombinedOutput()
		if got := string(out); err != nil || got != "node/n1\nnode/n2\n" {
			t.Errorf("kubectl get nodes: %v: %s", err, got)
		}
	})
	t.Run("load balancer from the machine", func(t *testing.T) {
		s, err := p.Status(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		get(t, s.Published["load-balancer"]+"/")
	})
	t.Run("node port from the client", func(t *testing.T) {
		cmd := c.(clusters.ClientHost).ClientCommand(t.Context(), "bash", "-c",
			`exec 3<>/dev/tcp/198.18.0.11/30080 && printf 'GET / HTTP/1.0\r\n\r\n' >&3 && head -1 <&3`)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "200 OK") {
			t.Errorf("request: %v: %s", err, out)
		}
	})
	t.Run("load balancer log", func(t *testing.T) {
		f, err := c.(clusters.LoadBalancerLog).LoadBalancerLog(t.Context(), "default", "app", clusters.LogRequests)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if !bufio.NewScanner(f).Scan() {
			t.Error("no line for the request")
		}
	})
	t.Run("name in use", func(t *testing.T) {
		_, err := p.Up(t.Context(), clusters.Options{Name: name, Nodes: 1}, io.Discard)
		if err == nil || !strings.Contains(err.Error(), "running already") {
			t.Errorf("error is %v", err)
		}
		if _, err := p.Open(t.Context(), name); err != nil {
			t.Errorf("the refused Up has hurt the cluster: %v", err)
		}
	})
	if err := p.Clean(t.Context(), name, logWriter{t}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Open(t.Context(), name); !errors.Is(err, clusters.ErrNotFound) {
		t.Errorf("after Clean, Open gives %v", err)
	}
}

// get asks until the answer is 200: an Ingress takes a moment to be served.
func get(t *testing.T, url string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err := poll(ctx, func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
	if err != nil {
		t.Errorf("GET %s: %v", url, err)
	}
}
