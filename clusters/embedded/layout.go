package embedded

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"lameduck/clusters/embedded/network"
)

// DefaultStateDir holds the state of all clusters, each in a directory of its
// name. StateDirEnv overrides it.
const (
	DefaultStateDir = "/var/lib/lameduck"
	StateDirEnv     = "LAMEDUCK_STATE_DIR"
)

// MaxNodes is how many worker nodes a cluster may have.
const MaxNodes = 20

// The addresses are those of RFC 2544 (benchmarks), which no real network
// routes. Nodes and their pods have their number in the address.
var (
	subnet        = netip.MustParsePrefix("198.18.0.1/24") // the router's address
	controlPlane  = netip.MustParseAddr("198.18.0.2")
	client        = netip.MustParseAddr("198.18.0.6")
	serviceRange  = netip.MustParsePrefix("198.18.128.0/20")
	kubernetesSvc = serviceRange.Addr().Next() // Service default/kubernetes, always the first address
	podRange      = netip.MustParsePrefix("198.19.0.0/16")

	// loadBalancers are the nodes of every load balancer, two as an ALB has in the
	// least (AWS user guide: subnets in at least two Availability Zones).
	loadBalancers = []netip.Addr{netip.MustParseAddr("198.18.0.5"), netip.MustParseAddr("198.18.0.7")}
)

const (
	apiPort         = 6443
	metricsPort     = 4443
	externalPort    = 4444 // external metrics
	albHealthPort   = 8081
	albWebhookPort  = 9443
	proxyHealthPort = 10256 // kube-proxy's default; what external load balancers ask

	proxyMetricsPort = 10249 // kube-proxy's default
)

func nodeAddress(n int) netip.Addr { return netip.AddrFrom4([4]byte{198, 18, 0, byte(10 + n)}) }

func nodePods(n int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 19, byte(n), 0}), 24)
}

func nodeName(n int) string { return "n" + strconv.Itoa(n) }

// The hosts besides the nodes.
const (
	hostVPC    = "vpc"
	hostCP     = "cp"
	hostLB     = "lb"
	hostClient = "client"
)

const (
	// prefix starts the names of all kernel objects of ours.
	prefix = "lameduck-"
	// hostPattern matches the names of hosts, and nothing that could be a part
	// of a cluster's name followed by one: "a" must not own what "a-b" has.
	hostPattern = `(vpc|cp|lb|client|n[0-9]+)`
)

var (
	validName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$`)
	netnsName = regexp.MustCompile(`^` + prefix + `([a-z0-9][-a-z0-9]*)-` + hostPattern + `$`)
)

// layout knows the names and paths of one cluster.
type layout struct {
	name string
	dir  string
}

func (l layout) netns(host string) string { return prefix + l.name + "-" + host }
func (l layout) netnsPattern() *regexp.Regexp {
	return regexp.MustCompile(`^` + prefix + regexp.QuoteMeta(l.name) + `-` + hostPattern + `$`)
}
func (l layout) netnsPath(host string) string     { return network.Path(l.netns(host)) }
func (l layout) cgroup() string                   { return prefix + l.name }
func (l layout) hostCgroup(host string) string    { return l.cgroup() + "/" + host }
func (l layout) machineCgroup(host string) string { return l.hostCgroup(host) + "/machine" }
func (l layout) host(host string) string          { return filepath.Join(l.dir, host) }
func (l layout) pki(file string) string           { return filepath.Join(l.dir, "pki", file) }
func (l layout) kubeconfig() string               { return filepath.Join(l.dir, "kubeconfig") }
func (l layout) albLogs() string                  { return filepath.Join(l.host(hostLB), "logs") }
func (l layout) lockFile() string                 { return filepath.Join(l.dir, "lock") }
func (l layout) runLock() string                  { return filepath.Join(l.dir, "run.lock") }

// stopped is there while a node is stopped on purpose; nodeLock is held while a
// node is stopped, started or set.
func (l layout) stopped(host string) string  { return filepath.Join(l.host(host), "stopped") }
func (l layout) nodeLock(host string) string { return filepath.Join(l.host(host), "lock") }
func (l layout) infoFile() string            { return filepath.Join(l.dir, "cluster.json") }

// info is what is remembered of a cluster, in cluster.json.
type info struct {
	Name        string            `json:"name"`
	Nodes       int               `json:"nodes"`
	DeadAddress network.Dead      `json:"deadAddress"`
	Kubernetes  string            `json:"kubernetes"`
	Published   map[string]string `json:"published"`
	Ready       bool              `json:"ready"` // Up has come to its end
}

func (l layout) readInfo() (info, error) {
	var i info
	b, err := os.ReadFile(l.infoFile())
	if err != nil {
		return i, err
	}
	if err := json.Unmarshal(b, &i); err != nil {
		return i, fmt.Errorf("read %s: %w", l.infoFile(), err)
	}
	return i, nil
}

func (l layout) writeInfo(i info) error {
	b, err := json.MarshalIndent(i, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(l.infoFile()+".new", b, 0o600); err != nil {
		return err
	}
	return os.Rename(l.infoFile()+".new", l.infoFile())
}

// supervised are the hosts that have a supervisor; the one that takes longest
// to be ready comes first.
func supervised(nodes int) []string {
	hosts := []string{hostCP, hostClient}
	for n := 1; n <= nodes; n++ {
		hosts = append(hosts, nodeName(n))
	}
	return append(hosts, hostLB)
}

// topology is the cluster's network.
func (l layout) topology(nodes int, dead network.Dead) network.Topology {
	t := network.Topology{Router: l.netns(hostVPC), Subnet: subnet}
	add := func(host string, addr netip.Addr, sysctls map[string]string) {
		t.Hosts = append(t.Hosts, network.Host{
			Name: host, Namespace: l.netns(host), Address: addr, Sysctls: sysctls,
		})
	}
	add(hostCP, controlPlane, nil)
	add(hostLB, loadBalancers[0], nil)
	t.Hosts[len(t.Hosts)-1].More = loadBalancers[1:]
	// The clients stand for many machines, so one machine's supply of ports
	// must not be the limit when each request gets a connection of its own.
	add(hostClient, client, map[string]string{
		"ipv4/ip_local_port_range": "10000 65535",
		"ipv4/tcp_tw_reuse":        "1",
	})
	for n := 1; n <= nodes; n++ {
		add(nodeName(n), nodeAddress(n), map[string]string{"ipv4/ip_forward": "1"})
		h := &t.Hosts[len(t.Hosts)-1]
		h.Pods, h.Dead = nodePods(n), dead
	}
	return t
}

// exists says whether there is a directory or file at path.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
