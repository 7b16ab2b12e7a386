package sweep

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// fake is a file system with a few processes and network namespaces.
type fake struct {
	t    *testing.T
	root System
}

func (f fake) write(path, content string) {
	f.t.Helper()
	path = f.root.path(path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

// process adds a process; what is not in extra belongs to nobody.
func (f fake) process(pid, parent int, name string, extra map[string]string) {
	f.t.Helper()
	dir := "proc/" + strconv.Itoa(pid) + "/"
	files := map[string]string{
		"stat":    fmt.Sprintf("%d (%s) S %d 1 1 0 -1\n", pid, name, parent),
		"comm":    name + "\n",
		"environ": "PATH=/bin\x00HOME=/\x00",
		"cgroup":  "4:memory:/\n0::/\n",
		"ns/net":  "net:[4026531840]",
	}
	for file, content := range extra {
		files[file] = content
	}
	for file, content := range files {
		if file == "ns/net" {
			if err := os.MkdirAll(f.root.path(dir, "ns"), 0o755); err != nil {
				f.t.Fatal(err)
			}
			if err := os.Symlink(content, f.root.path(dir, file)); err != nil {
				f.t.Fatal(err)
			}
			continue
		}
		f.write(dir+file, content)
	}
}

// namespace adds a named network namespace and returns what /proc/PID/ns/net
// shows for a process in it.
func (f fake) namespace(name string) string {
	f.t.Helper()
	f.write(filepath.Join(netnsDir, name), "")
	var st unix.Stat_t
	if err := unix.Stat(f.root.path(netnsDir, name), &st); err != nil {
		f.t.Fatal(err)
	}
	return fmt.Sprintf("net:[%d]", st.Ino)
}

func cluster(name string) Cluster {
	return Cluster{
		Name: name, Marker: "MEMBER", Cgroup: "lameduck-" + name,
		Namespaces: regexp.MustCompile(`^lameduck-` + name + `-(cp|n[0-9]+)$`),
	}
}

func TestProcesses(t *testing.T) {
	f := fake{t, System(t.TempDir())}
	ours, others := f.namespace("lameduck-x-n1"), f.namespace("lameduck-x-y-n1")
	f.process(1, 0, "init", nil)
	f.process(10, 1, "supervisor", map[string]string{"environ": "A=b\x00MEMBER=x\x00"})
	f.process(11, 10, "app", map[string]string{"cgroup": "4:memory:/lameduck-x/n1/kubepods/pod1\n"})
	f.process(12, 1, "tcpdump", map[string]string{"ns/net": ours})
	f.process(13, 1, "zombie", map[string]string{"stat": "13 (zombie) Z 1 1 1 0 -1\n", "environ": "MEMBER=x\x00"})
	f.process(14, 1, "a ) S (b", map[string]string{"stat": "14 (a ) S (b) S 1 1 1 0 -1\n", "environ": "MEMBER=x\x00"})
	// Not ours: another cluster whose name begins with ours, and strangers
	// that only look alike.
	f.process(20, 1, "supervisor", map[string]string{
		"environ": "MEMBER=x-y\x00", "cgroup": "0::/lameduck-x-y/cp\n", "ns/net": others,
	})
	f.process(21, 1, "shell", map[string]string{"environ": "NOT_MEMBER=x\x00TEXT=MEMBER=x\x00"})
	f.process(22, 1, "editor", map[string]string{"cgroup": "0::/user.slice/lameduck-x\n"})
	f.write("proc/23/comm", "just gone\n") // its files vanish one by one
	f.write("proc/meminfo", "")

	got := f.root.Processes(cluster("x"))
	want := []Process{
		{10, "supervisor", "environment"}, {11, "app", "cgroup"}, {12, "tcpdump", "network namespace"},
		{14, "a ) S (b", "environment"},
	}
	slices.SortFunc(got, func(a, b Process) int { return a.PID - b.PID })
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if got, want := f.root.Marked("MEMBER"), []string{"x", "x-y"}; !slices.Equal(got, want) {
		t.Errorf("marked: got %v, want %v", got, want)
	}
	if got, want := f.root.Namespaces(cluster("x").Namespaces), []string{"lameduck-x-n1"}; !slices.Equal(got, want) {
		t.Errorf("namespaces: got %v, want %v", got, want)
	}
}

// Whoever cleans, and the shell that it was called from, must survive, even if
// the shell is inside of a namespace of the cluster.
func TestProcessesSparesCaller(t *testing.T) {
	f := fake{t, System(t.TempDir())}
	ours := f.namespace("lameduck-x-n1")
	own := os.Getpid()
	shell, nsenter, neighbour := own+1, own+2, own+3
	f.process(1, 0, "init", nil)
	f.process(nsenter, 1, "nsenter", map[string]string{"ns/net": ours})
	f.process(shell, nsenter, "bash", map[string]string{"ns/net": ours})
	f.process(own, shell, "lameduck", map[string]string{"ns/net": ours})
	f.process(neighbour, shell, "curl", map[string]string{"ns/net": ours})
	got := f.root.Processes(cluster("x"))
	if want := []Process{{neighbour, "curl", "network namespace"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestMountsBelow(t *testing.T) {
	const text = `27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
50 27 0:50 / /state/x rw - tmpfs tmpfs rw
51 50 0:51 / /state/x/n1/a\040b rw - tmpfs tmpfs rw
52 27 0:52 / /state/xy rw - tmpfs tmpfs rw
53 27 0:53 / /other/state/x rw - tmpfs tmpfs rw
`
	got := mountsBelow(text, "/state/x")
	if want := []string{"/state/x/n1/a b", "/state/x"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestRemoveDir(t *testing.T) {
	root := t.TempDir()
	c := Cluster{Dir: filepath.Join(root, "x"), LockFile: filepath.Join(root, "x", "lock")}
	mkdir := func(files ...string) {
		t.Helper()
		if err := os.MkdirAll(c.Dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if err := os.WriteFile(filepath.Join(c.Dir, file), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, files := range [][]string{nil, {"lock"}, {"lock", "kubeconfig"}} {
		mkdir(files...)
		var r Removed
		if err := r.removeDir(c); err != nil || r.Dir != c.Dir {
			t.Errorf("with %v: %v, %v", files, r.Dir, err)
		}
	}
	var r Removed
	if err := r.removeDir(c); err != nil || !r.Nothing() {
		t.Errorf("without a directory: %v, %v", r, err)
	}
	mkdir("letter-to-mother")
	if err := r.removeDir(c); err == nil || !strings.Contains(err.Error(), "not the state of a cluster") {
		t.Errorf("somebody else's directory: error is %v", err)
	}
	if _, err := os.Stat(filepath.Join(c.Dir, "letter-to-mother")); err != nil {
		t.Error(err)
	}
}

// A removal that ends half-way must leave what the next one knows the directory
// by.
func TestRemoveAllButKeepsTheLock(t *testing.T) {
	dir := t.TempDir()
	lock := filepath.Join(dir, "lock")
	for _, path := range []string{filepath.Join(dir, "a", "b"), filepath.Join(dir, "z")} {
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(lock, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := removeAllBut(dir, lock); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "lock" {
		t.Errorf("left %v, error %v; want the lock only", entries, err)
	}
}

func TestRemovedString(t *testing.T) {
	r := Removed{Processes: make([]Process, 2), Cgroups: make([]string, 3), Dir: "/state/x"}
	if got, want := r.String(), "2 process(es), 3 cgroup(s), /state/x"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
