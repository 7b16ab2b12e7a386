package embedded

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"lameduck/clusters"
)

// parse reads rendered YAML or JSON.
func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := yaml.UnmarshalStrict([]byte(text), &m); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return m
}

func TestKubeletConfig(t *testing.T) {
	l := layout{name: "x", dir: "/state/x"}
	m := parse(t, kubeletConfig(l.host("n2"), l.hostCgroup("n2"), l.pki("ca.crt")))
	for key, want := range map[string]any{
		"kind":         "KubeletConfiguration",
		"cgroupRoot":   "/lameduck-x/n2", // shared by two kubelets they delete each other's pods
		"cgroupDriver": "cgroupfs",
		"failCgroupV1": false,
		"failSwapOn":   false,
		"tlsCertFile":  "/state/x/n2/kubelet.crt",
		"resolvConf":   "/state/x/n2/resolv.conf",
	} {
		if m[key] != want {
			t.Errorf("%s is %v, want %v", key, m[key], want)
		}
	}
	// What decides when a pod's end is noticed stays as in any cluster.
	for _, key := range []string{"syncFrequency", "shutdownGracePeriod", "nodeStatusUpdateFrequency", "featureGates"} {
		if v, set := m[key]; set {
			t.Errorf("%s is set to %v", key, v)
		}
	}
}

func TestKubeProxyConfig(t *testing.T) {
	for _, c := range []struct {
		set          clusters.KubeProxySettings
		mode, period string
	}{
		{clusters.KubeProxySettings{}, "iptables", "1s"}, // the defaults
		{clusters.KubeProxySettings{Mode: "nftables", MinSyncPeriod: 10 * time.Second}, "nftables", "10s"},
		{clusters.KubeProxySettings{MinSyncPeriod: 100 * time.Millisecond}, "iptables", "100ms"},
	} {
		m := parse(t, kubeProxyConfig("/state/x/n1", 1, c.set))
		for _, section := range []string{"iptables", "nftables"} {
			if got := m[section].(map[string]any); got["minSyncPeriod"] != c.period || got["syncPeriod"] != "30s" {
				t.Errorf("%+v: %s has %v", c.set, section, got)
			}
		}
		if m["bindAddress"] != "198.18.0.11" || m["clusterCIDR"] != "198.19.0.0/16" || m["mode"] != c.mode {
			t.Errorf("%+v: rendered %v", c.set, m)
		}
	}
}

func TestCNIConfig(t *testing.T) {
	text, err := cniConfig(3)
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid([]byte(text)) || !strings.Contains(text, `"subnet": "198.19.3.0/24"`) {
		t.Errorf("rendered %s", text)
	}
}

func TestContainerdConfig(t *testing.T) {
	got := containerdConfig("/state/x/n1", "/bin/e", "lameduck.local/pause:1")
	for _, want := range []string{
		`sandbox = "lameduck.local/pause:1"`, `BinaryName = "/bin/e/runc"`, `bin_dirs = ["/bin/e/cni"]`, `conf_dir = "/state/x/n1/cni"`,
		"SystemdCgroup = false",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	if strings.Contains(got, "%!") {
		t.Errorf("bad format in\n%s", got)
	}
}

func TestComponents(t *testing.T) {
	l := layout{name: "x", dir: t.TempDir()}
	external := l.externalMetricsComponent("/bin/lameduck")
	components := append(append(l.controlPlaneComponents("/bin/e"), external), l.nodeComponents(1, "/bin/e")...)
	alb, err := l.albComponent("/bin/lameduck")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range append(components, alb) {
		names = append(names, c.Name)
		if !filepath.IsAbs(c.Path) {
			t.Errorf("%s: path %s is not absolute", c.Name, c.Path)
		}
	}
	want := "etcd kube-apiserver kube-controller-manager kube-scheduler metrics-server external-metrics containerd kubelet kube-proxy alb"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("components are %s", got)
	}
	if want := []string{"alb", "--kubeconfig", l.host("lb") + "/alb.kubeconfig", "--address", "198.18.0.5", "--address", "198.18.0.7",
		"--webhook-address", "198.18.0.5:9443", "--log-dir", l.albLogs(), "--healthz-address", "127.0.0.1:8081"}; !slices.Equal(alb.Args, want) {
		t.Errorf("alb is started with %q", alb.Args)
	}
	if want := []string{"external-metrics", "--kubeconfig", l.host("cp") + "/external-metrics.kubeconfig", "--address", "198.18.0.2:4444",
		"--tls-cert", l.pki("external-metrics.crt"), "--tls-key", l.pki("external-metrics.key"), "--client-ca", l.pki("front-proxy-ca.crt")}; !slices.Equal(external.Args, want) {
		t.Errorf("external-metrics is started with %q", external.Args)
	}
}

func TestCredentials(t *testing.T) {
	l := layout{name: "x", dir: t.TempDir()}
	if err := l.writeCredentials(2, "https://127.0.0.1:12345"); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(l.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		st, err := d.Info()
		if err == nil && st.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", path, st.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", l.kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Host != "https://127.0.0.1:12345" {
		t.Errorf("the user's kubeconfig leads to %s", cfg.Host)
	}
	cfg, err = clientcmd.BuildConfigFromFlags("", filepath.Join(l.host("n2"), "kubelet.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Host != "https://198.18.0.2:6443" {
		t.Errorf("the kubelet's kubeconfig leads to %s", cfg.Host)
	}
	// The node authorizer goes by exactly this user and group.
	cert := certificate(t, cfg.CertData)
	if cert.Subject.CommonName != "system:node:n2" || !slices.Equal(cert.Subject.Organization, []string{"system:nodes"}) {
		t.Errorf("the kubelet is %s", cert.Subject)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cfg.CAData)
	server, err := os.ReadFile(l.pki("apiserver.crt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"127.0.0.1", "198.18.0.2", "198.18.128.1", "kubernetes.default.svc"} {
		if _, err := certificate(t, server).Verify(x509.VerifyOptions{Roots: roots, DNSName: name}); err != nil {
			t.Errorf("as %s: %v", name, err)
		}
	}
	server, err = os.ReadFile(l.pki("external-metrics.crt"))
	if err != nil {
		t.Fatal(err)
	}
	// The API server verifies it as the Service's, not as the endpoint's.
	if _, err := certificate(t, server).Verify(x509.VerifyOptions{Roots: roots, DNSName: "external-metrics.kube-system.svc"}); err != nil {
		t.Error(err)
	}
	// Who has a certificate of the ordinary CA must not pass as the front proxy.
	front, err := os.ReadFile(l.pki("front-proxy-ca.crt"))
	if err != nil || bytes.Equal(front, cfg.CAData) {
		t.Errorf("the front proxy's CA is the CA of all clients (error %v)", err)
	}
}

func certificate(t *testing.T, text []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(text)
	if block == nil {
		t.Fatal("no certificate")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}
