//go:build e2e

package embedded

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"lameduck/clusters"
	"lameduck/clusters/embedded/embeddedtest"
)

// TestKilledWhileCreating kills lameduck at several points of Up and looks what
// Clean leaves.
func TestE2EKilledWhileCreating(t *testing.T) {
	for _, point := range []struct {
		name string
		line string // of the progress, after which it is killed
		more time.Duration
	}{
		{"after 30 ms", "", 30 * time.Millisecond}, // in preflight, usually
		{"after 60 ms", "", 60 * time.Millisecond},
		{"after 100 ms", "", 100 * time.Millisecond}, // network half made
		{"after 150 ms", "", 150 * time.Millisecond},
		{"network made", "network:", 0},
		{"machines being started", "certificates", 20 * time.Millisecond},
		{"machines started", "certificates", 500 * time.Millisecond},
		{"API server up", "API server ready", 0},
		{"nodes up", "nodes ready", 0},
	} {
		t.Run(point.name, func(t *testing.T) {
			const name = "e2e-killed"
			p := newProvider(t, name)
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(self, "up", name, p.config.StateDir)
			out, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			for point.line != "" && lines.Scan() {
				if strings.Contains(lines.Text(), point.line) {
					break
				}
			}
			time.Sleep(point.more) // the point itself: nothing can be waited for here
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, out)
			cmd.Wait()
			if _, err := os.Stat(p.layout(name).dir); err == nil {
				refused(t, p, name)
			}
			if err := p.Clean(t.Context(), name, logWriter{t}); err != nil {
				t.Fatal(err)
			}
			for _, l := range embeddedtest.Leftovers(name, p.config.StateDir) {
				t.Errorf("left over: %s", l)
			}
		})
	}
}

// refused checks that Up refuses to build on remains and names the way out.
func refused(t *testing.T, p *Provider, name string) {
	t.Helper()
	_, err := p.Up(t.Context(), clusters.Options{Name: name, Nodes: 1}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "lameduck cluster clean") {
		t.Errorf("Up on remains: %v", err)
	}
	if _, err := p.Open(t.Context(), name); !errors.Is(err, clusters.ErrNotFound) {
		t.Errorf("Open of remains: %v", err)
	}
}

// TestInterrupted ends the context of Up, as Ctrl-C does.
func TestE2EInterrupted(t *testing.T) {
	for _, line := range []string{"network:", "certificates", "API server ready"} {
		t.Run(line, func(t *testing.T) {
			const name = "e2e-interrupted"
			p := newProvider(t, name)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_, err := p.Up(ctx, clusters.Options{Name: name, Nodes: 1}, onLine{line, cancel})
			if err == nil || !strings.Contains(err.Error(), "interrupted") {
				t.Errorf("error is %v", err)
			}
			for _, l := range embeddedtest.Leftovers(name, p.config.StateDir) {
				t.Errorf("left over: %s", l)
			}
		})
	}
}

// onLine calls f when a line contains text.
type onLine struct {
	text string
	f    func()
}

func (o onLine) Write(b []byte) (int, error) {
	if strings.Contains(string(b), o.text) {
		o.f()
	}
	return len(b), nil
}

// TestPartsKilled kills processes of a running cluster.
func TestE2EPartsKilled(t *testing.T) {
	const name = "e2e-parts"
	p := newProvider(t, name)
	c, client := up(t, p, name, 2)
	deploy(t, client, loadTarget(t, c), 6)
	waitReplicas(t, client, 6)
	victims := [][2]string{{"n1", "kubelet"}, {"n1", "containerd"}, {"cp", "kube-apiserver"}, {"n2", "supervisor"}, {"client", "supervisor"}}
	s, err := p.Status(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	killed := 0
	for _, part := range s.Parts {
		if !part.Running {
			t.Errorf("%s on %s does not run", part.Name, part.Host)
		}
		for _, v := range victims {
			if part.Host == v[0] && part.Name == v[1] {
				killed++
				if err := syscall.Kill(part.PID, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if killed != len(victims) {
		t.Fatalf("%d of %d victims found in %+v", killed, len(victims), s.Parts)
	}
	// n2 has died as a whole; of the other hosts only the victims.
	wantStopped := map[string]bool{"n1/kubelet": true, "n1/containerd": true, "cp/kube-apiserver": true,
		"n2/supervisor": true, "n2/containerd": true, "n2/kubelet": true, "n2/kube-proxy": true, "client/supervisor": true}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err = poll(ctx, func(ctx context.Context) error {
		s, err := p.Status(ctx, name)
		if err != nil {
			return err
		}
		for _, part := range s.Parts {
			if id := part.Host + "/" + part.Name; part.Running == wantStopped[id] {
				return errors.New(id + " is not as expected")
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	refused(t, p, name)
	if err := p.Clean(t.Context(), name, logWriter{t}); err != nil {
		t.Fatal(err)
	}
	for _, l := range embeddedtest.Leftovers(name, p.config.StateDir) {
		t.Errorf("left over: %s", l)
	}
}
