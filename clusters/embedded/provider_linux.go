package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"lameduck/clusters"
	"lameduck/clusters/embedded/cgroups"
	"lameduck/clusters/embedded/machine"
	"lameduck/clusters/embedded/sweep"
)

// RunHost is the supervisor of one simulated machine: the hidden command
// "embedded-host". It returns when ctx ends.
func RunHost(ctx context.Context, specPath string) error { return machine.Run(ctx, specPath) }

// cleanLimit bounds the removal of a half-made cluster.
const cleanLimit = time.Minute

// lockLimit is how long Clean waits for an Up of the same cluster, which may
// be at removing it itself.
const lockLimit = 15 * time.Second

func (p *Provider) layout(name string) layout {
	return layout{name: name, dir: filepath.Join(p.config.StateDir, name)}
}

// scope is all of a cluster, for the sweeper.
func (l layout) scope() sweep.Cluster {
	return sweep.Cluster{
		Name: l.name, Marker: machine.MarkerEnv, Namespaces: l.netnsPattern(),
		Cgroup: l.cgroup(), Dir: l.dir, LockFile: l.lockFile(),
	}
}

func mountedCgroups() (cgroups.Mounts, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return cgroups.Mounts{}, err
	}
	return cgroups.Parse(string(b))
}

// Up creates a cluster and waits until it is ready for work: the API server
// answers, all nodes are Ready, the metrics API is available and the load
// balancer runs. On error, or when ctx ends, everything is removed again.
func (p *Provider) Up(ctx context.Context, o clusters.Options, log io.Writer) (clusters.Cluster, error) {
	b, err := p.prepare(o, log)
	if err != nil {
		return nil, err
	}
	lock, err := b.claim()
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if err := b.run(ctx); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("interrupted: %w", context.Cause(ctx))
		}
		b.progress("removing what was made so far")
		cleanCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanLimit)
		defer cancel()
		_, cleanErr := sweep.Run(cleanCtx, b.scope(), b.groups)
		os.Remove(b.config.StateDir) // succeeds when it was the last cluster
		return nil, errors.Join(fmt.Errorf("create cluster %s: %w", o.Name, err), cleanErr)
	}
	return p.cluster(b.layout), nil
}

// Open finds a running cluster by name. The error is clusters.ErrNotFound if
// there is none, or only the remains of one.
func (p *Provider) Open(_ context.Context, name string) (clusters.Cluster, error) {
	l := p.layout(name)
	i, err := l.find()
	if err != nil {
		return nil, err
	}
	if !i.Ready || !l.alive(i.Nodes) {
		return nil, l.onlyRemains()
	}
	return p.cluster(l), nil
}

// find reads what is known of a cluster. The error tells what to do if there
// is none.
func (l layout) find() (info, error) {
	i, err := l.readInfo()
	switch {
	case !errors.Is(err, fs.ErrNotExist):
		return i, err
	case exists(l.dir) || len(sweep.System("/").Namespaces(l.netnsPattern())) > 0:
		return i, l.onlyRemains()
	}
	return i, fmt.Errorf("cluster %s: %w; make it with: lameduck cluster up --name %[1]s", l.name, clusters.ErrNotFound)
}

func (l layout) onlyRemains() error {
	return fmt.Errorf("cluster %s: %w, only the remains of one; remove them with: lameduck cluster clean --name %[1]s",
		l.name, clusters.ErrNotFound)
}

// alive says whether all supervisors run but those of nodes that were stopped on
// purpose.
func (l layout) alive(nodes int) bool {
	for _, host := range supervised(nodes) {
		s, err := machine.ReadStatus(l.host(host))
		if err != nil || !s.Supervisor.Alive() && !exists(l.stopped(host)) {
			return false
		}
	}
	return true
}

// Status describes a cluster and all its processes, also one that is partly
// dead.
func (p *Provider) Status(_ context.Context, name string) (clusters.Status, error) {
	l := p.layout(name)
	i, err := l.find()
	if err != nil {
		return clusters.Status{}, err
	}
	s := clusters.Status{Name: name, Kubernetes: i.Kubernetes, Kubeconfig: l.kubeconfig(), Published: i.Published}
	for _, host := range supervised(i.Nodes) {
		m, err := machine.ReadStatus(l.host(host))
		if err != nil {
			return s, err
		}
		alive := m.Supervisor.Alive()
		for _, proc := range append([]machine.Process{m.Supervisor}, m.Components...) {
			if proc.Name == "" {
				proc.Name, proc.Log = "supervisor", machine.LogFile(l.host(host), "supervisor")
			}
			s.Parts = append(s.Parts, clusters.Part{
				Host: host, Name: proc.Name, PID: proc.PID, Running: alive && proc.Alive(), Log: proc.Log,
			})
		}
	}
	return s, nil
}

// Clean removes everything that belongs to the named cluster, or to all
// clusters if name is "".
func (p *Provider) Clean(ctx context.Context, name string, log io.Writer) error {
	if os.Geteuid() != 0 {
		return errNotRoot
	}
	groups, err := mountedCgroups()
	if err != nil {
		groups = cgroups.Mounts{} // then there are none to remove either
	}
	names := []string{name}
	if name == "" {
		names = p.discover(groups)
	} else if !validName.MatchString(name) {
		return nameError(name)
	}
	var errs []error
	none := true
	for _, name := range names {
		removed, err := p.cleanOne(ctx, p.layout(name), groups)
		if !removed.Nothing() {
			none = false
			fmt.Fprintf(log, "cluster %s: removed %s\n", name, removed)
		}
		errs = append(errs, err)
	}
	os.Remove(p.config.StateDir) // succeeds when it was the last cluster
	err = errors.Join(errs...)
	if err == nil && none {
		fmt.Fprintln(log, "nothing to remove")
	}
	return err
}

func (p *Provider) cleanOne(ctx context.Context, l layout, groups cgroups.Mounts) (sweep.Removed, error) {
	lock, err := os.Open(l.lockFile())
	switch {
	case errors.Is(err, fs.ErrNotExist): // an Up that was killed at once, or no cluster
	case err != nil:
		return sweep.Removed{}, err
	default:
		defer lock.Close()
		if err := lockWithin(ctx, lock, lockLimit); err != nil {
			return sweep.Removed{}, fmt.Errorf("cluster %s is just being created by %s; stop that first: %w", l.name, lockHolder(l), err)
		}
	}
	return sweep.Run(ctx, l.scope(), groups)
}

// discover finds the names of all clusters of which anything exists.
func (p *Provider) discover(groups cgroups.Mounts) []string {
	const here = sweep.System("/")
	names := here.Marked(machine.MarkerEnv)
	for _, ns := range here.Namespaces(netnsName) {
		names = append(names, netnsName.FindStringSubmatch(ns)[1])
	}
	for _, group := range groups.Names(prefix) {
		names = append(names, group[len(prefix):])
	}
	dirs, _ := filepath.Glob(filepath.Join(p.config.StateDir, "*", filepath.Base(layout{}.lockFile())))
	for _, dir := range dirs {
		names = append(names, filepath.Base(filepath.Dir(dir)))
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !validName.MatchString(name) })
	slices.Sort(names)
	return slices.Compact(names)
}

// lockWithin takes the lock that Up holds while it creates a cluster.
func lockWithin(ctx context.Context, f *os.File, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return poll(ctx, func(context.Context) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
}

// lockHolder names the process that creates the cluster, as it noted itself.
func lockHolder(l layout) string {
	b, err := os.ReadFile(l.lockFile())
	if err != nil || len(b) == 0 {
		return "another process"
	}
	return "process " + string(b)
}
