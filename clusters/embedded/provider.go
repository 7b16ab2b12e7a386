package embedded

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"lameduck/clusters"
)

// Config says where things are.
type Config struct {
	// Self is lameduck's own executable.
	Self string
	// Binaries is the directory with kube-apiserver, kubelet, containerd, ...
	Binaries string
	// StateDir holds the clusters' state; "" is $LAMEDUCK_STATE_DIR, or
	// DefaultStateDir.
	StateDir string
}

// Provider makes embedded clusters. It is a clusters.Provider, and its clusters
// are clusters.ImageLoader, clusters.ClientHost, clusters.LoadBalancerLog,
// clusters.Machines, clusters.Breaker, clusters.Conntrack and clusters.KubeProxies.
type Provider struct{ config Config }

// NewProvider makes a provider; it touches nothing yet.
func NewProvider(c Config) *Provider {
	c.StateDir = cmp.Or(c.StateDir, os.Getenv(StateDirEnv), DefaultStateDir)
	// The processes of a cluster have directories of their own. Where there is no
	// working directory the path stays as it is, and Up says that it is not found.
	if abs, err := filepath.Abs(c.StateDir); err == nil {
		c.StateDir = abs
	}
	return &Provider{c}
}

var errNotRoot = errors.New("an embedded cluster needs root: use sudo")

func nameError(name string) error {
	return clusters.OptionsError{Problems: []string{
		fmt.Sprintf("cluster name %q: want at most 40 lower-case letters, digits and dashes, no dash at the ends", name),
	}}
}
