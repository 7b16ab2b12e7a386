package embedded

import (
	"cmp"
	"errors"
	"fmt"
	"os"

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
// are clusters.ImageLoader, clusters.ClientHost and clusters.LoadBalancerLog.
type Provider struct{ config Config }

// NewProvider makes a provider; it touches nothing yet.
func NewProvider(c Config) *Provider {
	c.StateDir = cmp.Or(c.StateDir, os.Getenv(StateDirEnv), DefaultStateDir)
	return &Provider{c}
}

var errNotRoot = errors.New("an embedded cluster needs root: use sudo, or a kind cluster, which needs Docker only")

func nameError(name string) error {
	return clusters.OptionsError{Problems: []string{
		fmt.Sprintf("cluster name %q: want at most 40 lower-case letters, digits and dashes, no dash at the ends", name),
	}}
}
