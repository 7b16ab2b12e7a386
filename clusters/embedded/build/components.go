package main

import (
	"path"
	"time"
)

// A component is what one go build makes: the unit that is hashed, built, cached and rebuilt as a whole.
type component struct {
	name string
	dir  string // of its module or package, below the directory of the builder
	// flags and env go to go build as they are. Flags that all components share decide what can be shared in Go's own
	// build cache, so they are spelled out the same way for each.
	flags    []string
	env      []string
	packages []target
	needsC   bool          // a C compiler and libseccomp
	cold     time.Duration // with an empty Go build cache on two cores, for the forecast only
	warm     time.Duration // when only linking is left
}

// A target is one package and the executable it becomes.
type target struct {
	pkg  string // as go build wants it
	file string // its name in the cache
	link string // its path in the output directory
}

func command(pkg string) target {
	return target{pkg: pkg, file: path.Base(pkg), link: path.Base(pkg)}
}

func cniPlugin(pkg string) target {
	return target{pkg: pkg, file: path.Base(pkg), link: "cni/" + path.Base(pkg)}
}

// aliases are the names under which the multi-call binary kube is started; each is a link beside it.
var aliases = map[string][]string{
	"kube": {
		"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet",
		"etcd", "metrics-server", "kubectl",
	},
}

// lean leaves out what only a debugger reads, which saves a fifth of the compile time and half of the size, and paths
// of this machine, which would tell two equal builds apart.
var lean = []string{"-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false"}

func withFlags(flags ...string) []string {
	return append(append([]string{}, lean...), flags...)
}

// The versions that go into binaries. To move to another one, change it here and in the go.mod of the module, and run go
// mod tidy there; for Kubernetes, each replace line as well.
const (
	kubernetesVersion = "v1.37.2"
	containerdVersion = "v2.4.2"
	pluginsVersion    = "v1.10.0"
)

// components lists what an embedded cluster needs, cheapest first, so that a machine that cannot build says so early.
var components = []component{
	{
		name:     "pause",
		dir:      "pause",
		flags:    withFlags("-ldflags=-s -w"),
		env:      []string{"CGO_ENABLED=0"},
		packages: []target{{pkg: ".", file: "pause", link: "pause"}},
		cold:     10 * time.Second,
		warm:     time.Second,
	},
	{
		name:     "runc",
		dir:      "runc",
		flags:    withFlags("-tags=seccomp", "-ldflags=-s -w"),
		env:      []string{"CGO_ENABLED=1"}, // it enters namespaces in C, before the Go runtime starts threads
		packages: []target{command("github.com/opencontainers/runc")},
		needsC:   true,
		cold:     30 * time.Second,
		warm:     2 * time.Second,
	},
	{
		name: "containerd",
		dir:  "containerd",
		flags: withFlags("-tags=no_btrfs,no_devmapper,no_zfs,no_aufs",
			"-ldflags=-s -w"+
				" -X github.com/containerd/containerd/v2/version.Version="+containerdVersion+
				" -X github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion="+pluginsVersion),
		env: []string{"CGO_ENABLED=0"},
		packages: []target{
			command("github.com/containerd/containerd/v2/cmd/containerd"),
			command("github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"),
			command("github.com/containerd/containerd/v2/cmd/ctr"),
			cniPlugin("github.com/containernetworking/plugins/plugins/ipam/host-local"),
			cniPlugin("github.com/containernetworking/plugins/plugins/main/bridge"),
			cniPlugin("github.com/containernetworking/plugins/plugins/main/loopback"),
			cniPlugin("github.com/containernetworking/plugins/plugins/main/ptp"),
			cniPlugin("github.com/containernetworking/plugins/plugins/meta/portmap"),
		},
		cold: 75 * time.Second,
		warm: 15 * time.Second,
	},
	{
		name:     "kubernetes",
		dir:      "kubernetes",
		flags:    withFlags("-ldflags=-s -w" + kubernetesVersionFlags()),
		env:      []string{"CGO_ENABLED=0"},
		packages: []target{{pkg: ".", file: "kube", link: "kube"}},
		cold:     8 * time.Minute,
		warm:     20 * time.Second,
	},
}

// kubernetesVersionFlags stamps the version into both packages that hold one: the first is what --version and the API
// tell, the second is in each client's User-Agent.
func kubernetesVersionFlags() string {
	var flags string
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, value := range []string{
			"gitVersion=" + kubernetesVersion, "gitMajor=1", "gitMinor=37", "gitTreeState=clean", "gitCommit=unknown",
		} {
			flags += " -X " + pkg + "." + value
		}
	}
	return flags
}
