package load

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"lameduck/harness"
)

// Worker is the child's side of Process: it reads one harness.AttackSpec from
// in, attacks, and writes requests and stats to out. The end of in or of ctx
// ends the sending; requests in flight are waited for. It goes on reading in
// until that ends. An error is returned and written to out as well. It takes
// the whole process for itself: see tuneProcess.
func Worker(ctx context.Context, in io.Reader, out io.Writer) error {
	w := newMessageWriter(out)
	stats, err := work(ctx, bufio.NewReader(in), w)
	last := message{Stats: &stats}
	if err != nil {
		last = message{Error: err.Error()}
	}
	_ = w.write(last) // close returns the error
	return errors.Join(err, w.close())
}

func work(ctx context.Context, in *bufio.Reader, w *messageWriter) (harness.AttackStats, error) {
	line, err := in.ReadBytes('\n')
	if err != nil {
		return harness.AttackStats{}, fmt.Errorf("read the attack from stdin, one line of JSON: %w", err)
	}
	var spec harness.AttackSpec
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields() // both sides are the same program
	if err := dec.Decode(&spec); err != nil {
		return harness.AttackStats{}, fmt.Errorf("read the attack from stdin: %w", err)
	}
	tuneProcess(spec.Load.Rate + spec.Load.ControlRate)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, in)
		stop()
	}()
	return Local{}.Attack(ctx, spec, func(r harness.Request) {
		if w.write(message{Request: &r}) != nil {
			stop() // nobody listens any more
		}
	})
}

// tuneProcess makes this process send on time and use little of the CPU that it
// shares with what it measures. Figures are from BenchmarkAttack, at 1000
// requests per second on 2 cores that others kept busy.
func tuneProcess(rate int) {
	_ = preferThisProcess() // where it is allowed
	// On one core, waking a goroutine wakes no thread: 39 % of a core instead of
	// 56 % with pooled connections, 62 % instead of 92 % with new ones.
	runtime.GOMAXPROCS(min(runtime.NumCPU(), 1+rate/1500))
	// Little is ever alive, so that by default there would be several
	// collections a second, each over the stacks of all workers: an eighth of
	// the rest. The limit is for what stays: each lateness, 8 bytes.
	debug.SetGCPercent(2000)
	debug.SetMemoryLimit(256 << 20)
}
