package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"lameduck/clusters"
	"lameduck/clusters/embedded/machine"
)

// Cluster is a running embedded cluster.
type Cluster struct {
	layout layout
	config Config
}

var (
	_ clusters.Provider        = (*Provider)(nil)
	_ clusters.Cluster         = (*Cluster)(nil)
	_ clusters.ImageLoader     = (*Cluster)(nil)
	_ clusters.ClientHost      = (*Cluster)(nil)
	_ clusters.LoadBalancerLog = (*Cluster)(nil)
	_ clusters.Reservable      = (*Cluster)(nil)
	_ clusters.Machines        = (*Cluster)(nil)
	_ clusters.Breaker         = (*Cluster)(nil)
	_ clusters.Intact          = (*Cluster)(nil)
	_ clusters.Conntrack       = (*Cluster)(nil)
	_ clusters.KubeProxies     = (*Cluster)(nil)
)

func (p *Provider) cluster(l layout) *Cluster { return &Cluster{layout: l, config: p.config} }

// Name is the cluster's name.
func (c *Cluster) Name() string { return c.layout.name }

// Provider is "embedded".
func (c *Cluster) Provider() string { return "embedded" }

// Kubeconfig is the path of a kubeconfig file (mode 0600) for use on the real
// machine.
func (c *Cluster) Kubeconfig() string { return c.layout.kubeconfig() }

// REST is the configuration for client-go, as an administrator.
func (c *Cluster) REST() (*rest.Config, error) { return restConfig(c.Kubeconfig()) }

func restConfig(kubeconfig string) (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", kubeconfig, err)
	}
	// The API server is ours alone; client-go's limit of 5 requests per second
	// would only blur the times of events.
	cfg.QPS = -1
	return cfg, nil
}

// NodeNetNS is the path of a host's network namespace: n1, n2 ..., cp, lb, client.
func (c *Cluster) NodeNetNS(host string) string { return c.layout.netnsPath(host) }

// Reserve implements clusters.Reservable.
func (c *Cluster) Reserve() (release func(), err error) {
	f, err := os.OpenFile(c.layout.runLock(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("reserve cluster %s: %w", c.layout.name, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		holder, _ := io.ReadAll(f) // empty if it is just being written
		f.Close()
		return nil, fmt.Errorf("cluster %s is used by another run (process %s): wait for its end, or give this run a cluster of its own with --name", c.layout.name, holder)
	}
	if err := errors.Join(f.Truncate(0), writePID(f)); err != nil {
		f.Close()
		return nil, fmt.Errorf("reserve cluster %s: %w", c.layout.name, err)
	}
	return func() { f.Close() }, nil // closing gives the lock back
}

func writePID(f *os.File) error {
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0)
	return err
}

// LoadImage implements clusters.ImageLoader.
func (c *Cluster) LoadImage(ctx context.Context, write func(path string) error) error {
	i, err := c.layout.readInfo()
	if err != nil {
		return fmt.Errorf("load image: %w", err)
	}
	dir, err := os.MkdirTemp(c.layout.dir, "image-")
	if err != nil {
		return fmt.Errorf("load image: %w", err)
	}
	defer os.RemoveAll(dir) // or with the cluster
	path := filepath.Join(dir, "archive.tar")
	if err := write(path); err != nil {
		return fmt.Errorf("load image: %w", err)
	}
	var tasks []func(context.Context) error
	for n := 1; n <= i.Nodes; n++ {
		if exists(c.layout.stopped(nodeName(n))) {
			return fmt.Errorf("load image: node %s is stopped: start it first", nodeName(n))
		}
		tasks = append(tasks, func(ctx context.Context) error {
			return importImage(ctx, c.layout, c.config.Binaries, nodeName(n), path)
		})
	}
	if err := parallel(ctx, tasks...); err != nil {
		return fmt.Errorf("load image: %w", err)
	}
	return nil
}

func (b *builder) importImage(ctx context.Context, host, archive string) error {
	return importImage(ctx, b.layout, b.config.Binaries, host, archive)
}

// importImage gives an archive to the containerd of one node, once that runs.
func importImage(ctx context.Context, l layout, binaries, host, archive string) error {
	var socket string
	err := poll(ctx, func(ctx context.Context) error {
		s, err := machine.ReadStatus(l.host(host))
		if err != nil {
			return err
		}
		if !s.Supervisor.Alive() {
			return fmt.Errorf("node %s does not run", host)
		}
		// The node's own /run is reached through its first process.
		socket = filepath.Join("/proc", fmt.Sprint(s.Supervisor.PID), "root", containerdSocket)
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(binaries, "ctr"), "-a", socket, "-n", "k8s.io", "images", "import", archive)
	cmd.Env = append(os.Environ(), machine.MarkerEnv+"="+l.name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("import on node %s: %w: %s", host, err, bytes.TrimSpace(out))
	}
	return nil
}

// asClient is run by sh: it enters the cgroups of the host client, for their
// weight on the CPU, and then the network namespace $0, and becomes the command.
const asClient = `for dir in $LAMEDUCK_CGROUPS; do echo 0 > "$dir/cgroup.procs" || exit 126; done
exec nsenter --net="$0" -- "$@"`

// ClientCommand prepares a command in the network namespace of the host client.
// It does not outlive this process: when that dies, so does the command.
func (c *Cluster) ClientCommand(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "sh",
		append([]string{"-c", asClient, c.layout.netnsPath(hostClient), name}, args...)...)
	cmd.Env = append(os.Environ(), machine.MarkerEnv+"="+c.layout.name)
	if groups, err := mountedCgroups(); err == nil { // else there would be no cluster
		cmd.Env = append(cmd.Env, "LAMEDUCK_CGROUPS="+strings.Join(groups.Paths(c.layout.machineCgroup(hostClient)), " "))
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	return cmd
}

// logFiles are the endings of the load balancer's logs.
var logFiles = map[clusters.LogName]string{
	clusters.LogRequests: ".jsonl", clusters.LogTargets: ".targets.jsonl", clusters.LogSettings: ".settings.jsonl",
}

// LoadBalancerLog opens a log of one Ingress. An Ingress that got no request
// yet has an empty one.
func (c *Cluster) LoadBalancerLog(_ context.Context, namespace, ingress string, log clusters.LogName) (io.ReadCloser, error) {
	ending, known := logFiles[log]
	if !known {
		return nil, fmt.Errorf("load balancer log %q: not one that there is", log)
	}
	for _, name := range []string{namespace, ingress} {
		if name == "" || name != filepath.Base(name) || name == ".." || name == "." {
			return nil, fmt.Errorf("load balancer log of %s/%s: not the name of an Ingress", namespace, ingress)
		}
	}
	f, err := os.Open(filepath.Join(c.layout.albLogs(), namespace, ingress+ending))
	if errors.Is(err, os.ErrNotExist) {
		return io.NopCloser(bytes.NewReader(nil)), nil
	}
	if err != nil {
		return nil, fmt.Errorf("load balancer log of %s/%s: %w", namespace, ingress, err)
	}
	return f, nil
}
