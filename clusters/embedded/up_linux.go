package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/kubernetes"

	"lameduck/clusters"
	"lameduck/clusters/embedded/cgroups"
	"lameduck/clusters/embedded/machine"
	"lameduck/clusters/embedded/network"
	"lameduck/clusters/embedded/sweep"
	"lameduck/clusters/images"
)

// upLimit bounds the creation of a cluster, which takes seconds.
const upLimit = 3 * time.Minute

// builder creates one cluster.
type builder struct {
	layout
	config    Config
	nodes     int
	dead      network.Dead
	groups    cgroups.Mounts
	log       io.Writer
	started   time.Time
	listeners []*os.File
	published map[string]string
}

func (b *builder) progress(format string, args ...any) {
	fmt.Fprintf(b.log, "%5.1fs  %s\n", time.Since(b.started).Seconds(), fmt.Sprintf(format, args...))
}

// prepare checks everything that can be checked before anything is made.
func (p *Provider) prepare(o clusters.Options, log io.Writer) (*builder, error) {
	b := &builder{layout: p.layout(o.Name), config: p.config, nodes: o.Nodes, log: log, started: time.Now()}
	if err := p.preflight(o); err != nil {
		return nil, err
	}
	var err error
	if b.dead, err = network.ParseDead(o.DeadAddress); err != nil {
		return nil, err
	}
	if b.groups, err = mountedCgroups(); err != nil {
		return nil, err
	}
	return b, nil
}

// claim makes the cluster's directory, which only one can, and locks it for as
// long as the cluster is being created.
func (b *builder) claim() (*os.File, error) {
	if err := b.taken(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(b.config.StateDir, 0o755); err != nil {
		return nil, err
	}
	if err := os.Mkdir(b.dir, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil, b.taken()
		}
		return nil, err
	}
	lock, err := os.OpenFile(b.lockFile(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		return nil, fmt.Errorf("lock %s: %w", b.lockFile(), err)
	}
	if _, err := fmt.Fprint(lock, os.Getpid()); err != nil {
		lock.Close()
		return nil, err
	}
	return lock, nil
}

// taken says why the name cannot be used: something of that name exists.
func (b *builder) taken() error {
	left := sweep.Left(b.scope(), b.groups)
	if len(left) == 0 {
		return nil
	}
	if i, err := b.readInfo(); err == nil && i.Ready && b.alive(i.Nodes) {
		return fmt.Errorf("cluster %s is running already; use another --name, or remove it: lameduck cluster down --name %[1]s", b.name)
	}
	if lock, err := os.Open(b.lockFile()); err == nil {
		defer lock.Close()
		if errors.Is(unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK) {
			return fmt.Errorf("cluster %s is just being created or removed by %s; use another --name", b.name, lockHolder(b.layout))
		}
	}
	more := ""
	if len(left) > 3 {
		left, more = left[:3], fmt.Sprintf(" and %d more", len(left)-3)
	}
	return fmt.Errorf("cluster %s is left over from an earlier run (%s%s); remove it: lameduck cluster clean --name %[1]s",
		b.name, strings.Join(left, ", "), more)
}

// run makes the cluster. What it made stays when it fails.
func (b *builder) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, upLimit, fmt.Errorf("not ready after %s", upLimit))
	defer cancel()
	if err := network.Build(ctx, b.topology(b.nodes, b.dead)); err != nil {
		return err
	}
	b.progress("network: %d namespaces, dead pod addresses: %s", len(supervised(b.nodes))+1, b.dead)
	if err := b.listen(); err != nil {
		return err
	}
	pause, archive, err := b.configure()
	if err != nil {
		return err
	}
	b.progress("certificates and settings in %s", b.dir)
	if err := b.startMachines(ctx); err != nil {
		return err
	}
	ctx, stopWatching := b.watch(ctx)
	defer stopWatching()
	c, err := b.client()
	if err != nil {
		return err
	}
	tasks := []func(context.Context) error{
		func(ctx context.Context) error { return b.awaitAPI(ctx, c) },
	}
	for n := 1; n <= b.nodes; n++ {
		tasks = append(tasks, func(ctx context.Context) error {
			if err := b.importImage(ctx, nodeName(n), archive); err != nil {
				return fmt.Errorf("load image %s: %w", pause, err)
			}
			return nil
		})
	}
	if err := parallel(ctx, tasks...); err != nil {
		return err
	}
	return b.finish(ctx, c)
}

// listen opens the published ports. The system chooses them, so that clusters
// do not collide with each other or anything else.
func (b *builder) listen() error {
	b.published = make(map[string]string)
	for _, f := range forwards {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return fmt.Errorf("publish %s: %w", f.Name, err)
		}
		file, err := l.(*net.TCPListener).File()
		if err != nil {
			return err
		}
		b.published[f.Name] = publishedScheme[f.Name] + l.Addr().String()
		l.Close() // the file keeps it open
		b.listeners = append(b.listeners, file)
	}
	return nil
}

// Published names, as in clusters.Status.
const (
	publishedAPI = "api"
	publishedLB  = "load-balancer"
)

var publishedScheme = map[string]string{publishedAPI: "https://", publishedLB: "http://"}

// forwards are what the host client passes on from the real loopback. An
// Ingress that names no port listens on 80.
var forwards = []machine.Forward{
	{Name: publishedAPI, To: net.JoinHostPort(controlPlane.String(), fmt.Sprint(apiPort))},
	{Name: publishedLB, To: net.JoinHostPort(loadBalancers[0].String(), "80")},
}

// configure writes all files that the processes need.
func (b *builder) configure() (pauseImage, archive string, err error) {
	if err := b.writeInfo(b.info("", false)); err != nil {
		return "", "", err
	}
	if err := b.writeCredentials(b.nodes, b.published[publishedAPI]); err != nil {
		return "", "", fmt.Errorf("make certificates: %w", err)
	}
	pause := filepath.Join(b.config.Binaries, "pause")
	pauseImage, err = images.Ref("pause", pause)
	if err != nil {
		return "", "", err
	}
	archive = filepath.Join(b.dir, "pause.tar")
	if err := images.Write(archive, pauseImage, map[string]string{"/pause": pause}, []string{"/pause"}); err != nil {
		return "", "", err
	}
	for n := 1; n <= b.nodes; n++ {
		if err := b.writeNodeConfig(n, b.config.Binaries, pauseImage); err != nil {
			return "", "", fmt.Errorf("configure node %s: %w", nodeName(n), err)
		}
	}
	return pauseImage, archive, nil
}

func (b *builder) info(version string, ready bool) info {
	return info{
		Name: b.name, Nodes: b.nodes, DeadAddress: b.dead, Kubernetes: version, Published: b.published, Ready: ready,
	}
}

func (b *builder) client() (kubernetes.Interface, error) {
	cfg, err := restConfig(b.kubeconfig())
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(cfg)
}

// awaitAPI waits for the API server, creates the system's objects and waits for
// what depends on them.
func (b *builder) awaitAPI(ctx context.Context, c kubernetes.Interface) error {
	answers := func(path string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := c.Discovery().RESTClient().Get().RequestURI(path).DoRaw(ctx)
			return err
		}
	}
	if err := poll(ctx, answers(serves)); err != nil {
		return fmt.Errorf("wait for the API server: %w", err)
	}
	b.progress("API server ready at %s", b.published[publishedAPI])
	return parallel(ctx,
		func(ctx context.Context) error {
			if err := b.createObjects(ctx, c); err != nil {
				return err
			}
			return poll(ctx, func(ctx context.Context) error { return metricsAvailable(ctx, c) })
		},
		func(ctx context.Context) error {
			if err := poll(ctx, func(ctx context.Context) error { return nodesReady(ctx, c, b.nodes) }); err != nil {
				return fmt.Errorf("wait for the nodes: %w", err)
			}
			b.progress("%d nodes ready", b.nodes)
			return nil
		},
		func(ctx context.Context) error { return poll(ctx, answers(ready)) })
}

func (b *builder) finish(ctx context.Context, c kubernetes.Interface) error {
	if err := poll(ctx, func(context.Context) error { return b.partsReady() }); err != nil {
		return err
	}
	if err := b.groups.SetWeight(b.hostCgroup(hostCP), shares(hostCP)); err != nil {
		return err
	}
	version, err := c.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("ask for the version: %w", err)
	}
	if err := b.writeInfo(b.info(version.GitVersion, true)); err != nil {
		return err
	}
	b.progress("cluster %s ready: Kubernetes %s, kubeconfig %s", b.name, version.GitVersion, b.kubeconfig())
	return nil
}

// parallel runs all functions at once; the first error stops the others.
func parallel(ctx context.Context, fs ...func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for _, f := range fs {
		wg.Go(func() {
			if err := f(ctx); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
