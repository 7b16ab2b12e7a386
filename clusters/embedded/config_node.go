package embedded

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"lameduck/clusters"
	"lameduck/clusters/embedded/machine"
)

// Paths on a node are the usual ones: /run and /var/lib are its own.
const containerdSocket = "/run/containerd/containerd.sock"

const (
	kubeProxy     = "kube-proxy"
	kubeProxyFile = "kube-proxy.yaml" // its settings, in a node's directory
)

// writeNodeConfig writes the settings of node n's processes.
func (l layout) writeNodeConfig(n int, binaries, pauseImage string) error {
	dir := l.host(nodeName(n))
	if err := os.MkdirAll(filepath.Join(dir, "cni"), 0o700); err != nil {
		return err
	}
	cni, err := cniConfig(n)
	if err != nil {
		return err
	}
	files := map[string]string{
		"containerd.toml":          containerdConfig(dir, binaries, pauseImage),
		"kubelet.yaml":             kubeletConfig(dir, l.hostCgroup(nodeName(n)), l.pki("ca.crt")),
		kubeProxyFile:              kubeProxyConfig(dir, n, clusters.KubeProxySettings{}),
		"cni/10-lameduck.conflist": cni,
		"resolv.conf":              "", // no DNS in the cluster, and the real machine's is out of reach
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// nodeComponents are the processes of node n.
func (l layout) nodeComponents(n int, binaries string) []machine.Component {
	dir := l.host(nodeName(n))
	binary := func(name string) string { return filepath.Join(binaries, name) }
	return []machine.Component{
		{Name: "containerd", Path: binary("containerd"), Args: []string{
			"--config", filepath.Join(dir, "containerd.toml"),
		}},
		{Name: "kubelet", Path: binary("kubelet"), Args: []string{
			"--config=" + filepath.Join(dir, "kubelet.yaml"),
			"--kubeconfig=" + filepath.Join(dir, "kubelet.kubeconfig"),
			"--hostname-override=" + nodeName(n),
			"--node-ip=" + nodeAddress(n).String(),
			// cAdvisor reads the pods' CPU once in one to two of these intervals.
			// With the default of 10 s metrics-server, which asks every 10 s,
			// often finds no new value, and the HPA learns nothing for 20 s.
			"--housekeeping-interval=4s",
		}, After: []machine.Probe{{Unix: containerdSocket}, l.apiServes()}},
		{Name: kubeProxy, Path: binary(kubeProxy), Args: []string{
			"--config=" + filepath.Join(dir, kubeProxyFile),
		}, After: []machine.Probe{l.apiServes()}, Ready: &machine.Probe{
			URL: fmt.Sprintf("http://127.0.0.1:%d/healthz", proxyHealthPort), // 200 unless a change waits for too long
		}},
	}
}

func containerdConfig(dir, binaries, pauseImage string) string {
	return fmt.Sprintf(`version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
# What a node without other users, tracing and NRI plugins does not need.
disabled_plugins = [
  "io.containerd.internal.v1.opt",
  "io.containerd.internal.v1.tracing",
  "io.containerd.tracing.processor.v1.otlp",
  "io.containerd.nri.v1.nri",
]

[grpc]
  address = %[1]q

[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = %[2]q

[plugins.'io.containerd.cri.v1.runtime']
  # Machines without CAP_SYS_RESOURCE may not lower a process's OOM score.
  restrict_oom_score_adj = true
  # A profile loaded into the real machine's kernel would stay there.
  disable_apparmor = true
  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = "runc"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
        BinaryName = %[3]q
        SystemdCgroup = false
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = [%[4]q]
    conf_dir = %[5]q
`, containerdSocket, pauseImage, filepath.Join(binaries, "runc"), filepath.Join(binaries, "cni"), filepath.Join(dir, "cni"))
}

// cniConfig gives pods of node n a point-to-point link and an address; there
// is no bridge, so that a dead address meets the node's route at once and not
// only after ARP has failed.
func cniConfig(n int) (string, error) {
	conf := map[string]any{
		"cniVersion": "1.0.0",
		"name":       "lameduck",
		"plugins": []map[string]any{
			{
				"type": "ptp",
				"ipam": map[string]any{
					"type":    "host-local",
					"ranges":  [][]map[string]string{{{"subnet": nodePods(n).String()}}},
					"routes":  []map[string]string{{"dst": "0.0.0.0/0"}},
					"dataDir": "/var/lib/cni/networks",
				},
			},
			{"type": "portmap", "capabilities": map[string]bool{"portMappings": true}}, // hostPort
		},
	}
	b, err := json.MarshalIndent(conf, "", "  ")
	return string(b), err
}

func kubeletConfig(dir, cgroup, ca string) string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://%[1]s
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: %[2]q}
authorization: {mode: Webhook}
tlsCertFile: %[3]q
tlsPrivateKeyFile: %[4]q
resolvConf: %[5]q
volumePluginDir: /var/lib/kubelet/volumeplugins
# Kubelets that share a root delete each other's pods.
cgroupRoot: /%[6]s
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
enforceNodeAllocatable: []
oomScoreAdj: 0
# The disk and the memory are the real machine's, and no kubelet may judge them.
evictionHard: {}
localStorageCapacityIsolation: false
imageGCHighThresholdPercent: 100
# Images come from an archive, many pods start at once, and one log must last
# for a whole trial.
serializeImagePulls: false
registryPullQPS: 0
kubeAPIQPS: 200
kubeAPIBurst: 400
containerLogMaxSize: 200Mi
maxPods: 110
`, containerdSocket, ca, filepath.Join(dir, "kubelet.crt"), filepath.Join(dir, "kubelet.key"),
		filepath.Join(dir, "resolv.conf"), cgroup)
}

// kubeProxyDefaults are kube-proxy's own (KubeProxyConfiguration).
var kubeProxyDefaults = clusters.KubeProxySettings{Mode: "iptables", MinSyncPeriod: time.Second}

// orDefaults fills in the fields that are not set.
func orDefaults(s clusters.KubeProxySettings) clusters.KubeProxySettings {
	s.Mode = cmp.Or(s.Mode, kubeProxyDefaults.Mode)
	s.MinSyncPeriod = cmp.Or(s.MinSyncPeriod, kubeProxyDefaults.MinSyncPeriod)
	return s
}

// kubeProxyConfig leaves the sync periods and conntrack timeouts at their
// defaults if nothing else is asked for, spelled out because results depend on
// them.
func kubeProxyConfig(dir string, n int, s clusters.KubeProxySettings) string {
	s = orDefaults(s)
	return fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: %[6]s
clientConnection: {kubeconfig: %[1]q}
hostnameOverride: %[2]s
bindAddress: %[3]s
healthzBindAddress: 0.0.0.0:%[5]d
metricsBindAddress: 0.0.0.0:%[8]d
detectLocalMode: ClusterCIDR
clusterCIDR: %[4]s
oomScoreAdj: 0
iptables:
  minSyncPeriod: %[7]s
  syncPeriod: 30s
nftables:
  minSyncPeriod: %[7]s
  syncPeriod: 30s
conntrack:
  # The table's size is one for all namespaces and cannot be set from within one.
  maxPerCore: 0
  min: 0
  tcpEstablishedTimeout: 24h
  tcpCloseWaitTimeout: 1h
`, filepath.Join(dir, "kube-proxy.kubeconfig"), nodeName(n), nodeAddress(n), podRange, proxyHealthPort, s.Mode, s.MinSyncPeriod, proxyMetricsPort)
}

// kernelSettings are what the kubelet would otherwise set, for the whole real
// machine and for good (kubelet, setupKernelTunables). A node sees them as set.
var kernelSettings = map[string]string{
	"/proc/sys/vm/overcommit_memory":      "1\n",
	"/proc/sys/vm/panic_on_oom":           "0\n",
	"/proc/sys/kernel/panic":              "10\n",
	"/proc/sys/kernel/panic_on_oops":      "1\n",
	"/proc/sys/kernel/keys/root_maxkeys":  "1000000\n",
	"/proc/sys/kernel/keys/root_maxbytes": "25000000\n",
}
