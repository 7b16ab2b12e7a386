package embedded

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"lameduck/clusters/embedded/machine"
)

// Paths of the API server: its readiness, and the same without the steps that
// only create objects.
const (
	ready  = "/readyz"
	serves = "/readyz?exclude=poststarthook/rbac/bootstrap-roles" +
		"&exclude=poststarthook/scheduling/bootstrap-system-priority-classes" +
		"&exclude=poststarthook/bootstrap-controller"
)

// apiServes holds once the API server serves. That its own objects (RBAC's
// roles, priority classes, the Service kubernetes) exist is not waited for: the
// nodes do not need them, and it takes longer than all before.
func (l layout) apiServes() machine.Probe { return l.apiProbe(serves) }

// apiReady holds once the API server says of itself that it is ready.
func (l layout) apiReady() machine.Probe { return l.apiProbe(ready) }

func (l layout) apiProbe(path string) machine.Probe {
	return machine.Probe{
		URL: inside + path, CA: l.pki("ca.crt"), Cert: l.pki("admin.crt"), Key: l.pki("admin.key"),
	}
}

// controlPlaneComponents are the processes of the host cp.
func (l layout) controlPlaneComponents(binaries string) []machine.Component {
	dir := l.host(hostCP)
	binary := func(name string) string { return filepath.Join(binaries, name) }
	etcd := machine.Component{Name: "etcd", Path: binary("etcd"), Args: []string{
		"--name=cp",
		"--data-dir=" + filepath.Join(dir, "etcd"),
		"--listen-client-urls=http://127.0.0.1:2379",
		"--advertise-client-urls=http://127.0.0.1:2379",
		"--listen-peer-urls=http://127.0.0.1:2380",
		"--initial-advertise-peer-urls=http://127.0.0.1:2380",
		"--initial-cluster=cp=http://127.0.0.1:2380",
		"--unsafe-no-fsync", // the cluster does not outlive the machine
		"--log-level=warn",
	}}
	apiServer := machine.Component{Name: "kube-apiserver", Path: binary("kube-apiserver"), Args: []string{
		"--etcd-servers=http://127.0.0.1:2379",
		"--advertise-address=" + controlPlane.String(),
		"--secure-port=" + strconv.Itoa(apiPort),
		"--cert-dir=" + dir,
		"--tls-cert-file=" + l.pki("apiserver.crt"),
		"--tls-private-key-file=" + l.pki("apiserver.key"),
		"--client-ca-file=" + l.pki("ca.crt"),
		"--authorization-mode=Node,RBAC",
		"--allow-privileged=true",
		"--service-cluster-ip-range=" + serviceRange.String(),
		"--service-node-port-range=30000-32767",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + l.pki("service-accounts.crt"),
		"--service-account-signing-key-file=" + l.pki("service-accounts.key"),
		"--kubelet-client-certificate=" + l.pki("apiserver.crt"),
		"--kubelet-client-key=" + l.pki("apiserver.key"),
		"--kubelet-certificate-authority=" + l.pki("ca.crt"),
		"--kubelet-preferred-address-types=InternalIP",
		// For the metrics' servers. The API server has no kube-proxy beside it, so it
		// must go to the endpoint itself.
		"--enable-aggregator-routing=true",
		"--requestheader-client-ca-file=" + l.pki("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file=" + l.pki("front-proxy.crt"),
		"--proxy-client-key-file=" + l.pki("front-proxy.key"),
		"--profiling=false",
	}}
	kubeconfig := func(name string) string { return filepath.Join(dir, name+".kubeconfig") }
	controllers := machine.Component{Name: "kube-controller-manager", Path: binary("kube-controller-manager"), Args: []string{
		"--kubeconfig=" + kubeconfig("controller-manager"),
		"--leader-elect=false", // there is only one
		"--root-ca-file=" + l.pki("ca.crt"),
		"--service-account-private-key-file=" + l.pki("service-accounts.key"),
		"--service-cluster-ip-range=" + serviceRange.String(),
		"--cluster-cidr=" + podRange.String(),
		"--allocate-node-cidrs=false", // a node's pods have its number in their address
		// A trial lasts a minute or two. The defaults (15 s, 5 min, 30 s) would
		// let the HPA notice its end at most: it ignores the CPU of pods that
		// are younger than the initialization period, or became ready within the
		// readiness delay of their start.
		"--horizontal-pod-autoscaler-sync-period=1s",
		"--horizontal-pod-autoscaler-cpu-initialization-period=10s",
		"--horizontal-pod-autoscaler-initial-readiness-delay=5s",
		// The usual limits (20 and 30) stretch the creation of 20 pods.
		"--kube-api-qps=300", "--kube-api-burst=600",
		"--tls-cert-file=" + l.pki("controllers.crt"), // to make one takes it a moment
		"--tls-private-key-file=" + l.pki("controllers.key"),
		"--profiling=false",
		// Started earlier it would find the API server not ready, and look again
		// only a second later.
	}, After: []machine.Probe{l.apiReady()}}
	scheduler := machine.Component{Name: "kube-scheduler", Path: binary("kube-scheduler"), Args: []string{
		"--kubeconfig=" + kubeconfig("scheduler"),
		"--authentication-kubeconfig=" + kubeconfig("scheduler"),
		"--authorization-kubeconfig=" + kubeconfig("scheduler"),
		"--leader-elect=false",
		"--kube-api-qps=300", "--kube-api-burst=600",
		"--tls-cert-file=" + l.pki("controllers.crt"), // to make one takes it a moment
		"--tls-private-key-file=" + l.pki("controllers.key"),
		"--profiling=false",
	}, After: []machine.Probe{l.apiServes()}}
	metrics := machine.Component{Name: "metrics-server", Path: binary("metrics-server"), Args: []string{
		"--kubeconfig=" + kubeconfig("metrics-server"),
		"--authentication-kubeconfig=" + kubeconfig("metrics-server"),
		"--authorization-kubeconfig=" + kubeconfig("metrics-server"),
		"--secure-port=" + strconv.Itoa(metricsPort),
		"--cert-dir=" + dir,
		"--tls-cert-file=" + l.pki("metrics-server.crt"),
		"--tls-private-key-file=" + l.pki("metrics-server.key"),
		"--kubelet-certificate-authority=" + l.pki("ca.crt"),
		"--kubelet-preferred-address-types=InternalIP",
		// The shortest that it accepts, and it wants the other to be shorter.
		"--metric-resolution=10s",
		"--kubelet-request-timeout=3s",
	}, After: []machine.Probe{l.apiServes()}}
	return []machine.Component{etcd, apiServer, controllers, scheduler, metrics}
}

// externalMetricsComponent serves metrics whose values are set by hand (package
// clusters/metrics), beside the API server, which asks it. Its executable is
// lameduck itself.
func (l layout) externalMetricsComponent(self string) machine.Component {
	return machine.Component{Name: externalService, Path: self, Args: []string{
		externalService,
		"--kubeconfig", filepath.Join(l.host(hostCP), "external-metrics.kubeconfig"),
		"--address", netip.AddrPortFrom(controlPlane, externalPort).String(),
		"--tls-cert", l.pki("external-metrics.crt"),
		"--tls-key", l.pki("external-metrics.key"),
		"--client-ca", l.pki("front-proxy-ca.crt"),
	}, After: []machine.Probe{l.apiServes()}}
}

// albComponent is the load balancer. Its executable is lameduck itself.
func (l layout) albComponent(self string) (machine.Component, error) {
	if err := os.MkdirAll(l.albLogs(), 0o700); err != nil {
		return machine.Component{}, fmt.Errorf("create the load balancer's logs: %w", err)
	}
	health := net.JoinHostPort("127.0.0.1", strconv.Itoa(albHealthPort))
	return machine.Component{Name: "alb", Path: self, Args: []string{
		"alb",
		"--kubeconfig", filepath.Join(l.host(hostLB), "alb.kubeconfig"),
		"--address", loadBalancers[0].String(), "--address", loadBalancers[1].String(),
		"--webhook-address", netip.AddrPortFrom(loadBalancers[0], albWebhookPort).String(),
		"--log-dir", l.albLogs(),
		"--healthz-address", health,
	}, After: []machine.Probe{l.apiServes()}, Ready: &machine.Probe{URL: "http://" + health + "/healthz"}}, nil
}
