package embedded

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"lameduck/clusters"
	"lameduck/clusters/embedded/machine"
	"lameduck/clusters/embedded/network"
)

// proxyLimit bounds the restart of a kube-proxy, which takes a second or two.
const proxyLimit = time.Minute

var proxyModes = []string{"iptables", "nftables"}

// SetKubeProxy implements clusters.KubeProxies. A node that is stopped is
// started with the settings.
func (c *Cluster) SetKubeProxy(ctx context.Context, s clusters.KubeProxySettings) error {
	s = orDefaults(s)
	i, err := c.layout.readInfo()
	switch {
	case err != nil:
	case !slices.Contains(proxyModes, s.Mode):
		err = fmt.Errorf("mode %q: want one of %v", s.Mode, proxyModes)
	case s.MinSyncPeriod < 0 || s.MinSyncPeriod > 30*time.Second:
		err = fmt.Errorf("minSyncPeriod %s: want at most 30s, the syncPeriod", s.MinSyncPeriod)
	}
	if err != nil {
		return fmt.Errorf("set kube-proxy: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, proxyLimit, fmt.Errorf("not done after %s", proxyLimit))
	defer cancel()
	var tasks []func(context.Context) error
	for n := 1; n <= i.Nodes; n++ {
		tasks = append(tasks, func(ctx context.Context) error {
			if err := c.setProxy(ctx, n, s); err != nil {
				return fmt.Errorf("set kube-proxy of %s: %w", nodeName(n), err)
			}
			return nil
		})
	}
	return parallel(ctx, tasks...)
}

func (c *Cluster) setProxy(ctx context.Context, n int, s clusters.KubeProxySettings) error {
	node := nodeName(n)
	release, err := c.exclusive(ctx, node)
	if err != nil {
		return err
	}
	defer release()
	dir := c.layout.host(node)
	path, config := filepath.Join(dir, kubeProxyFile), []byte(kubeProxyConfig(dir, n, s))
	// Not written in vain: kube-proxy watches its file, and exits when it changes.
	old, err := os.ReadFile(path)
	changed := err != nil || !bytes.Equal(old, config)
	if changed {
		if err := os.WriteFile(path, config, 0o600); err != nil {
			return err
		}
	}
	if exists(c.layout.stopped(node)) {
		return nil
	}
	if is, err := c.proxySettings(ctx, node); changed || err != nil || is != s {
		r := machine.Request{Do: machine.Restart, Component: kubeProxy}
		if err := machine.Ask(ctx, c.layout.netnsPath(node), r); err != nil {
			return err
		}
	}
	return poll(ctx, func(ctx context.Context) error {
		is, err := c.proxySettings(ctx, node)
		switch {
		case err != nil:
			return err
		case is != s:
			return fmt.Errorf("it runs with %v", is)
		}
		return errors.Join(c.rulesWritten(ctx, node), c.rulesOnlyOf(ctx, node, s.Mode))
	})
}

// KubeProxy implements clusters.KubeProxies. Stopped nodes are left out.
func (c *Cluster) KubeProxy(ctx context.Context) (clusters.KubeProxySettings, error) {
	var first clusters.KubeProxySettings
	i, err := c.layout.readInfo()
	if err != nil {
		return first, fmt.Errorf("read kube-proxy's settings: %w", err)
	}
	of := ""
	for n := 1; n <= i.Nodes; n++ {
		if exists(c.layout.stopped(nodeName(n))) {
			continue
		}
		s, err := c.proxySettings(ctx, nodeName(n))
		switch {
		case err != nil:
			return first, fmt.Errorf("read kube-proxy's settings on %s: %w", nodeName(n), err)
		case of == "":
			first, of = s, nodeName(n)
		case s != first:
			return first, fmt.Errorf("kube-proxies differ: %+v on %s, %+v on %s", first, of, s, nodeName(n))
		}
	}
	if of == "" {
		return first, errors.New("read kube-proxy's settings: every node is stopped")
	}
	return first, nil
}

// proxySettings reads what a node's kube-proxy runs with.
func (c *Cluster) proxySettings(ctx context.Context, node string) (clusters.KubeProxySettings, error) {
	mode, err := c.askProxy(ctx, node, "/proxyMode")
	if err != nil {
		return clusters.KubeProxySettings{}, err
	}
	config, err := c.askProxy(ctx, node, "/configz")
	if err != nil {
		return clusters.KubeProxySettings{}, err
	}
	return parseProxySettings(string(mode), config)
}

// parseProxySettings reads the answers of /proxyMode and /configz.
func parseProxySettings(mode string, config []byte) (clusters.KubeProxySettings, error) {
	s := clusters.KubeProxySettings{Mode: strings.TrimSpace(mode)}
	var z map[string]map[string]json.RawMessage // by API group, then by field
	if err := json.Unmarshal(config, &z); err != nil {
		return s, fmt.Errorf("read /configz: %w", err)
	}
	var section struct{ MinSyncPeriod string }
	if err := json.Unmarshal(z["kubeproxy.config.k8s.io"][s.Mode], &section); err != nil {
		return s, fmt.Errorf("read /configz, section %s: %w", s.Mode, err)
	}
	var err error
	if s.MinSyncPeriod, err = time.ParseDuration(section.MinSyncPeriod); err != nil {
		return s, fmt.Errorf("read /configz, %s.minSyncPeriod: %w", s.Mode, err)
	}
	return s, nil
}

// lastSync is kube-proxy's metric of when it has last written its rules.
var lastSync = regexp.MustCompile(`(?m)^kubeproxy_sync_proxy_rules_last_timestamp_seconds\{[^}]*\} [1-9]`)

// rulesWritten is nil once a node's kube-proxy has written its rules and is
// healthy. Its health alone is good also before.
func (c *Cluster) rulesWritten(ctx context.Context, node string) error {
	metrics, err := c.askProxy(ctx, node, "/metrics")
	if err != nil {
		return err
	}
	if !lastSync.Match(metrics) {
		return errors.New("kube-proxy has not written its rules yet")
	}
	_, err = c.get(ctx, node, proxyHealthPort, "/healthz")
	return err
}

// proxyRules are the beginnings of the names that kube-proxy's rules have in each
// mode: chains of iptables (KUBE-KUBELET-CANARY and others are the kubelet's),
// the table of nftables.
var proxyRules = map[string]*regexp.Regexp{
	"iptables": regexp.MustCompile(`KUBE-(SERVICES|NODEPORTS|SVC-|SEP-|EXT-|PROXY-FIREWALL|EXTERNAL-SERVICES)`),
	"nftables": regexp.MustCompile(`table ip kube-proxy`),
}

// rulesOnlyOf is nil if a node has rules of one mode and of no other.
func (c *Cluster) rulesOnlyOf(ctx context.Context, node, mode string) error {
	for other, command := range map[string][]string{"iptables": {"iptables-save"}, "nftables": {"nft", "list", "tables"}} {
		out, err := c.layout.output(exec.CommandContext(ctx, command[0], command[1:]...), node)
		if err != nil {
			return err
		}
		if has := proxyRules[other].MatchString(out); has != (other == mode) {
			return fmt.Errorf("mode is %s, and rules of %s: %t", mode, other, has)
		}
	}
	return nil
}

func (c *Cluster) askProxy(ctx context.Context, node, path string) ([]byte, error) {
	return c.get(ctx, node, proxyMetricsPort, path)
}

// get asks a process of a host from inside, whatever is broken in the network.
func (c *Cluster) get(ctx context.Context, host string, port uint16, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port).String()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, proto, _ string) (conn net.Conn, err error) {
		err = network.Inside(c.layout.netnsPath(host), func() (err error) {
			conn, err = (&net.Dialer{}).DialContext(ctx, proto, at)
			return err
		})
		return conn, err
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s", path, resp.Status)
	}
	return body, err
}
