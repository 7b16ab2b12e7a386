package load

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"lameduck/harness"
)

// workerSlack is how much longer than the attack itself a worker may take: to
// start, and to write what it still has.
const workerSlack = 15 * time.Second

// Process is a harness.Attacker that attacks from a child process. The child
// does not outlive this process, not even after kill -9, by more than the
// timeout of a request: it stops when its stdin ends.
type Process struct {
	// Command prepares a command that runs Worker on its stdin and stdout. The
	// context given to it ends only when the child must be killed.
	Command func(ctx context.Context) *exec.Cmd
}

// Attack implements harness.Attacker. When the worker fails, the requests that
// it told of were given to each, and the error holds the end of its stderr.
func (p Process) Attack(ctx context.Context, spec harness.AttackSpec, each func(harness.Request)) (harness.AttackStats, error) {
	if err := check(spec); err != nil {
		return harness.AttackStats{}, err
	}
	line, err := json.Marshal(spec)
	if err != nil {
		return harness.AttackStats{}, fmt.Errorf("attack: %w", err)
	}
	// The end of ctx ends the sending; it must not kill the worker, which still
	// has requests in flight.
	running, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	w := worker{cmd: p.Command(running)}
	if err := w.start(append(line, '\n')); err != nil {
		return harness.AttackStats{}, fmt.Errorf("start load worker: %w", err)
	}
	ended := make(chan struct{})
	overtime := make(chan error, 1)
	go func() { overtime <- w.watch(ctx, spec, ended) }()
	stats, err := w.read(each)
	w.stdin.Close()
	exit := w.cmd.Wait()
	close(ended)
	// Why it was killed says more than how its output then ended.
	if err := w.explain(cmp.Or(<-overtime, err), exit); err != nil {
		return harness.AttackStats{}, fmt.Errorf("load worker: %w", err)
	}
	return stats, nil
}

// worker is a running child.
type worker struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout io.Reader
	stderr tail
}

func (w *worker) start(spec []byte) (err error) {
	if w.stdin, err = w.cmd.StdinPipe(); err != nil {
		return err
	}
	if w.stdout, err = w.cmd.StdoutPipe(); err != nil {
		return err
	}
	if w.cmd.Stderr == nil {
		w.cmd.Stderr = &w.stderr
	} else {
		w.cmd.Stderr = io.MultiWriter(w.cmd.Stderr, &w.stderr)
	}
	// A grandchild that keeps stderr open must not hold up Wait for good.
	w.cmd.WaitDelay = cmp.Or(w.cmd.WaitDelay, workerSlack)
	if err := w.cmd.Start(); err != nil {
		return err
	}
	// A worker that is gone already can not be told; its output says the rest.
	_, _ = w.stdin.Write(spec)
	return nil
}

// watch ends the sending with ctx, and kills a worker that takes too long.
func (w *worker) watch(ctx context.Context, spec harness.AttackSpec, ended <-chan struct{}) error {
	slack := spec.Load.Timeout.Duration + catchUp + workerSlack
	limit := time.NewTimer(spec.Limit.Duration + slack)
	defer limit.Stop()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		w.stdin.Close()
		limit.Reset(slack)
	case <-limit.C:
		_ = w.cmd.Process.Kill()
		return fmt.Errorf("not done %s after the attack's limit of %s: killed", slack, spec.Limit)
	}
	select {
	case <-ended:
		return nil
	case <-limit.C:
		_ = w.cmd.Process.Kill()
		return fmt.Errorf("not done %s after it was told to stop: killed", slack)
	}
}

// read takes messages until the output ends. A worker that does not keep to
// the protocol is killed: nobody would read what it writes.
func (w *worker) read(each func(harness.Request)) (stats harness.AttackStats, err error) {
	lines := bufio.NewReaderSize(w.stdout, 1<<16)
	requests, streams, done := 0, 0, false
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF && len(line) == 0 {
			break
		}
		if err != nil {
			return stats, fmt.Errorf("output ends in a torn line %.80q: %w", line, err)
		}
		var m message
		err = json.Unmarshal(line, &m)
		switch {
		case err == nil && m.Request != nil && !done:
			if m.Request.Stream {
				streams++
			} else {
				requests++
			}
			each(*m.Request)
		case err == nil && m.Stats != nil && !done:
			stats, done = *m.Stats, true
		case err == nil && m.Error != "":
			return stats, errors.New(m.Error)
		default:
			_ = w.cmd.Process.Kill()
			return stats, fmt.Errorf("output line %.80q: want a request, then stats or an error: killed (%w)",
				line, cmp.Or(err, errors.New("out of place")))
		}
	}
	if !done {
		return stats, fmt.Errorf("ended after %d requests without stats", requests)
	}
	if requests != stats.Sent {
		return stats, fmt.Errorf("told of %d requests but sent %d", requests, stats.Sent)
	}
	if streams != stats.Streams {
		return stats, fmt.Errorf("told of %d streams but had %d", streams, stats.Streams)
	}
	return stats, nil
}

// explain joins what went wrong, how the process ended, and what it said.
func (w *worker) explain(err, exit error) error {
	switch {
	case err == nil && exit == nil:
		return nil
	case err == nil:
		err = exit
	case exit != nil:
		err = fmt.Errorf("%w (%w)", err, exit)
	}
	if said := strings.TrimSpace(string(w.stderr.kept)); said != "" {
		return fmt.Errorf("%w; its stderr ends in: %s", err, said)
	}
	return err
}

// tail keeps the last few kilobytes written to it.
type tail struct{ kept []byte }

func (t *tail) Write(p []byte) (int, error) {
	const keep = 4 << 10
	t.kept = append(t.kept, p...)
	t.kept = t.kept[max(0, len(t.kept)-keep):]
	return len(p), nil
}
