package sweep

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"lameduck/clusters/embedded/cgroups"
)

// Bounds on how long the kernel may take to end processes and empty cgroups. With
// 200 pods all takes 20 s on two cores.
const (
	killLimit   = time.Minute
	cgroupLimit = 10 * time.Second
)

// rounds is how often everything is looked for. What appears between two looks
// comes from a process that was just being started, so two are enough; one
// more shows that nothing is left.
const rounds = 3

// Removed counts what was removed.
type Removed struct {
	Processes  []Process
	Namespaces []string
	Mounts     []string
	Cgroups    []string
	Dir        string
}

// Nothing says whether there was nothing to remove.
func (r Removed) Nothing() bool {
	return len(r.Processes)+len(r.Namespaces)+len(r.Mounts)+len(r.Cgroups) == 0 && r.Dir == ""
}

// String is one line for the user.
func (r Removed) String() string {
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{
		{len(r.Processes), "process(es)"}, {len(r.Namespaces), "network namespace(s)"},
		{len(r.Mounts), "mount(s)"}, {len(r.Cgroups), "cgroup(s)"},
	} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	if r.Dir != "" {
		parts = append(parts, r.Dir)
	}
	return strings.Join(parts, ", ")
}

// Run removes all of a cluster. Nothing to remove is not an error.
func Run(ctx context.Context, c Cluster, groups cgroups.Mounts) (Removed, error) {
	var r Removed
	for range rounds {
		before := r
		if err := r.round(ctx, c, groups); err != nil {
			return r, fmt.Errorf("clean cluster %s: %w", c.Name, err)
		}
		if r.equalSize(before) {
			return r, nil
		}
	}
	return r, nil
}

func (r Removed) equalSize(o Removed) bool {
	return len(r.Processes) == len(o.Processes) && len(r.Namespaces) == len(o.Namespaces) &&
		len(r.Mounts) == len(o.Mounts) && len(r.Cgroups) == len(o.Cgroups) && r.Dir == o.Dir
}

func (r *Removed) round(ctx context.Context, c Cluster, groups cgroups.Mounts) error {
	const here = System("/")
	killed, err := here.kill(ctx, c)
	r.Processes = append(r.Processes, killed...)
	if err != nil {
		return err
	}
	mounts, err := here.unmount(c)
	r.Mounts = append(r.Mounts, mounts...)
	if err != nil {
		return err
	}
	for _, name := range here.Namespaces(c.Namespaces) {
		if err := removeNamespace(here.path(netnsDir, name)); err != nil {
			return err
		}
		r.Namespaces = append(r.Namespaces, name)
	}
	removeEmptyNetnsDir(here.path(netnsDir))
	removed, err := groups.Remove(c.Cgroup, cgroupLimit)
	r.Cgroups = append(r.Cgroups, removed...)
	if err != nil {
		return err
	}
	return r.removeDir(c)
}

// KillGroup ends all processes in a cgroup and those below it, and waits until
// they are gone.
func KillGroup(ctx context.Context, group string) error {
	_, err := System("/").kill(ctx, Cluster{Cgroup: group})
	return err
}

// kill ends all processes of the cluster and waits until they are gone.
func (s System) kill(ctx context.Context, c Cluster) ([]Process, error) {
	ctx, cancel := context.WithTimeout(ctx, killLimit)
	defer cancel()
	seen := make(map[int]bool)
	var killed []Process
	for {
		found := s.Processes(c)
		if len(found) == 0 {
			return killed, nil
		}
		var fds []unix.PollFd
		for _, p := range found {
			// Many end as soon as their machine's first process does.
			if !seen[p.PID] {
				seen[p.PID] = true
				killed = append(killed, p)
			}
			fd, err := s.killOne(c, p)
			if err != nil {
				return killed, err
			}
			if fd >= 0 {
				fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
			}
		}
		awaitExit(fds)
		if err := ctx.Err(); err != nil {
			return killed, fmt.Errorf("kill process %d (%s): still there: %w", found[0].PID, found[0].Name, err)
		}
	}
}

// killOne kills one process if it still is the one that was found. It returns
// a pidfd to wait for, or -1 if the process is gone.
func (s System) killOne(c Cluster, p Process) (int, error) {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return -1, nil
	}
	if err != nil {
		return -1, fmt.Errorf("open process %d: %w", p.PID, err)
	}
	// From here on the PID cannot be another process's.
	if s.member(c, s.inodes(c), p.PID) == "" {
		unix.Close(fd)
		return -1, nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		unix.Close(fd)
		return -1, fmt.Errorf("kill process %d (%s): %w", p.PID, p.Name, err)
	}
	return fd, nil
}

// awaitExit waits a moment for processes to end. Those that need longer are
// found again by the caller's next look.
func awaitExit(fds []unix.PollFd) {
	deadline := time.Now().Add(time.Second)
	for i := range fds {
		left := time.Until(deadline).Milliseconds()
		unix.Poll(fds[i:i+1], int(max(left, 0)))
		unix.Close(int(fds[i].Fd))
	}
}

// inodes are the inodes of the cluster's network namespaces.
func (s System) inodes(c Cluster) []uint64 {
	if c.Namespaces == nil {
		return nil
	}
	var inodes []uint64
	for _, name := range s.Namespaces(c.Namespaces) {
		var st unix.Stat_t
		if err := unix.Stat(s.path(netnsDir, name), &st); err == nil {
			inodes = append(inodes, st.Ino)
		}
	}
	return inodes
}

// unmount removes the mounts of the cluster, the last one first.
func (s System) unmount(c Cluster) ([]string, error) {
	b, err := os.ReadFile(s.path("proc/self/mountinfo"))
	if err != nil {
		return nil, err
	}
	var done []string
	for _, dir := range mountsBelow(string(b), c.Dir) {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			return done, fmt.Errorf("unmount %s: %w", dir, err)
		}
		done = append(done, dir)
	}
	return done, nil
}

// removeNamespace removes the name of a network namespace; with its last
// process gone the namespace itself goes too, and all of its interfaces.
func removeNamespace(path string) error {
	for {
		err := unix.Unmount(path, unix.MNT_DETACH)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			break // no mount (any more)
		}
		if err != nil {
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// removeEmptyNetnsDir removes the directory of named namespaces, which Up makes
// as "ip netns add" does, if nobody uses it. Anybody who needs it makes it.
func removeEmptyNetnsDir(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 0 {
		return
	}
	unix.Unmount(dir, 0)
	syscall.Rmdir(dir)
}

func (r *Removed) removeDir(c Cluster) error {
	if _, err := os.Lstat(c.Dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, err := os.Lstat(c.LockFile); err == nil {
		if err := removeAllBut(c.Dir, c.LockFile); err != nil {
			return err
		}
		if err := os.RemoveAll(c.Dir); err != nil {
			return err
		}
	} else if err := os.Remove(c.Dir); err != nil {
		return fmt.Errorf("%s is not the state of a cluster (it lacks %s); remove it yourself if nobody needs it: %w",
			c.Dir, filepath.Base(c.LockFile), err)
	}
	r.Dir = c.Dir
	return nil
}

// removeAllBut leaves one file of a directory. The file by which a directory is
// known as ours must go last: a removal that is cut off can then be repeated.
func removeAllBut(dir, file string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if path := filepath.Join(dir, e.Name()); path != file {
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// Left lists all that Run would remove, in words, for error messages.
func Left(c Cluster, groups cgroups.Mounts) []string {
	const here = System("/")
	var left []string
	for _, p := range here.Processes(c) {
		left = append(left, fmt.Sprintf("process %d (%s)", p.PID, p.Name))
	}
	for _, name := range here.Namespaces(c.Namespaces) {
		left = append(left, "network namespace "+name)
	}
	if groups.Exists(c.Cgroup) {
		left = append(left, "cgroup "+c.Cgroup)
	}
	if _, err := os.Lstat(c.Dir); err == nil {
		left = append(left, c.Dir)
	}
	return slices.Clip(left)
}
