package embedded

import (
	"context"
	"fmt"
	"os"
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

// tail is the end of a log, on one line.
func tail(path string) string {
	const most = 1500
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	if len(b) > most {
		b = b[len(b)-most:]
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	if len(lines) > 6 {
		lines = lines[len(lines)-6:]
	}
	return strings.Join(lines, " | ")
}
