package cgroups

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Mounts are the mounted hierarchies of a machine.
type Mounts struct {
	// Unified says that cgroup v2 is in use; then it is the only hierarchy.
	Unified bool
	// Dirs are the mount points.
	Dirs []string
}

// Where is where hierarchies are expected, as by kubelet and runc.
const Where = "/sys/fs/cgroup"

// Parse finds the hierarchies in the text of /proc/self/mountinfo.
func Parse(mountinfo string) (Mounts, error) {
	var m Mounts
	for line := range strings.Lines(mountinfo) {
		left, right, ok := strings.Cut(line, " - ")
		fields, super := strings.Fields(left), strings.Fields(right)
		if !ok || len(fields) < 5 || len(super) < 1 {
			continue
		}
		dir := fields[4]
		if dir != Where && !strings.HasPrefix(dir, Where+"/") {
			continue
		}
		switch super[0] {
		case "cgroup2":
			if dir == Where {
				return Mounts{Unified: true, Dirs: []string{dir}}, nil
			}
			m.Dirs = append(m.Dirs, dir)
		case "cgroup":
			m.Dirs = append(m.Dirs, dir)
		}
	}
	if len(m.Dirs) == 0 {
		return m, fmt.Errorf("no cgroups are mounted at %s", Where)
	}
	return m, nil
}

// Paths are the directories of one group in all hierarchies.
func (m Mounts) Paths(group string) []string {
	paths := make([]string, 0, len(m.Dirs))
	for _, dir := range m.Dirs {
		paths = append(paths, filepath.Join(dir, group))
	}
	return paths
}

// Make creates a group, and those above it, in every hierarchy. All
// controllers work in it, as far as the machine has them.
func (m Mounts) Make(group string) error {
	for _, root := range m.Dirs {
		dir := root
		for name := range strings.SplitSeq(group, "/") {
			parent := dir
			dir = filepath.Join(dir, name)
			if m.Unified {
				if err := enableControllers(parent); err != nil {
					return err
				}
			}
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("create cgroup: %w", err)
			}
			if err := copyCPUSet(parent, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// copyCPUSet fills in what a v1 cpuset lacks after it was made: without CPUs
// and memory nodes no process can enter it.
func copyCPUSet(parent, dir string) error {
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		own, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // not the cpuset hierarchy
		}
		if err != nil {
			return err
		}
		if strings.TrimSpace(string(own)) != "" {
			continue
		}
		value, err := os.ReadFile(filepath.Join(parent, name))
		if err != nil {
			return err
		}
		// In v2 empty means "as the parent" and is right.
		if strings.TrimSpace(string(value)) == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), value, 0); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	return nil
}

// enableControllers passes all controllers of a v2 group on to its children.
// In the root group this outlives the cluster; systemd and Docker do the same,
// and nobody could tell who else relies on it by then.
func enableControllers(dir string) error {
	has, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	on, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
	if err != nil {
		return err
	}
	enabled := strings.Fields(string(on))
	for _, c := range strings.Fields(string(has)) {
		if slices.Contains(enabled, c) || !slices.Contains(needed, c) {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0); err != nil {
			return fmt.Errorf("enable cgroup controller %s in %s: %w", c, dir, err)
		}
	}
	return nil
}

// needed are the controllers that the kubelet asks for (kubelet, container
// manager, supported controllers on cgroup v2) and runc uses.
var needed = []string{"cpu", "cpuset", "memory", "hugetlb", "pids", "io"}

// SetWeight sets a group's share of the CPUs against its siblings, in units of
// 1024 for one ordinary group or, for v1, one process beside it.
func (m Mounts) SetWeight(group string, shares int) error {
	name, value := "cpu.shares", shares
	if m.Unified {
		// 1024 shares are weight 100; runc has a finer conversion, which does
		// not matter here. The range is 1..10000.
		name, value = "cpu.weight", min(shares*100/1024, 10000)
	}
	for _, dir := range m.Paths(group) {
		file := filepath.Join(dir, name)
		if _, err := os.Stat(file); err != nil {
			continue // another hierarchy
		}
		if err := os.WriteFile(file, fmt.Append(nil, value), 0); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	return nil
}

// Exists says whether the group exists in any hierarchy.
func (m Mounts) Exists(group string) bool {
	return slices.ContainsFunc(m.Paths(group), func(dir string) bool {
		_, err := os.Stat(dir)
		return err == nil
	})
}

// Names are the names of all top groups with a prefix, sorted.
func (m Mounts) Names(prefix string) []string {
	var names []string
	for _, root := range m.Dirs {
		matches, _ := filepath.Glob(filepath.Join(root, prefix+"*", "cgroup.procs"))
		for _, match := range matches {
			names = append(names, filepath.Base(filepath.Dir(match)))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Remove removes a group and all below it from every hierarchy, and returns
// the directories that were removed. Processes in them must have ended; the
// kernel takes a moment to notice, so it tries again until the limit.
func (m Mounts) Remove(group string, limit time.Duration) ([]string, error) {
	deadline := time.Now().Add(limit)
	var removed []string
	for _, root := range m.Paths(group) {
		var dirs []string
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return err
		})
		if err != nil {
			return removed, err
		}
		for _, dir := range slices.Backward(dirs) { // deepest first
			gone, err := rmdir(dir, deadline)
			if err != nil {
				return removed, err
			}
			if gone {
				removed = append(removed, dir)
			}
		}
	}
	return removed, nil
}

func rmdir(dir string, deadline time.Time) (bool, error) {
	for {
		// One directory at a time: the files in a cgroup cannot be unlinked, and
		// need not be.
		err := os.Remove(dir)
		if err == nil {
			return true, nil
		}
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		if time.Now().After(deadline) {
			return false, fmt.Errorf("remove cgroup: %w", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Contains says whether the text of a /proc/PID/cgroup names the group or one
// below it, in any hierarchy.
func Contains(procCgroup, group string) bool {
	for line := range strings.Lines(procCgroup) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		path := strings.TrimPrefix(parts[2], "/")
		if path == group || strings.HasPrefix(path, group+"/") {
			return true
		}
	}
	return false
}
