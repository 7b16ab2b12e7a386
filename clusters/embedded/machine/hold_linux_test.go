package machine

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestDuty(t *testing.T) {
	for _, c := range []struct {
		share float64
		want  []string // from the first stop, which is at 0s, on
	}{
		{0.6, []string{"resume 300ms", "stop 500ms", "resume 800ms", "stop 1s", "resume 1.1s"}},
		{0.1, []string{"resume 50ms", "stop 500ms", "resume 550ms", "stop 1s", "resume 1.05s"}},
		{1, []string{"resume 1.1s"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 1100*time.Millisecond)
			defer cancel()
			start := time.Now()
			var got []string
			note := func(what string) func() {
				return func() { got = append(got, fmt.Sprintf("%s %s", what, time.Since(start))) }
			}
			duty(ctx, c.share, note("stop"), note("resume"))
			if !slices.Equal(got, c.want) {
				t.Errorf("share %g: %v, want %v", c.share, got, c.want)
			}
		})
	}
}

// TestHolds stops a process for two at once.
func TestHolds(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	ch := &child{}
	s := &supervisor{
		spec:    Spec{Components: []Component{{Name: "sleep"}, {Name: "ended"}}},
		running: map[int]*child{cmd.Process.Pid: ch}, children: []*child{ch, {index: 1}},
	}
	state := func(want string) {
		t.Helper()
		var got string
		for range 500 { // a signal takes effect a moment later
			_, fields, _ := cutLast(readFile(t, fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid)), ")")
			if got = strings.Fields(fields)[0]; got == want {
				return
			}
			time.Sleep(2 * time.Millisecond)
		}
		t.Errorf("state is %s, want %s", got, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	first, err := s.hold(ctx, "sleep", 1)
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.hold(t.Context(), "sleep", 1)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	<-first.done
	state("T")
	s.release()
	<-second.done
	state("S")
	for component, share := range map[string]float64{"ended": 1, "other": 1, "sleep": 0} {
		if _, err := s.hold(t.Context(), component, share); err == nil {
			t.Errorf("%s, share %g: no error", component, share)
		}
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
