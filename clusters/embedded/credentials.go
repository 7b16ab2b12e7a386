package embedded

import (
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// inside is the API server's address for everything in the cluster's network.
var inside = fmt.Sprintf("https://%s:%d", controlPlane, apiPort)

// masters is the group that RBAC lets do everything.
const masters = "system:masters"

// writeCredentials makes all certificates and kubeconfig files. published is
// the API server's URL for users of the real machine.
func (l layout) writeCredentials(nodes int, published string) error {
	if err := os.MkdirAll(l.pki(""), 0o700); err != nil {
		return err
	}
	ca, err := newAuthority("lameduck")
	if err != nil {
		return err
	}
	// A client that this CA vouches for may speak for any user, so it must not
	// be the CA of ordinary clients.
	front, err := newAuthority("lameduck-front-proxy")
	if err != nil {
		return err
	}
	if err := os.WriteFile(l.pki("ca.crt"), ca.pem, 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(l.pki("front-proxy-ca.crt"), front.pem, 0o600); err != nil {
		return err
	}
	private, public, err := newSigningKey()
	if err != nil {
		return err
	}
	if err := (pair{cert: public, key: private}).write(l.pki("service-accounts")); err != nil {
		return err
	}
	if err := l.writeServers(ca, front); err != nil {
		return err
	}
	if err := l.writeClients(ca, nodes); err != nil {
		return err
	}
	admin, err := ca.issue("lameduck-admin", masters)
	if err != nil {
		return err
	}
	if err := admin.write(l.pki("admin")); err != nil {
		return err
	}
	return writeKubeconfig(l.kubeconfig(), "lameduck-"+l.name, published, ca.pem, admin)
}

func (l layout) writeServers(ca, front *authority) error {
	apiServer, err := ca.issue("kube-apiserver", masters,
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost",
		"127.0.0.1", controlPlane.String(), kubernetesSvc.String())
	if err != nil {
		return err
	}
	servers := make(map[string]pair)
	for _, api := range metricsAPIs {
		if servers[api.service], err = ca.issue(api.service, "", api.service+"."+systemNamespace+".svc", controlPlane.String()); err != nil {
			return err
		}
	}
	controllers, err := ca.issue("controllers", "", "localhost", "127.0.0.1", controlPlane.String())
	if err != nil {
		return err
	}
	proxy, err := front.issue("front-proxy-client", "")
	if err != nil {
		return err
	}
	servers["apiserver"], servers["controllers"], servers["front-proxy"] = apiServer, controllers, proxy
	for name, p := range servers {
		if err := p.write(l.pki(name)); err != nil {
			return err
		}
	}
	return nil
}

// writeClients writes the kubeconfig files of the cluster's own processes.
func (l layout) writeClients(ca *authority, nodes int) error {
	type user struct{ file, name, group string }
	users := []user{
		// The group masters works before RBAC's own roles exist. And with one
		// identity for all controllers the controller manager needs the rights
		// of all; the usual service account for each costs seconds at start.
		{hostCP + "/controller-manager.kubeconfig", "system:kube-controller-manager", masters},
		{hostCP + "/scheduler.kubeconfig", "system:kube-scheduler", masters},
		{hostCP + "/metrics-server.kubeconfig", "metrics-server", masters},
		{hostCP + "/external-metrics.kubeconfig", "external-metrics", masters},
		{hostLB + "/alb.kubeconfig", "lameduck-alb", masters},
	}
	for n := 1; n <= nodes; n++ {
		users = append(users,
			user{nodeName(n) + "/kubelet.kubeconfig", "system:node:" + nodeName(n), "system:nodes"},
			user{nodeName(n) + "/kube-proxy.kubeconfig", "system:kube-proxy", masters})
	}
	for _, u := range users {
		p, err := ca.issue(u.name, u.group)
		if err != nil {
			return err
		}
		if err := writeKubeconfig(filepath.Join(l.dir, u.file), "lameduck", inside, ca.pem, p); err != nil {
			return err
		}
	}
	for n := 1; n <= nodes; n++ {
		p, err := ca.issue("system:node:"+nodeName(n), "", nodeName(n), nodeAddress(n).String())
		if err != nil {
			return err
		}
		if err := p.write(filepath.Join(l.host(nodeName(n)), "kubelet")); err != nil {
			return err
		}
	}
	return nil
}

func writeKubeconfig(path, name, server string, ca []byte, p pair) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	cfg.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: p.cert, ClientKeyData: p.key}
	cfg.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	cfg.CurrentContext = name
	b, err := clientcmd.Write(*cfg)
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o600)
}
