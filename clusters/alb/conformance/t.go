package conformance

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

// T is what a fact's test gets: the part of testing.T that is needed, for a
// program.
type T struct {
	ctx context.Context

	mu       sync.Mutex
	failures []string
	notes    []string
	cleanups []func()
}

// Errorf says that the fact does not hold. The test goes on.
func (t *T) Errorf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failures = append(t.failures, fmt.Sprintf(format, args...))
}

// Fatalf is Errorf and the end of the test. Only the test's own goroutine may
// call it.
func (t *T) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	runtime.Goexit()
}

// Logf notes what is shown if the fact does not hold.
func (t *T) Logf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.notes = append(t.notes, fmt.Sprintf(format, args...))
}

// Cleanup has f called when the test has ended, the last one first.
func (t *T) Cleanup(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanups = append(t.cleanups, f)
}

// Context ends when the test's time is over, or the suite is stopped.
func (t *T) Context() context.Context { return t.ctx }

// TempDir makes a directory that is removed afterwards.
func (t *T) TempDir() string {
	dir, err := os.MkdirTemp("", "lameduck-conformance-")
	t.must(err)
	t.Cleanup(func() { t.check(os.RemoveAll(dir)) })
	return dir
}

// must ends the test if there is an error.
func (t *T) must(err error) {
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// check is must for what does not stop the test.
func (t *T) check(err error) {
	if err != nil {
		t.Errorf("%v", err)
	}
}

// eventually polls until cond holds.
func (t *T) eventually(what string, cond func() bool) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-t.ctx.Done():
			t.Fatalf("no %s: %v", what, context.Cause(t.ctx))
		case <-tick.C:
		}
	}
}

// wait waits until c is closed or has a value, and returns it.
func wait[V any](t *T, what string, c <-chan V) V {
	select {
	case v := <-c:
		return v
	case <-t.ctx.Done():
		t.Fatalf("no %s: %v", what, context.Cause(t.ctx))
		panic("unreachable")
	}
}

// hold waits until c is closed, in a target that must not outlive the test.
func hold(t *T, c <-chan struct{}) {
	select {
	case <-c:
	case <-t.ctx.Done():
	}
}

// Result is the outcome of one fact's test.
type Result struct {
	Fact Fact
	// Failures are empty if the fact holds.
	Failures []string
	Notes    []string
	Took     time.Duration
}

// limitGrace is how long a test may take to notice that its time is over.
const limitGrace = 5 * time.Second

// check runs a fact's test for at most limit. A test that does not end by then
// is left behind and fails.
func check(ctx context.Context, f Fact, limit time.Duration) Result {
	start := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the time limit of %s is over", limit))
	defer cancel()
	t := &T{ctx: ctx}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		t.run(func() { f.Test(t) })
		t.clean()
	}()
	abandoned := time.NewTimer(limit + limitGrace)
	defer abandoned.Stop()
	select {
	case <-ended:
	case <-abandoned.C:
		t.Errorf("the test did not end within %s", limit+limitGrace)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return Result{Fact: f, Failures: t.failures, Notes: t.notes, Took: time.Since(start)}
}

// run calls f in a goroutine of its own, which Fatalf may end, and reports its
// panic.
func (t *T) run(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				t.Errorf("panic: %v\n%s", p, strings.TrimSpace(string(debug.Stack())))
			}
		}()
		f()
	}()
	<-done
}

func (t *T) clean() {
	for {
		t.mu.Lock()
		n := len(t.cleanups)
		if n == 0 {
			t.mu.Unlock()
			return
		}
		f := t.cleanups[n-1]
		t.cleanups = t.cleanups[:n-1]
		t.mu.Unlock()
		t.run(f)
	}
}
