//go:build linux

// Package embeddedtest is what end-to-end tests of embedded clusters share.
package embeddedtest

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Leftovers lists what exists of a cluster. It shares no code with the sweeper
// and is less careful: it takes any mention of the cluster's name or directory
// for a trace, in any process's mounts, environment, arguments and cgroups.
func Leftovers(name, stateDir string) []string {
	var found []string
	add := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	own := fmt.Sprint(os.Getpid())
	traces := []string{"lameduck-" + name + "-", "lameduck-" + name + "/", "LAMEDUCK_EMBEDDED_MEMBER=" + name + "\x00", stateDir}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		// A zombie has ended and holds nothing; its parent (init, if lameduck
		// was killed) has not taken note yet.
		if stat, err := os.ReadFile(filepath.Join(dir, "stat")); err != nil || strings.Contains(string(stat), ") Z ") {
			continue
		}
		for _, file := range []string{"cmdline", "environ", "cgroup", "mountinfo"} {
			if filepath.Base(dir) == own && file != "mountinfo" {
				continue
			}
			b, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				continue
			}
			for _, trace := range traces {
				if strings.Contains(string(b), trace) {
					add("process %s: %q in its %s", filepath.Base(dir), trace, file)
				}
			}
		}
	}
	filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "lameduck-"+name {
			add("cgroup %s", path)
		}
		return nil
	})
	for _, pattern := range []string{
		stateDir, "/run/netns/lameduck-" + name + "-*",
		// What the components would write outside of the state directory.
		"/run/containerd", "/run/xtables.lock", "/run/flannel", "/var/lib/kubelet", "/var/lib/containerd", "/var/lib/cni",
		"/var/log/pods", "/var/log/containers", "/etc/cni", "/opt/cni", "/etc/kubernetes", "/usr/libexec/kubernetes",
	} {
		matches, _ := filepath.Glob(pattern)
		for _, m := range matches {
			if !existedBefore[m] {
				add("file %s", m)
			}
		}
	}
	return found
}

// existedBefore are paths that another program of this machine made.
var existedBefore = func() map[string]bool {
	m := make(map[string]bool)
	for _, path := range []string{
		"/run/containerd", "/run/xtables.lock", "/run/flannel", "/var/lib/kubelet", "/var/lib/containerd", "/var/lib/cni",
		"/var/log/pods", "/var/log/containers", "/etc/cni", "/opt/cni", "/etc/kubernetes", "/usr/libexec/kubernetes",
	} {
		_, err := os.Stat(path)
		m[path] = err == nil
	}
	return m
}()

// HostState is the network of the machine itself: interfaces, addresses, routes,
// firewall and settings.
func HostState(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, args := range [][]string{
		{"ip", "-o", "addr"}, {"ip", "route", "show", "table", "all"}, {"ip", "rule"}, {"iptables-save"},
	} {
		out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).Output()
		if err != nil {
			t.Fatalf("%s: %v", args, err)
		}
		for line := range strings.Lines(string(out)) {
			if !strings.HasPrefix(line, "#") && !strings.Contains(line, "valid_lft") { // dates, lifetimes that run down
				all.WriteString(line)
			}
		}
	}
	for _, file := range []string{
		"net/ipv4/ip_forward", "net/ipv4/conf/all/rp_filter", "net/ipv4/conf/all/route_localnet", "net/ipv4/conf/all/send_redirects",
		"net/ipv4/ip_local_port_range", "net/netfilter/nf_conntrack_max", "vm/overcommit_memory", "vm/panic_on_oom",
		"kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys",
	} {
		b, err := os.ReadFile(filepath.Join("/proc/sys", file))
		if err != nil {
			continue
		}
		fmt.Fprintf(&all, "%s = %s", file, b)
	}
	return all.String()
}
