//go:build e2e

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"lameduck/clusters/embedded"
	"lameduck/clusters/embedded/embeddedtest"
)

// These tests run the binary that make build made, as a user does, each on a
// cluster of its own. They need root.

const binary = "../../bin/lameduck"

// process is a running lameduck.
type process struct {
	*exec.Cmd
	stdout bytes.Buffer

	mu     sync.Mutex
	stderr strings.Builder
	seen   chan struct{} // closed when the awaited line came
	ended  chan struct{}
}

// start runs lameduck until it ends or the test does. The line on stderr that
// contains await closes seen.
func start(t *testing.T, await string, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(binary, args...), seen: make(chan struct{}), ended: make(chan struct{})}
	p.Stdout = &p.stdout
	pipe, err := p.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatalf("%v; run: make build", err)
	}
	t.Cleanup(func() {
		p.Process.Kill() // ended, unless the test failed
		<-p.ended
	})
	go func() {
		defer close(p.ended)
		seen := false
		for lines := bufio.NewScanner(pipe); lines.Scan(); {
			p.mu.Lock()
			p.stderr.WriteString(lines.Text() + "\n")
			p.mu.Unlock()
			if !seen && strings.Contains(lines.Text(), await) {
				seen = true
				close(p.seen)
			}
		}
		p.Wait() // the exit code is in ProcessState
	}()
	return p
}

func (p *process) errors() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.String()
}

// wait returns the exit code; -1 after a signal.
func (p *process) wait(t *testing.T) int {
	t.Helper()
	select {
	case <-p.ended:
		return p.ProcessState.ExitCode()
	case <-time.After(4 * time.Minute):
		p.Process.Kill()
		t.Fatalf("still running; stderr:\n%s", p.errors())
		return 0
	}
}

// untilSeen waits for the awaited line.
func (p *process) untilSeen(t *testing.T) {
	t.Helper()
	select {
	case <-p.seen:
	case <-p.ended:
		t.Fatalf("ended early; stderr:\n%s", p.errors())
	case <-time.After(2 * time.Minute):
		p.Process.Kill()
		t.Fatalf("the awaited line did not come; stderr:\n%s", p.errors())
	}
}

// cleaned checks that nothing of the cluster is left, with code that is not the
// cleaner's.
func cleaned(t *testing.T, name string) {
	t.Helper()
	for _, l := range embeddedtest.Leftovers(name, filepath.Join(embedded.DefaultStateDir, name)) {
		t.Errorf("left over: %s", l)
	}
}

// onlyRun is the one run directory of scale-in below out.
func onlyRun(t *testing.T, out string) string { return runOf(t, out, "scale-in") }

// runOf is the one run directory of an experiment below out.
func runOf(t *testing.T, out, experiment string) string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(out, "*-"+experiment))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("run directories %v, error %v; want one", dirs, err)
	}
	return dirs[0]
}

// disturbed matches a trial that something else on the machine made invalid.
var disturbed = regexp.MustCompile(`: invalid, .*\((CPU|lateness|pauses|control answers|rate): `)

type jsonCell struct {
	Mitigation string         `json:"mitigation"`
	Trials     int            `json:"trials"`
	Invalid    int            `json:"invalid"`
	Requests   int            `json:"requests"`
	Failed     int            `json:"failed"`
	Outcomes   map[string]int `json:"outcomes"`
}

func (c jsonCell) valid() int { return c.Trials - c.Invalid }

// report renders a run as JSON.
func jsonReport(t *testing.T, dir string) map[string]jsonCell {
	t.Helper()
	p := start(t, "", "report", dir, "--format", "json")
	if code := p.wait(t); code != exitOK {
		t.Fatalf("report: exit code %d, stderr %s", code, p.errors())
	}
	var r struct {
		Cells []jsonCell `json:"cells"`
	}
	if err := json.Unmarshal(p.stdout.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	cells := make(map[string]jsonCell)
	for _, c := range r.Cells {
		cells[c.Mitigation] = c
	}
	return cells
}

func TestE2EExperiment(t *testing.T) {
	const name = "e2e-run"
	embeddedtest.RemoveAround(t, embedded.NewProvider(embedded.Config{}), name)
	host := embeddedtest.HostState(t)
	var (
		p           *process
		code        int
		dir         string
		cells       map[string]jsonCell
		none, sleep jsonCell
	)
	// Another tenant of the machine can make a trial invalid; that is the tool at
	// work, but shows nothing here.
	for range 3 {
		out := t.TempDir()
		p = start(t, "", "run", "scale-in", "--name", name, "--out", out, "--repeats", "1", "--mitigations", "none,prestop-sleep-10s", "--targets", "instance", "--rate", "150")
		code = p.wait(t)
		dir = onlyRun(t, out)
		cells = jsonReport(t, dir)
		none, sleep = cells["none"], cells["prestop-sleep-10s"]
		if none.Trials < 1 || sleep.Trials < 1 || none.valid() > 1 || sleep.valid() > 1 {
			t.Fatalf("cells %+v; want one trial each; exit code %d, stderr:\n%s", cells, code, p.errors())
		}
		if none.valid()+sleep.valid() == 2 {
			break
		}
		t.Logf("invalid trials, exit code %d:\n%s", code, p.errors())
		for line := range strings.Lines(p.errors()) {
			if strings.Contains(line, ": invalid, ") && !disturbed.MatchString(line) {
				t.Fatal("a trial is invalid for a reason that is not the machine's")
			}
		}
	}
	if none.valid()+sleep.valid() < 2 {
		t.Skip("this machine is too busy with other things for a valid trial")
	}
	if sleep.Failed != 0 || sleep.Requests == 0 {
		t.Errorf("with preStop sleep %d of %d requests failed, want none", sleep.Failed, sleep.Requests)
	}
	// One trial without a mitigation may be lucky; then the expectation is not met.
	if want := map[bool]int{true: exitOK, false: exitUnexpected}[none.Failed > 0 && sleep.Failed == 0]; code != want {
		t.Errorf("exit code %d, want %d; stderr:\n%s", code, want, p.errors())
	}
	for m, c := range cells {
		sum := 0
		for _, n := range c.Outcomes {
			sum += n
		}
		if sum != c.Requests || c.Outcomes["ok"]+c.Failed != c.Requests {
			t.Errorf("%s: outcomes %v do not add up to %d requests, %d failed", m, c.Outcomes, c.Requests, c.Failed)
		}
	}
	if !strings.Contains(p.stdout.String(), filepath.Join(dir, "report.md")) {
		t.Errorf("stdout does not name the report:\n%s", p.stdout.String())
	}
	if _, err := os.Stat(filepath.Join(dir, "report.md")); err != nil {
		t.Error(err)
	}
	cleaned(t, name)
	if now := embeddedtest.HostState(t); now != host {
		t.Errorf("the host's network changed; before:\n%s\nnow:\n%s", host, now)
	}
}

func TestE2EInterrupted(t *testing.T) {
	const name = "e2e-int"
	embeddedtest.RemoveAround(t, embedded.NewProvider(embedded.Config{}), name)
	for _, at := range []string{"API server ready", "deploying", "under load"} {
		t.Run(at, func(t *testing.T) {
			out := t.TempDir()
			p := start(t, at, "run", "scale-in", "--name", name, "--out", out)
			p.untilSeen(t)
			if err := p.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			if code := p.wait(t); code != exitInterrupted {
				t.Errorf("exit code %d, want %d; stderr:\n%s", code, exitInterrupted, p.errors())
			}
			cleaned(t, name)
			if at == "API server ready" {
				return // no record yet
			}
			dir := onlyRun(t, out)
			end, err := os.ReadFile(filepath.Join(dir, "end.json"))
			if err != nil || !strings.Contains(string(end), "interrupted") || strings.Contains(string(end), `"complete": true`) {
				t.Errorf("end.json is %s, error %v; want it incomplete, interrupted", end, err)
			}
			for m, c := range jsonReport(t, dir) {
				if c.Trials != 0 {
					t.Errorf("%s: %d trials are counted as finished", m, c.Trials)
				}
			}
		})
	}
}

// TestE2EInterruptedTwice checks that the second Ctrl-C does not wait for the
// teardown, and that what it leaves can be removed.
func TestE2EInterruptedTwice(t *testing.T) {
	const name = "e2e-int2"
	embeddedtest.RemoveAround(t, embedded.NewProvider(embedded.Config{}), name)
	p := start(t, "deploying", "run", "scale-in", "--name", name, "--out", t.TempDir())
	p.untilSeen(t)
	for _, said := range []string{"", "tearing down"} {
		for limit := time.Now().Add(time.Minute); !strings.Contains(p.errors(), said); time.Sleep(time.Millisecond) {
			if time.Now().After(limit) {
				t.Fatalf("no %q on stderr:\n%s", said, p.errors())
			}
		}
		if err := p.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
	}
	if code := p.wait(t); code != exitInterrupted {
		t.Errorf("exit code %d, want %d; stderr:\n%s", code, exitInterrupted, p.errors())
	}
	if len(embeddedtest.Leftovers(name, filepath.Join(embedded.DefaultStateDir, name))) == 0 {
		t.Error("nothing is left: the teardown was waited for")
	}
	clean := start(t, "", "cluster", "clean", "--name", name)
	if code := clean.wait(t); code != exitOK {
		t.Errorf("clean: exit code %d, stderr %s", code, clean.errors())
	}
	cleaned(t, name)
}

func TestE2EKilled(t *testing.T) {
	const name = "e2e-kill"
	embeddedtest.RemoveAround(t, embedded.NewProvider(embedded.Config{}), name)
	for _, at := range []string{"deploying", "under load"} {
		t.Run(at, func(t *testing.T) {
			out := t.TempDir()
			p := start(t, at, "run", "scale-in", "--name", name, "--out", out)
			p.untilSeen(t)
			if err := p.Process.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			p.wait(t)
			again := start(t, "", "run", "scale-in", "--name", name, "--out", out)
			if code := again.wait(t); code == exitOK || !strings.Contains(again.errors(), "lameduck cluster ") {
				t.Errorf("a run on remains: exit code %d, stderr %s; want the way out named", code, again.errors())
			}
			clean := start(t, "", "cluster", "clean", "--name", name)
			if code := clean.wait(t); code != exitOK {
				t.Errorf("clean: exit code %d, stderr %s", code, clean.errors())
			}
			cleaned(t, name)
			report := start(t, "", "report", onlyRun(t, out))
			if code := report.wait(t); code != exitOK || (at == "under load" && !strings.Contains(report.stdout.String(), "cut off after")) {
				t.Errorf("report: exit code %d, stderr %s, stdout\n%s", code, report.errors(), report.stdout.String())
			}
		})
	}
}

func TestE2EFullDisk(t *testing.T) {
	const name = "e2e-full"
	embeddedtest.RemoveAround(t, embedded.NewProvider(embedded.Config{}), name)
	out := t.TempDir()
	if err := syscall.Mount("tmpfs", out, "tmpfs", 0, "size=128m"); err != nil {
		t.Fatal(err)
	}
	defer syscall.Unmount(out, syscall.MNT_DETACH)
	p := start(t, "under load", "run", "scale-in", "--name", name, "--out", out)
	p.untilSeen(t)
	filler, err := os.Create(filepath.Join(out, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	block := make([]byte, 1<<20)
	for err == nil {
		_, err = filler.Write(block)
	}
	filler.Close()
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	if code := p.wait(t); code != exitError || !strings.Contains(p.errors(), "no space left on device") {
		t.Errorf("exit code %d, want %d; stderr:\n%s", code, exitError, p.errors())
	}
	cleaned(t, name)
	for m, c := range jsonReport(t, onlyRun(t, out)) {
		if c.Trials != 0 {
			t.Errorf("%s: %d trials are counted as finished", m, c.Trials)
		}
	}
}
