package cgroups

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

const (
	v1 = `23 27 0:22 / /sys rw,relatime - sysfs sysfs rw
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime shared:7 - cgroup cgroup rw,cpuset
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
50 27 0:50 / /somewhere/else rw - cgroup cgroup rw,memory
`
	v2 = `23 27 0:22 / /sys rw,relatime - sysfs sysfs rw
31 23 0:28 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate
`
)

func TestParse(t *testing.T) {
	m, err := Parse(v1)
	want := []string{"/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/cpuset", "/sys/fs/cgroup/unified"}
	if err != nil || m.Unified || !slices.Equal(m.Dirs, want) {
		t.Errorf("hybrid: %+v, %v; want %v", m, err, want)
	}
	m, err = Parse(v2)
	if err != nil || !m.Unified || !slices.Equal(m.Dirs, []string{"/sys/fs/cgroup"}) {
		t.Errorf("unified: %+v, %v", m, err)
	}
	if m, err := Parse("23 27 0:22 / /sys rw,relatime - sysfs sysfs rw\n"); err == nil {
		t.Errorf("without cgroups: %+v and no error", m)
	}
}

// write makes a file of a fake cgroup file system.
func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestMakeV1(t *testing.T) {
	root := t.TempDir()
	m := Mounts{Dirs: []string{filepath.Join(root, "memory"), filepath.Join(root, "cpuset")}}
	write(t, filepath.Join(root, "memory/cgroup.procs"), "")
	write(t, filepath.Join(root, "cpuset/cpuset.cpus"), "0-1\n")
	write(t, filepath.Join(root, "cpuset/cpuset.mems"), "0\n")
	// The kernel makes the files of a new group, empty ones; here they are there before.
	for _, group := range []string{"lameduck-x", "lameduck-x/n1"} {
		write(t, filepath.Join(root, "cpuset", group, "cpuset.cpus"), "\n")
		write(t, filepath.Join(root, "cpuset", group, "cpuset.mems"), "\n")
	}
	if err := m.Make("lameduck-x/n1"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "memory/lameduck-x/n1")); err != nil {
		t.Error(err)
	}
	if got := read(t, filepath.Join(root, "cpuset/lameduck-x/n1/cpuset.cpus")); got != "0-1\n" {
		t.Errorf("cpuset.cpus is %q", got)
	}
	if got := read(t, filepath.Join(root, "cpuset/lameduck-x/n1/cpuset.mems")); got != "0\n" {
		t.Errorf("cpuset.mems is %q", got)
	}
}

func TestMakeV2(t *testing.T) {
	root := t.TempDir()
	m := Mounts{Unified: true, Dirs: []string{root}}
	for _, group := range []string{"", "lameduck-x"} {
		write(t, filepath.Join(root, group, "cgroup.controllers"), "cpuset cpu io memory hugetlb pids rdma misc\n")
		write(t, filepath.Join(root, group, "cgroup.subtree_control"), "cpuset cpu io memory hugetlb\n")
	}
	if err := m.Make("lameduck-x/n1"); err != nil {
		t.Fatal(err)
	}
	// The kernel would add what is written; a plain file keeps the last write.
	for _, group := range []string{"", "lameduck-x"} {
		if got := read(t, filepath.Join(root, group, "cgroup.subtree_control")); got != "+pids" {
			t.Errorf("subtree_control of %q: wrote %q, want +pids", group, got)
		}
	}
	if _, err := os.Stat(filepath.Join(root, "lameduck-x/n1")); err != nil {
		t.Error(err)
	}
}

func TestSetWeight(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "g/cpu.weight"), "100")
	if err := (Mounts{Unified: true, Dirs: []string{root}}).SetWeight("g", 16*1024); err != nil {
		t.Fatal(err)
	}
	if got := read(t, filepath.Join(root, "g/cpu.weight")); got != "1600" {
		t.Errorf("v2: weight is %s", got)
	}
	write(t, filepath.Join(root, "cpu/g/cpu.shares"), "1024")
	write(t, filepath.Join(root, "memory/g/cgroup.procs"), "")
	m := Mounts{Dirs: []string{filepath.Join(root, "cpu"), filepath.Join(root, "memory")}}
	if err := m.SetWeight("g", 16*1024); err != nil {
		t.Fatal(err)
	}
	if got := read(t, filepath.Join(root, "cpu/g/cpu.shares")); got != "16384" {
		t.Errorf("v1: shares are %s", got)
	}
}

func TestRemove(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	m := Mounts{Dirs: []string{a, b}}
	for _, dir := range []string{"lameduck-x/n1/kubepods/pod1", "lameduck-x/n1/machine", "lameduck-x-y/cp"} {
		if err := os.MkdirAll(filepath.Join(a, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if !m.Exists("lameduck-x") || m.Exists("lameduck-z") {
		t.Error("Exists is wrong")
	}
	removed, err := m.Remove("lameduck-x", time.Second)
	if err != nil || len(removed) != 5 {
		t.Errorf("removed %v, %v", removed, err)
	}
	if m.Exists("lameduck-x") || !m.Exists("lameduck-x-y") {
		t.Error("the wrong groups are left")
	}
	if removed, err := m.Remove("lameduck-x", time.Second); err != nil || len(removed) != 0 {
		t.Errorf("second time: removed %v, %v", removed, err)
	}
}

func TestRemoveBusy(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "lameduck-x/busy"), "") // makes rmdir fail as a process would
	if _, err := (Mounts{Dirs: []string{root}}).Remove("lameduck-x", 0); err == nil {
		t.Error("no error")
	}
}

func TestNames(t *testing.T) {
	root := t.TempDir()
	for _, group := range []string{"lameduck-a", "lameduck-b", "other"} {
		write(t, filepath.Join(root, group, "cgroup.procs"), "")
	}
	got := (Mounts{Dirs: []string{root}}).Names("lameduck-")
	if want := []string{"lameduck-a", "lameduck-b"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestContains(t *testing.T) {
	for _, c := range []struct {
		text string
		want bool
	}{
		{"9:name=systemd:/\n4:memory:/lameduck-x/n1/machine\n0::/\n", true},
		{"0::/lameduck-x\n", true},
		{"0::/lameduck-x-y/n1\n", false},
		{"0::/user/lameduck-x\n", false},
		{"4:memory:/\n0::/\n", false},
		{"", false},
	} {
		if got := Contains(c.text, "lameduck-x"); got != c.want {
			t.Errorf("%q: %t", c.text, got)
		}
	}
}
