package embedded

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"lameduck/clusters"
	"lameduck/clusters/embedded/machine"
	"lameduck/clusters/embedded/network"
)

// minDisk is for etcd, images, containers and logs.
const minDisk = 2 << 30

// inotifyPerNode is how many inotify instances a node's processes hold (9 were
// counted: kubelet 6, containerd 2, kube-proxy 1), inotifyBase those of the
// control plane (10 were counted), each with some reserve. Ten nodes fit into the
// kernel's default of 128.
const (
	inotifyPerNode = 10
	inotifyBase    = 14
)

// tools are programs of the machine that are run, and their Debian packages.
var tools = []struct{ name, pkg string }{
	{"iptables", "iptables"},         // kube-proxy, kubelet
	{"iptables-restore", "iptables"}, // kube-proxy
	{"nft", "nftables"},              // kube-proxy in nftables mode, what is broken on purpose
	{"mount", "mount"},               // kubelet
	{"nsenter", "util-linux"},        // commands of the clients
}

// programs are what has to be in the directory of binaries.
var programs = []string{
	"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "metrics-server", "kubelet", "kube-proxy",
	"containerd", "containerd-shim-runc-v2", "ctr", "runc", "pause",
	"cni/ptp", "cni/host-local", "cni/loopback", "cni/portmap",
}

// facts are what preflight wants to know of the machine.
type facts struct {
	root     bool
	caps     uint64 // effective capabilities
	tools    map[string]bool
	binaries string // directory
	programs map[string]bool
	network  error
	cgroups  error
	overlay  error
	stateDir string
	diskFree uint64
	diskErr  error
	inotify  int // fs.inotify.max_user_instances, 0 if unknown
	watching int // how many of these are in use
}

// checkOptions says what is wrong with the options alone.
func checkOptions(o clusters.Options) []string {
	var problems []string
	if !validName.MatchString(o.Name) {
		problems = append(problems, nameError(o.Name).Error())
	}
	if o.Nodes < 1 || o.Nodes > MaxNodes {
		problems = append(problems, fmt.Sprintf("%d nodes: want 1..%d", o.Nodes, MaxNodes))
	}
	if _, err := network.ParseDead(o.DeadAddress); err != nil {
		problems = append(problems, err.Error())
	}
	return problems
}

// problems judges the facts. Each problem says what to do.
func (f facts) problems(nodes int) []string {
	if !f.root {
		return []string{errNotRoot.Error()} // without it nothing else can be found out
	}
	var all []string
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	for _, c := range []struct {
		bit  int
		name string
	}{{unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN"}, {unix.CAP_NET_ADMIN, "CAP_NET_ADMIN"}} {
		if f.caps&(1<<c.bit) == 0 {
			add("the capability %s is missing: run outside of this container, or make it privileged", c.name)
		}
	}
	for _, t := range tools {
		if !f.tools[t.name] {
			add("%s is not installed: apt-get install %s", t.name, t.pkg)
		}
	}
	var missing []string
	for _, p := range programs {
		if !f.programs[p] {
			missing = append(missing, p)
		}
	}
	if len(missing) > 0 {
		add("%s lacks %s: run make build", f.binaries, strings.Join(missing, ", "))
	}
	// A missing tool explains a failed try-out well enough.
	if f.network != nil && f.tools["iptables-restore"] {
		add("the kernel cannot do the network: %v", f.network)
	}
	if f.cgroups != nil {
		add("cgroups cannot be used: %v: mount them at /sys/fs/cgroup, writable, and run outside of a container", f.cgroups)
	}
	switch {
	case f.diskErr != nil:
		add("%s cannot be used: %v: choose another directory with %s", f.stateDir, f.diskErr, StateDirEnv)
	case f.diskFree < minDisk:
		add("%s has %d MB free, %d are needed: free some, or choose another directory with %s",
			f.stateDir, f.diskFree>>20, minDisk>>20, StateDirEnv)
	}
	if f.overlay != nil {
		add("the kernel cannot do overlay file systems (kernel option OVERLAY_FS): %v", f.overlay)
	}
	if want := inotifyBase + nodes*inotifyPerNode + f.watching; f.inotify > 0 && f.inotify < want {
		add("fs.inotify.max_user_instances is %d, %d nodes need %d with the %d that are in use: "+
			"sysctl -w fs.inotify.max_user_instances=%[3]d, or fewer nodes, or remove other clusters",
			f.inotify, nodes, want, f.watching)
	}
	return all
}

// gather finds the facts out. What it tries vanishes by itself, even if it is
// killed.
func gather(c Config, o clusters.Options) facts {
	f := facts{
		root: os.Geteuid() == 0, binaries: c.Binaries, stateDir: c.StateDir,
		tools: make(map[string]bool), programs: make(map[string]bool),
	}
	if !f.root {
		return f
	}
	f.caps = effectiveCaps()
	for _, t := range tools {
		_, err := exec.LookPath(t.name)
		f.tools[t.name] = err == nil
	}
	for _, p := range programs {
		st, err := os.Stat(filepath.Join(c.Binaries, p))
		f.programs[p] = err == nil && st.Mode()&0o111 != 0
	}
	f.network = network.Probe()
	f.cgroups = tryCgroups(o.Name)
	f.overlay = machine.ProbeOverlay()
	f.diskFree, f.diskErr = disk(c.StateDir)
	if b, err := os.ReadFile("/proc/sys/fs/inotify/max_user_instances"); err == nil {
		f.inotify, _ = strconv.Atoi(strings.TrimSpace(string(b)))
	}
	f.watching = inotifyInUse("/proc/[0-9]*")
	return f
}

// inotifyInUse counts the inotify instances of processes, given by a pattern of
// their directories in /proc.
func inotifyInUse(processes string) int {
	fds, _ := filepath.Glob(filepath.Join(processes, "fd", "*"))
	n := 0
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && to == "anon_inode:inotify" {
			n++
		}
	}
	return n
}

func effectiveCaps() uint64 {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, "CapEff:"); ok {
			caps, _ := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			return caps
		}
	}
	return 0
}

// tryCgroups makes a group as a node has it. It has the cluster's name, so that
// Clean finds it should this process be killed right here.
func tryCgroups(name string) error {
	groups, err := mountedCgroups()
	if err != nil {
		return err
	}
	top := layout{name: name}.cgroup()
	try := top + "/preflight"
	err = groups.Make(try)
	_, removeErr := groups.Remove(try, cleanLimit)
	for _, dir := range groups.Paths(top) {
		os.Remove(dir) // fails if a cluster of that name exists, as it should
	}
	return errors.Join(err, removeErr)
}

// disk looks at the file system that will hold the state: how much is free, and
// whether it can be written and hold the containers' overlays.
func disk(stateDir string) (free uint64, err error) {
	dir := stateDir
	for !exists(dir) && dir != "/" {
		dir = filepath.Dir(dir)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("%s: %w", dir, err)
	}
	if st.Flags&unix.ST_RDONLY != 0 {
		return 0, fmt.Errorf("%s is mounted read-only", dir)
	}
	// The kernel wants more of an upper layer than these have (overlayfs.rst:
	// extended attributes, d_type, no layer of another overlay).
	switch st.Type {
	case unix.OVERLAYFS_SUPER_MAGIC, unix.NFS_SUPER_MAGIC, unix.FUSE_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.MSDOS_SUPER_MAGIC:
		return 0, fmt.Errorf("its kind of file system cannot hold containers (overlay, network and FAT file systems)")
	}
	return st.Bavail * uint64(st.Bsize), nil
}

// preflight reports all that stands in the way, at once.
func (p *Provider) preflight(o clusters.Options) error {
	if wrong := checkOptions(o); len(wrong) > 0 { // a wrong name must not become part of a path
		return clusters.OptionsError{Problems: wrong}
	}
	problems := gather(p.config, o).problems(o.Nodes)
	switch len(problems) {
	case 0:
		return nil
	case 1:
		return errors.New(problems[0])
	}
	return fmt.Errorf("%d things stand in the way of an embedded cluster:\n  %s", len(problems), strings.Join(problems, "\n  "))
}
