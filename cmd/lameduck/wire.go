package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"lameduck/clusters"
	"lameduck/clusters/embedded"
	"lameduck/clusters/images"
	"lameduck/clusters/kube"
	"lameduck/experiments"
	"lameduck/harness"
	"lameduck/harness/load"
)

// defaultCluster is the name of a cluster that nobody named.
const defaultCluster = "lameduck"

// defaultNodes is the number of worker nodes where nothing says another.
const defaultNodes = 2

// newProvider is the only place that knows which cluster providers exist.
func newProvider(name string) (clusters.Provider, error) {
	self, dir, err := executable()
	if err != nil {
		return nil, err
	}
	switch name {
	case "embedded":
		return embedded.NewProvider(embedded.Config{Self: self, Binaries: filepath.Join(dir, "embedded")}), nil
	default:
		return nil, usageError(fmt.Errorf("--cluster %q: want embedded", name))
	}
}

// executable is the running binary and its directory, where the target
// application and the embedded cluster's binaries are too.
func executable() (path, dir string, err error) {
	path, err = os.Executable()
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return "", "", fmt.Errorf("find own executable: %w", err)
	}
	return path, filepath.Dir(path), nil
}

// targetBinary is the built-in application's static binary.
func targetBinary() (string, error) {
	_, dir, err := executable()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "target")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("the target application is not built: %w; run: make build", err)
	}
	return path, nil
}

// loadTarget puts the built-in application's image on the cluster and returns
// its name.
func loadTarget(ctx context.Context, c clusters.Cluster) (string, error) {
	binary, err := targetBinary()
	if err != nil {
		return "", err
	}
	loader, ok := c.(clusters.ImageLoader)
	if !ok {
		return "", fmt.Errorf("cluster %s takes no images without a registry", c.Name())
	}
	ref, err := images.Ref("target", binary)
	if err != nil {
		return "", err
	}
	return ref, loader.LoadImage(ctx, func(archive string) error {
		return images.Write(archive, ref, map[string]string{"/target": binary}, []string{"/target"})
	})
}

// loadExperiment finds a built-in experiment, and what it asks of the cluster.
func loadExperiment(name string) (harness.Experiment, clusters.Options, error) {
	e, c, err := experiments.Load(name)
	return e, clusters.Options{Nodes: c.Nodes, DeadAddress: c.DeadAddress}, err
}

// newWorld makes the harness's view of a cluster. details are added to what the
// record says of the environment.
func newWorld(p clusters.Provider, c clusters.Cluster, targetImage string, details map[string]string) (*kube.World, error) {
	rest, err := c.REST()
	if err != nil {
		return nil, err
	}
	cfg := kube.Config{REST: rest, Provider: c.Provider(), TargetImage: targetImage, Details: details, Parts: func(ctx context.Context) (map[string]string, error) {
		status, err := p.Status(ctx, c.Name())
		if err != nil || status.Parts == nil {
			return nil, err
		}
		running := make(map[string]string)
		for _, part := range status.Parts {
			if part.Running {
				running[part.Host+"/"+part.Name] = strconv.Itoa(part.PID)
			}
		}
		return running, nil
	}}
	cfg.LoadBalancerLog, _ = c.(clusters.LoadBalancerLog)
	cfg.Machines, _ = c.(clusters.Machines)
	cfg.Breaker, _ = c.(clusters.Breaker)
	cfg.KubeProxies, _ = c.(clusters.KubeProxies)
	return kube.NewWorld(cfg)
}

// newAttacker makes the load's source: a worker process where the cluster has
// a place for clients, else this process.
func newAttacker(c clusters.Cluster) (harness.Attacker, error) {
	host, ok := c.(clusters.ClientHost)
	if !ok {
		return load.Local{}, nil
	}
	self, _, err := executable()
	if err != nil {
		return nil, err
	}
	return load.Process{Command: func(ctx context.Context) *exec.Cmd {
		return host.ClientCommand(ctx, self, "worker")
	}}, nil
}
