package embedded

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"lameduck/clusters/embedded/machine"
)

// watch returns a context that ends as soon as a process of the cluster has
// died, with a cause that tells which and shows the end of its log: the log
// itself is removed with the rest of the failed cluster.
func (b *builder) watch(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		tick := time.NewTicker(4 * pollInterval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if err := b.firstDead(); err != nil {
				cancel(err)
				return
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

// firstDead names a process that has ended, or returns nil.
func (b *builder) firstDead() error {
	for _, host := range supervised(b.nodes) {
		s, err := machine.ReadStatus(b.host(host))
		if err != nil {
			return err
		}
		for _, p := range s.Components {
			if p.Exit != "" {
				return fmt.Errorf("%s on %s has ended (%s): %s", p.Name, host, p.Exit, tail(p.Log))
			}
		}
		switch {
		case s.Supervisor.PID != 0 && !s.Supervisor.Alive():
			return fmt.Errorf("the supervisor of %s has ended: %s", host, tail(s.Supervisor.Log))
		case s.Supervisor.PID == 0 && time.Since(b.started) > 30*time.Second:
			return fmt.Errorf("the supervisor of %s does not start: %s", host, tail(machine.LogFile(b.host(host), "supervisor")))
		}
	}
	return nil
}

// failure starts lines that tell why a program ended: those of klog, of cobra
// (which shows a page of usage after it), of containerd and of the Go runtime.
var failure = regexp.MustCompile(`^([EF][0-9]{4} |Error: |panic: |fatal error: |.*level=(fatal|error)|containerd: |{"level":"(fatal|error|panic)")`)

// tail is what a log says about the end of its program, on one line.
func tail(path string) string {
	const most = 64 << 10
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b[max(0, len(b)-most):])), "\n")
	var telling []string
	for _, line := range lines {
		if failure.MatchString(line) {
			telling = append(telling, line)
		}
	}
	if len(telling) == 0 {
		telling = lines
	}
	return strings.Join(telling[max(0, len(telling)-3):], " | ")
}
