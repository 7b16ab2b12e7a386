package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"lameduck/clusters"
	"lameduck/harness"
)

// controlPlaneLabel marks the nodes that are no workers (Kubernetes,
// Well-Known Labels).
const controlPlaneLabel = "node-role.kubernetes.io/control-plane"

// Config of a World. REST and TargetImage are needed.
type Config struct {
	REST *rest.Config
	// Provider is the cluster's kind, for the record.
	Provider string
	// TargetImage is the built-in application, which every node has already.
	TargetImage string
	// LoadBalancerLog, if set, gives access to the load balancer's logs.
	LoadBalancerLog clusters.LoadBalancerLog
	// Machines, Breaker and KubeProxies, if set, are what can be done to the
	// cluster; without them the scenarios, faults and settings that need them fail.
	// The last can also be asked for the settings of the kube-proxies.
	Machines    clusters.Machines
	Breaker     clusters.Breaker
	KubeProxies clusters.KubeProxies
	// ListenPort chooses the port of a trial's listener, which no two trials that
	// run at once may share. Default: 20000 and up, two for each trial.
	ListenPort func(harness.Trial) int
	// Parts, if set, are the running processes of the cluster (see harness.Parts).
	Parts func(ctx context.Context) (map[string]string, error)
	// Details are added to the Environment.
	Details map[string]string
}

// World implements harness.World on one cluster. Its methods may be called
// from several goroutines.
type World struct {
	cfg    Config
	client kubernetes.Interface
	http   podHTTP
	// createOther makes an object of any kind in a namespace.
	createOther func(ctx context.Context, namespace string, u *unstructured.Unstructured) error

	mu   sync.Mutex
	left []string // namespaces that Close waits for
}

// NewWorld makes a World; it does not talk to the cluster yet.
func NewWorld(cfg Config) (*World, error) {
	if cfg.REST == nil || cfg.TargetImage == "" {
		return nil, errors.New("kube: Config needs REST and TargetImage")
	}
	client, err := newClient(cfg.REST)
	if err != nil {
		return nil, err
	}
	if cfg.ListenPort == nil {
		cfg.ListenPort = listenPort
	}
	others, err := newOthers(cfg.REST, client.Discovery())
	if err != nil {
		return nil, err
	}
	return &World{cfg: cfg, client: client, http: proxyHTTP(client.CoreV1().RESTClient()), createOther: others.create}, nil
}

// listenPort is a port for each attempt of a trial: the first one's listener may
// still be going away.
func listenPort(t harness.Trial) int { return 20000 + 2*t.Number + max(t.Attempt, 1) - 1 }

// clientConfig is without a rate limit of its own: client-go's default of 5
// requests per second would stretch a deployment, and the API server has its own
// (API Priority and Fairness).
func clientConfig(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1
	cfg.WarningHandlerWithContext = rest.NoWarnings{}
	cfg.UserAgent = cmp.Or(cfg.UserAgent, "lameduck")
	return cfg
}

func newClient(cfg *rest.Config) (*kubernetes.Clientset, error) {
	client, err := kubernetes.NewForConfig(clientConfig(cfg))
	if err != nil {
		return nil, fmt.Errorf("make Kubernetes client: %w", err)
	}
	return client, nil
}

// podHTTP sends one request to a pod, through the API server, and returns the
// body of an answer of 2xx. Parameters are the query's.
type podHTTP func(ctx context.Context, method, namespace, pod, path string, query map[string]string) ([]byte, error)

// proxyHTTP uses the pod's proxy subresource, so that pods are reached from
// wherever the API server is.
func proxyHTTP(core rest.Interface) podHTTP {
	return func(ctx context.Context, method, namespace, pod, path string, query map[string]string) ([]byte, error) {
		request := core.Verb(method).Namespace(namespace).Resource("pods").
			Name(fmt.Sprintf("%s:%d", pod, appPort)).SubResource("proxy").Suffix(path)
		for key, value := range query {
			request = request.Param(key, value)
		}
		body, err := request.DoRaw(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s %s of pod %s: %w", method, path, pod, err)
		}
		return body, nil
	}
}

// get is a GET.
func (f podHTTP) get(ctx context.Context, namespace, pod, path string) ([]byte, error) {
	return f(ctx, http.MethodGet, namespace, pod, path, nil)
}

// Parts implements harness.Parts.
func (w *World) Parts(ctx context.Context) (map[string]string, error) {
	if w.cfg.Parts == nil {
		return nil, nil
	}
	return w.cfg.Parts(ctx)
}

// Environment implements harness.World. Kernel and OS are the workers'; Cores
// are this machine's, which generates the load.
func (w *World) Environment(ctx context.Context) (harness.Environment, error) {
	server, err := discovery.ToServerVersionInterfaceWithContext(w.client.Discovery()).ServerVersionWithContext(ctx)
	if err != nil {
		return harness.Environment{}, fmt.Errorf("read version of the API server: %w", err)
	}
	nodes, err := w.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return harness.Environment{}, fmt.Errorf("list nodes: %w", err)
	}
	env := harness.Environment{
		Provider: w.cfg.Provider, Kubernetes: server.GitVersion, Cores: runtime.NumCPU(),
		Details: maps.Clone(w.cfg.Details),
	}
	workers := slices.DeleteFunc(nodes.Items, func(n corev1.Node) bool {
		_, controlPlane := n.Labels[controlPlaneLabel]
		return controlPlane
	})
	env.Nodes = len(workers)
	env.Kernel = distinct(workers, func(n corev1.Node) string { return n.Status.NodeInfo.KernelVersion })
	env.OS = distinct(workers, func(n corev1.Node) string { return n.Status.NodeInfo.OSImage })
	if env.Details == nil {
		env.Details = make(map[string]string)
	}
	env.Details["coresPerNode"] = distinct(workers, func(n corev1.Node) string { return n.Status.Capacity.Cpu().String() })
	env.Details["containerRuntime"] = distinct(workers, func(n corev1.Node) string { return n.Status.NodeInfo.ContainerRuntimeVersion })
	return env, nil
}

// distinct lists what the nodes have, each value once.
func distinct(nodes []corev1.Node, of func(corev1.Node) string) string {
	values := make(map[string]bool)
	for _, n := range nodes {
		values[of(n)] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(values)), ", ")
}
