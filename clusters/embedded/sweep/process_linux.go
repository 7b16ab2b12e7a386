package sweep

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"lameduck/clusters/embedded/cgroups"
)

// Cluster says by what a cluster's things are known. Nothing is known by a field
// that is not set.
type Cluster struct {
	Name string
	// Marker is the environment variable that has Name as its value in all
	// processes of the cluster that are not containers.
	Marker string
	// Namespaces matches the names of the cluster's network namespaces.
	Namespaces *regexp.Regexp
	Cgroup     string // its top cgroup, without a slash
	Dir        string // its state
	// LockFile is a file in Dir by which Dir is known to be a cluster's state.
	LockFile string
}

// System is the file system to look at; "/" in earnest.
type System string

func (s System) path(elem ...string) string {
	return filepath.Join(append([]string{string(s)}, elem...)...)
}

const netnsDir = "run/netns"

// Namespaces are the names of the network namespaces that match, sorted.
func (s System) Namespaces(match *regexp.Regexp) []string {
	entries, err := os.ReadDir(s.path(netnsDir))
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		if match.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names
}

// Process is a process that belongs to a cluster, and why.
type Process struct {
	PID  int
	Name string
	Why  string
}

// Processes finds the running processes of a cluster. The calling process and
// those above it are never among them: a shell inside of a namespace of ours
// may be the one that cleans.
func (s System) Processes(c Cluster) []Process {
	inodes := s.inodes(c)
	spared := s.ancestors(os.Getpid())
	var found []Process
	for _, pid := range s.pids() {
		if slices.Contains(spared, pid) {
			continue
		}
		if why := s.member(c, inodes, pid); why != "" {
			name, _ := os.ReadFile(s.proc(pid, "comm"))
			found = append(found, Process{PID: pid, Name: strings.TrimSpace(string(name)), Why: why})
		}
	}
	return found
}

// Marked are the values of the marker in all processes' environments.
func (s System) Marked(marker string) []string {
	var values []string
	for _, pid := range s.pids() {
		if value, ok := s.environ(pid, marker); ok && s.running(pid) {
			values = append(values, value)
		}
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// member says why a process belongs to the cluster, or "".
func (s System) member(c Cluster, inodes []uint64, pid int) string {
	if !s.running(pid) {
		return ""
	}
	if value, ok := s.environ(pid, c.Marker); c.Marker != "" && ok && value == c.Name {
		return "environment"
	}
	if b, err := os.ReadFile(s.proc(pid, "cgroup")); err == nil && cgroups.Contains(string(b), c.Cgroup) {
		return "cgroup"
	}
	if link, err := os.Readlink(s.proc(pid, "ns/net")); err == nil {
		for _, inode := range inodes {
			if link == fmt.Sprintf("net:[%d]", inode) {
				return "network namespace"
			}
		}
	}
	return ""
}

func (s System) proc(pid int, file string) string { return s.path("proc", strconv.Itoa(pid), file) }

func (s System) pids() []int {
	entries, err := os.ReadDir(s.path("proc"))
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// running says whether a process exists and is no zombie. A zombie holds
// nothing, and only its parent can remove it.
func (s System) running(pid int) bool {
	fields := s.stat(pid)
	return len(fields) > 1 && fields[0] != "Z" && fields[0] != "X"
}

// stat returns the fields of /proc/PID/stat from the state on. The name before
// them may contain anything.
func (s System) stat(pid int) []string {
	b, err := os.ReadFile(s.proc(pid, "stat"))
	if err != nil {
		return nil
	}
	return strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
}

func (s System) ancestors(pid int) []int {
	all := []int{pid}
	for range 64 { // a process tree is never that deep; a broken one must not hang us
		fields := s.stat(pid)
		if len(fields) < 2 {
			break
		}
		parent, err := strconv.Atoi(fields[1])
		if err != nil || parent <= 0 {
			break
		}
		all, pid = append(all, parent), parent
	}
	return all
}

func (s System) environ(pid int, name string) (value string, ok bool) {
	b, err := os.ReadFile(s.proc(pid, "environ"))
	if err != nil {
		return "", false
	}
	for entry := range bytes.SplitSeq(b, []byte{0}) {
		if value, ok := strings.CutPrefix(string(entry), name+"="); ok {
			return value, true
		}
	}
	return "", false
}
