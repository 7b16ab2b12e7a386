package main

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// newBuilder returns a builder of one component, a module that compiles in no time, and what it says.
func newBuilder(t *testing.T) (*builder, *said) {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "src", "hello", "go.mod"), "module hello\n\ngo 1.26\n")
	write(t, filepath.Join(dir, "src", "hello", "main.go"), program("hello"))
	out := &said{}
	return &builder{
		// No flags: the runtime that go test compiled serves here too, which keeps these tests short.
		components: []component{{name: "hello", dir: "hello", packages: []target{{pkg: ".", file: "hi", link: "bin/hi"}}}},
		source:     filepath.Join(dir, "src"),
		store:      store{dir: filepath.Join(dir, "cache", "embedded")},
		out:        filepath.Join(dir, "out"),
		stderr:     out,
	}, out
}

func program(text string) string {
	return "package main\n\nfunc main() { print(\"" + text + "\") }\n"
}

// said collects what a builder prints; a builder that waits prints while the test reads.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(text)
}

// take returns what was printed since the last call.
func (s *said) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.text.Reset()
	return s.text.String()
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func build(t *testing.T, b *builder) {
	t.Helper()
	if err := b.run(t.Context()); err != nil {
		t.Fatalf("run: %v", err)
	}
}

// runs checks that the published binary is the one that prints want.
func runs(t *testing.T, b *builder, want string) {
	t.Helper()
	got, err := exec.Command(filepath.Join(b.out, "bin", "hi")).CombinedOutput()
	if err != nil || string(got) != want {
		t.Errorf("binary printed %q (%v), want %q", got, err, want)
	}
}

// entries returns the names in the store.
func entries(t *testing.T, b *builder) []string {
	t.Helper()
	list, err := os.ReadDir(b.store.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range list {
		names = append(names, entry.Name())
	}
	return names
}

func noTemporaries(t *testing.T, b *builder) {
	t.Helper()
	for _, name := range entries(t, b) {
		if strings.Contains(name, tempMark) {
			t.Errorf("%s was left in the cache", name)
		}
	}
}

func TestBuildsOncePerContent(t *testing.T) {
	b, said := newBuilder(t)
	build(t, b)
	runs(t, b, "hello")
	noTemporaries(t, b)
	if text := said.take(); !strings.Contains(text, "building hello") || !strings.Contains(text, "hello: built in") {
		t.Errorf("a build said only:\n%s", text)
	}

	build(t, b)
	if text := said.take(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "up to date") {
		t.Errorf("a build with nothing to do said:\n%s", text)
	}

	write(t, filepath.Join(b.source, "hello", "main.go"), program("bye"))
	build(t, b)
	runs(t, b, "bye")

	// Both contents are in the cache now, so going back costs nothing.
	said.take()
	write(t, filepath.Join(b.source, "hello", "main.go"), program("hello"))
	build(t, b)
	runs(t, b, "hello")
	if text := said.take(); !strings.Contains(text, "up to date") {
		t.Errorf("going back to old content said:\n%s", text)
	}
}

func TestRebuildsDamagedEntry(t *testing.T) {
	b, said := newBuilder(t)
	build(t, b)
	binary, err := filepath.EvalSymlinks(filepath.Join(b.out, "bin", "hi"))
	if err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(whole)
	flipped[len(flipped)/2] ^= 1
	damages := map[string]func() error{
		"truncated":        func() error { return os.Truncate(binary, 100) },
		"changed":          func() error { return os.WriteFile(binary, flipped, 0o755) },
		"removed":          func() error { return os.Remove(binary) },
		"not executable":   func() error { return os.Chmod(binary, 0o644) },
		"without manifest": func() error { return os.Remove(filepath.Join(filepath.Dir(binary), manifestName)) },
		"torn manifest":    func() error { return os.Truncate(filepath.Join(filepath.Dir(binary), manifestName), 10) },
	}
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			said.take()
			if err := damage(); err != nil {
				t.Fatal(err)
			}
			build(t, b)
			runs(t, b, "hello")
			noTemporaries(t, b)
			if text := said.take(); !strings.Contains(text, "is damaged and will be built again") {
				t.Errorf("no word of the damage:\n%s", text)
			}
		})
	}
}

func TestUntouchedContentNeedsNoRebuild(t *testing.T) {
	b, said := newBuilder(t)
	build(t, b)
	// A cache that was copied has other times.
	binary := filepath.Join(b.out, "bin", "hi")
	if err := os.Chtimes(binary, time.Time{}, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	said.take()
	build(t, b)
	if text := said.take(); !strings.Contains(text, "up to date") {
		t.Errorf("a changed time alone led to:\n%s", text)
	}
}

func TestFailedBuild(t *testing.T) {
	b, _ := newBuilder(t)
	write(t, filepath.Join(b.source, "hello", "main.go"), "package main\n\nfunc main() { undefined() }\n")
	err := b.run(t.Context())
	var failed *commandError
	if !errors.As(err, &failed) {
		t.Fatalf("got error %v, want a commandError", err)
	}
	for _, want := range []string{"go build", "main.go:3", "undefined"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error does not mention %q:\n%v", want, err)
		}
	}
	if names := entries(t, b); len(names) != 1 || names[0] != "lock" {
		t.Errorf("a failed build left %q", names)
	}
}

func TestStoppedBuild(t *testing.T) {
	b, _ := newBuilder(t)
	// Each tool that the go command starts hangs, and says that it was started.
	dir := t.TempDir()
	script := filepath.Join(dir, "hang")
	started := filepath.Join(dir, "started")
	write(t, script, "#!/bin/sh\n: >"+started+"\nsleep 600\n")
	if err := os.Chmod(script, 0o755); err != nil {
		t.Fatal(err)
	}
	b.components[0].flags = []string{"-toolexec=" + script}

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- b.run(ctx) }()
	for {
		if _, err := os.Stat(started); err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatal("the go command did not start a tool")
		}
		time.Sleep(10 * time.Millisecond)
	}
	stopped := time.Now()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want context.Canceled", err)
	}
	if took := time.Since(stopped); took > 4*time.Second {
		t.Errorf("stopping took %s", took)
	}
	if names := entries(t, b); len(names) != 1 || names[0] != "lock" {
		t.Errorf("a stopped build left %q", names)
	}
}

func TestSecondBuildWaits(t *testing.T) {
	b, said := newBuilder(t)
	unlock, err := b.store.lock(t.Context(), func(string) { t.Error("waited for a free lock") })
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()

	done := make(chan error, 1)
	go func() { done <- b.run(t.Context()) }()
	text := ""
	for deadline := time.Now().Add(20 * time.Second); !strings.Contains(text, "waiting"); text += said.take() {
		if time.Now().After(deadline) {
			t.Fatalf("second build does not say that it waits:\n%s", text)
		}
		time.Sleep(10 * time.Millisecond)
	}
	select {
	case err := <-done:
		t.Fatalf("second build did not wait (%v)", err)
	default:
	}
	unlock()
	if err := <-done; err != nil {
		t.Fatalf("second build: %v", err)
	}
	runs(t, b, "hello")
}

func TestWaitingEndsWithContext(t *testing.T) {
	b, _ := newBuilder(t)
	unlock, err := b.store.lock(t.Context(), func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	_, err = b.store.lock(ctx, func(string) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want context.Canceled", err)
	}
}

func TestSweepRemovesAbandonedBuildsOnly(t *testing.T) {
	b, _ := newBuilder(t)
	write(t, filepath.Join(b.store.dir, "hello-0000"+tempMark+"1", "hi"), "half")
	write(t, filepath.Join(b.store.dir, "other-1111", "keep"), "whole")
	build(t, b)
	noTemporaries(t, b)
	if _, err := os.Stat(filepath.Join(b.store.dir, "other-1111", "keep")); err != nil {
		t.Errorf("another entry is gone: %v", err)
	}
}

// A lock that outlived its holder would stop every later build; the kernel drops it with the last file that holds it.
func TestLockIsNotInherited(t *testing.T) {
	b, _ := newBuilder(t)
	unlock, err := b.store.lock(t.Context(), func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command("sleep", "600")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer child.Wait()
	defer child.Process.Kill()
	unlock()
	again, err := b.store.lock(t.Context(), func(string) { t.Fatal("a child process holds the lock") })
	if err != nil {
		t.Fatal(err)
	}
	again()
}
