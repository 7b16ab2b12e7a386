package embedded

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lameduck/clusters"
)

// fine is a machine on which nothing is missing.
func fine() facts {
	f := facts{
		root: true, caps: ^uint64(0), binaries: "/bin/e", stateDir: "/state", diskFree: 10 << 30, inotify: 8192,
		tools: make(map[string]bool), programs: make(map[string]bool),
	}
	for _, tool := range tools {
		f.tools[tool.name] = true
	}
	for _, p := range programs {
		f.programs[p] = true
	}
	return f
}

func TestProblems(t *testing.T) {
	if got := fine().problems(2); len(got) > 0 {
		t.Errorf("nothing is missing, but: %q", got)
	}
	for name, c := range map[string]struct {
		breakIt func(*facts)
		want    []string // parts of the one message
	}{
		"no root":         {func(f *facts) { f.root = false }, []string{"root", "sudo"}},
		"no capability":   {func(f *facts) { f.caps = 0x1000 }, []string{"CAP_SYS_ADMIN", "privileged"}},
		"no iptables":     {func(f *facts) { f.tools["iptables"] = false }, []string{"apt-get install iptables"}},
		"no nft":          {func(f *facts) { f.tools["nft"] = false }, []string{"apt-get install nftables"}},
		"no nsenter":      {func(f *facts) { f.tools["nsenter"] = false }, []string{"apt-get install util-linux"}},
		"no binaries":     {func(f *facts) { f.programs["kubelet"], f.programs["cni/ptp"] = false, false }, []string{"/bin/e lacks kubelet, cni/ptp", "make build"}},
		"no NAT":          {func(f *facts) { f.network = errors.New("no NAT") }, []string{"no NAT"}},
		"no cgroups":      {func(f *facts) { f.cgroups = errors.New("read-only") }, []string{"read-only", "/sys/fs/cgroup"}},
		"no overlay":      {func(f *facts) { f.overlay = errors.New("no such device") }, []string{"OVERLAY_FS"}},
		"disk full":       {func(f *facts) { f.diskFree = 100 << 20 }, []string{"/state", "100 MB", "2048", StateDirEnv}},
		"disk read-only":  {func(f *facts) { f.diskErr = errors.New("read-only") }, []string{"/state", "read-only", StateDirEnv}},
		"inotify":         {func(f *facts) { f.inotify = 16 }, []string{"sysctl -w fs.inotify.max_user_instances="}},
		"inotify in use":  {func(f *facts) { f.inotify, f.watching = 128, 100 }, []string{"sysctl -w fs.inotify.max_user_instances=134", "100 that are in use"}},
		"no iptables NAT": {func(f *facts) { f.tools["iptables-restore"] = false; f.network = errors.New("not found") }, []string{"apt-get install iptables"}},
	} {
		f := fine()
		c.breakIt(&f)
		got := f.problems(2)
		if len(got) != 1 {
			t.Errorf("%s: want one problem, got %q", name, got)
			continue
		}
		for _, part := range c.want {
			if !strings.Contains(got[0], part) {
				t.Errorf("%s: %q lacks %q", name, got[0], part)
			}
		}
	}
	f := fine()
	f.tools["mount"], f.diskFree = false, 0
	if got := f.problems(2); len(got) != 2 {
		t.Errorf("two problems are reported as %q", got)
	}
}

func TestCheckOptions(t *testing.T) {
	if got := checkOptions(clusters.Options{Name: "x", Nodes: 2}); len(got) > 0 {
		t.Errorf("good options: %q", got)
	}
	got := checkOptions(clusters.Options{Name: "Bad/Name", Nodes: MaxNodes + 1, DeadAddress: "explode"})
	if len(got) != 3 {
		t.Errorf("three bad options are reported as %q", got)
	}
}

// A wrong name must be refused before anything happens under it.
func TestUpRefusesOptions(t *testing.T) {
	dir := t.TempDir()
	p := NewProvider(Config{StateDir: filepath.Join(dir, "state")})
	_, err := p.Up(t.Context(), clusters.Options{Name: "../x", Nodes: 0, DeadAddress: "?"}, os.Stderr)
	if err == nil || strings.Count(err.Error(), "want") != 3 {
		t.Errorf("error is %v", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) > 0 {
		t.Errorf("%s was made", entries[0].Name())
	}
}

func TestOpenNothing(t *testing.T) {
	p := NewProvider(Config{StateDir: t.TempDir()})
	if _, err := p.Open(t.Context(), "x"); !errors.Is(err, clusters.ErrNotFound) || !strings.Contains(err.Error(), "cluster up --name x") {
		t.Errorf("error is %v", err)
	}
	if _, err := p.Status(t.Context(), "x"); !errors.Is(err, clusters.ErrNotFound) {
		t.Errorf("error is %v", err)
	}
	// What an Up that was killed at once leaves.
	if err := os.Mkdir(p.layout("x").dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"Open": second(p.Open(t.Context(), "x")), "Status": second(p.Status(t.Context(), "x"))} {
		if !errors.Is(err, clusters.ErrNotFound) || !strings.Contains(err.Error(), "cluster clean --name x") {
			t.Errorf("%s of remains: %v", what, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestStateDir(t *testing.T) {
	t.Setenv(StateDirEnv, "")
	if got := NewProvider(Config{}).config.StateDir; got != DefaultStateDir {
		t.Errorf("default is %s", got)
	}
	t.Setenv(StateDirEnv, "/elsewhere")
	if got := NewProvider(Config{}).config.StateDir; got != "/elsewhere" {
		t.Errorf("with %s set: %s", StateDirEnv, got)
	}
	if got := NewProvider(Config{StateDir: "/mine"}).config.StateDir; got != "/mine" {
		t.Errorf("given: %s", got)
	}
}

func TestTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("I1130 10:00:00 starting\nError: bad flag\nUsage:\n  --help\n")
	if got := tail(path); got != "Error: bad flag" {
		t.Errorf("telling line: %q", got)
	}
	write("a\nb\nc\nd\n")
	if got := tail(path); got != "b | c | d" {
		t.Errorf("without one: %q", got)
	}
}

func TestLoadBalancerLogName(t *testing.T) {
	c := &Cluster{layout: layout{name: "x", dir: t.TempDir()}}
	for _, bad := range []string{"", "..", "a/b", "../../etc"} {
		if f, err := c.LoadBalancerLog(t.Context(), bad, "app", clusters.LogRequests); err == nil {
			f.Close()
			t.Errorf("%q is taken for a name", bad)
		}
	}
	f, err := c.LoadBalancerLog(t.Context(), "ns", "app", clusters.LogTargets)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}

func TestClientCommand(t *testing.T) {
	c := &Cluster{layout: layout{name: "x"}}
	cmd := c.ClientCommand(t.Context(), "/bin/lameduck", "worker")
	if got, want := strings.Join(cmd.Args[3:], " "), "/run/netns/lameduck-x-client /bin/lameduck worker"; got != want {
		t.Errorf("command is %s", got)
	}
	if cmd.SysProcAttr.Pdeathsig == 0 {
		t.Error("the command outlives its parent")
	}
}

// Ten nodes come up where the kernel's default was not changed.
func TestInotifyDefault(t *testing.T) {
	f := facts{root: true, inotify: 128}
	for _, problem := range f.problems(10) {
		if strings.Contains(problem, "inotify") {
			t.Error(problem)
		}
	}
}
