package embedded

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"lameduck/clusters/embedded/cgroups"
	"lameduck/clusters/embedded/machine"
)

// Weights on the CPU, where 1024 is an ordinary group. They matter only when the
// real machine is busy, and then in the order in which lateness does harm.
const (
	// clusterShares is for the cluster against the rest of the real machine. As
	// an ordinary group all its processes together would count as one outside.
	clusterShares = 16 * 1024
	// startShares is for the control plane while the cluster starts: on few
	// cores all hosts start at once, and all wait for the API server.
	startShares = 8 * 1024
)

// shares are the weights of hosts in a running cluster. Clients come first
// (requests that are sent late spoil a measurement), then the load balancer.
func shares(host string) int {
	switch host {
	case hostClient:
		return 4 * 1024
	case hostLB:
		return 2 * 1024
	}
	return 1024
}

// startMachines starts all supervisors. They start their processes in the
// right order themselves.
func (b *builder) startMachines(ctx context.Context) error {
	alb, err := b.albComponent(b.config.Self)
	if err != nil {
		return err
	}
	if err := b.groups.Make(b.cgroup()); err != nil {
		return err
	}
	if err := b.groups.SetWeight(b.cgroup(), clusterShares); err != nil {
		return err
	}
	for _, host := range supervised(b.nodes) {
		if err := ctx.Err(); err != nil {
			return err
		}
		weight := shares(host)
		if host == hostCP {
			weight = startShares
		}
		if err := makeGroup(b.groups, b.layout, host, weight); err != nil {
			return err
		}
		var components []machine.Component
		switch host {
		case hostClient:
		case hostCP:
			components = append(b.controlPlaneComponents(b.config.Binaries), b.externalMetricsComponent(b.config.Self))
		case hostLB:
			components = []machine.Component{alb}
		default:
			var n int
			fmt.Sscanf(host, "n%d", &n)
			components = b.nodeComponents(n, b.config.Binaries)
		}
		if err := b.startMachine(host, components); err != nil {
			return err
		}
	}
	return nil
}

// makeGroup makes the cgroup of a host.
func makeGroup(groups cgroups.Mounts, l layout, host string, weight int) error {
	if err := groups.Make(l.machineCgroup(host)); err != nil {
		return err
	}
	return groups.SetWeight(l.hostCgroup(host), weight)
}

func (b *builder) startMachine(host string, components []machine.Component) error {
	dir := b.host(host)
	tmp := filepath.Join(dir, "tmp")
	if err := os.MkdirAll(tmp, 0o700); err != nil {
		return err
	}
	visible := []string{b.dir, b.config.Binaries, filepath.Dir(b.config.Self)}
	// The binaries may be links into a cache.
	if real, err := filepath.EvalSymlinks(filepath.Join(b.config.Binaries, "kubelet")); err == nil {
		visible = append(visible, filepath.Dir(real))
	}
	spec := machine.Spec{
		Cluster: b.name, Host: host, Dir: dir,
		Private: map[string]string{
			"/run":     "",
			"/var/lib": filepath.Join(dir, "var-lib"),
			"/var/log": filepath.Join(dir, "var-log"),
		},
		Visible: visible,
		Files:   kernelSettings,
		Cgroups: b.groups.Paths(b.machineCgroup(host)),
		Env: []string{
			"PATH=" + b.config.Binaries + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
			"HOME=" + dir, "TMPDIR=" + tmp,
			// A tenth less CPU at start for some memory, of which there is enough.
			"GOGC=250",
		},
		Components: components,
	}
	var listeners []*os.File
	if host == hostClient {
		spec.Forwards, listeners = forwards, b.listeners
		defer func() {
			for _, f := range listeners {
				f.Close()
			}
		}()
	}
	return machine.Start(b.config.Self, b.netnsPath(host), spec, listeners)
}

// partsReady says whether all processes run and are ready.
func (b *builder) partsReady() error {
	for _, host := range supervised(b.nodes) {
		s, err := machine.ReadStatus(b.host(host))
		if err != nil {
			return err
		}
		if s.Supervisor.PID == 0 {
			return fmt.Errorf("machine %s is not up yet", host)
		}
		for _, p := range s.Components {
			if !p.Ready {
				return fmt.Errorf("%s on %s is not ready yet", p.Name, host)
			}
		}
	}
	return nil
}
