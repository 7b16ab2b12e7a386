// Package clusters says where experiments run. A Provider makes or finds a
// cluster; a Cluster hands over a *rest.Config, so that everything above it is
// client-go and the same everywhere, plus a few optional powers that only some
// clusters have (the small interfaces below, found by type assertion).
package clusters

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"strings"

	"k8s.io/client-go/rest"
)

// OptionsError says what is wrong with a cluster's Options, before anything is
// made: one sentence each, with what would be right.
type OptionsError struct{ Problems []string }

func (e OptionsError) Error() string { return strings.Join(e.Problems, "; ") }

// ErrNotFound says that there is no cluster of that name.
var ErrNotFound = errors.New("not found")

// Provider makes and removes clusters of one kind.
type Provider interface {
	// Up creates the cluster. Progress is written to log, a line each. On error,
	// or when ctx ends, what was created so far is removed.
	Up(ctx context.Context, o Options, log io.Writer) (Cluster, error)
	// Open finds a running cluster by name; ErrNotFound if there is none.
	Open(ctx context.Context, name string) (Cluster, error)
	// Status describes a cluster and the health of its parts.
	Status(ctx context.Context, name string) (Status, error)
	// Clean removes everything of ours that belongs to the cluster, whatever
	// state it is in, and says what it removed; "" cleans every cluster of
	// this kind. A clean cluster is not an error.
	Clean(ctx context.Context, name string, log io.Writer) error
}

// Options of a new cluster.
type Options struct {
	Name  string
	Nodes int // workers
	// DeadAddress is what answers at the address of a pod that is gone: drop
	// (silence, as in a cloud VPC), unreachable (ICMP) or reset (TCP RST).
	DeadAddress string
}

// Cluster is a running cluster.
type Cluster interface {
	Name() string
	Provider() string
	REST() (*rest.Config, error)
	Kubeconfig() string // path of a kubeconfig file
}

// ImageLoader is a cluster that takes images without a registry.
type ImageLoader interface {
	// LoadImage puts an image on every node. write makes its docker-format
	// archive at the path that it is given, below the cluster's own files: it
	// goes when it is loaded, at the latest with the cluster.
	LoadImage(ctx context.Context, write func(path string) error) error
}

// Reservable is a cluster that can be kept from being used by two runs at once.
type Reservable interface {
	// Reserve keeps other runs out until release is called or this process ends.
	// The error names the process that has reserved it.
	Reserve() (release func(), err error)
}

// ClientHost is a cluster that has a place of its own for the load's clients.
type ClientHost interface {
	// ClientCommand prepares (does not start) a command that runs as a client
	// of the load balancer.
	ClientCommand(ctx context.Context, name string, args ...string) *exec.Cmd
}

// LoadBalancerLog is a cluster whose load balancer's logs can be read.
type LoadBalancerLog interface {
	// LoadBalancerLog opens a log of one Ingress: JSON lines, see package
	// clusters/alb/accesslog. It has all that happened so far.
	LoadBalancerLog(ctx context.Context, namespace, ingress string, log LogName) (io.ReadCloser, error)
}

// LogName is one of a load balancer's logs.
type LogName string

// The logs.
const (
	LogRequests LogName = "requests" // a line for each request
	LogTargets  LogName = "targets"  // a line for each change of a target's state
	// LogSettings has a line for each load balancer and target group whenever
	// its settings have changed, and at creation: {"time", "loadBalancer" or
	// "group" (namespace/service:port), "targetType" (of a group), "attributes":
	// {ELBv2 attribute name: value}}. A change of rules reaches the nodes one by
	// one: each has a line when it routes by the new ones,
	// {"time", "loadBalancer", "node" (its address), "applied": "rules", "rules":
	// [{"priority" (0: default action), "forward": [{"group", "weight"}]}]}.
	LogSettings LogName = "settings"
)

// Status of a cluster.
type Status struct {
	Name       string
	Kubernetes string
	Kubeconfig string
	// Published are the addresses on the host's loopback, by what they are
	// (api, load-balancer).
	Published map[string]string
	Parts     []Part
}

// Part is one process of a cluster.
type Part struct {
	Host, Name string
	PID        int
	Running    bool
	Log        string // path
}
