//go:build e2e

package cgroups

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestKernel makes groups of a node and puts a process in, in the hierarchies
// that this machine uses, and once more in a cgroup v2 hierarchy alone if it
// has one beside v1's: the kernel's rules for v2 hold there too.
func TestE2EKernel(t *testing.T) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	m, err := Parse(string(b))
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]Mounts{"as mounted": m}
	for _, dir := range m.Dirs {
		if _, err := os.Stat(filepath.Join(dir, "cgroup.subtree_control")); err == nil && !m.Unified {
			cases["unified"] = Mounts{Unified: true, Dirs: []string{dir}}
		}
	}
	for name, m := range cases {
		t.Run(name, func(t *testing.T) {
			const group = "lameduck-e2e-cgroups"
			t.Cleanup(func() {
				if _, err := m.Remove(group, 5*time.Second); err != nil {
					t.Error(err)
				}
				if m.Exists(group) {
					t.Error("the group still exists")
				}
			})
			for _, sub := range []string{"/n1/machine", "/n1/kubepods/pod1"} {
				if err := m.Make(group + sub); err != nil {
					t.Fatal(err)
				}
			}
			if err := m.SetWeight(group, 2048); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("sleep", "60")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Wait()
			defer cmd.Process.Kill()
			for _, dir := range m.Paths(group + "/n1/machine") {
				if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), fmt.Append(nil, cmd.Process.Pid), 0); err != nil {
					t.Fatal(err)
				}
			}
			own, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", cmd.Process.Pid))
			if err != nil {
				t.Fatal(err)
			}
			if !Contains(string(own), group) {
				t.Errorf("the process is not found in\n%s", own)
			}
			if got := strings.Join(m.Names(group), " "); got != group {
				t.Errorf("names are %q", got)
			}
			if _, err := m.Remove(group, 0); err == nil {
				t.Error("a group with a process in it could be removed")
			}
		})
	}
}
