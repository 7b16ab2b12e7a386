package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// goCommand prepares a go command in the directory of a component, with nothing of the caller's environment that would
// change what it makes: the key does not cover GOFLAGS, a workspace or another target platform.
func (b *builder) goCommand(ctx context.Context, c component, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = filepath.Join(b.source, c.dir)
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=off",
		"GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH,
		"GOGC=800") // compilers are short-lived and have the memory: collecting less saves a sixth of the time
	cmd.Env = append(cmd.Env, c.env...)
	// A group of its own lets us stop the compilers together with the go command, and keeps a Ctrl-C of the terminal from
	// reaching them before we know of it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// compile runs go build for a component and leaves its executables in the stage.
func (b *builder) compile(ctx context.Context, it item, st *stage, p *progress) error {
	var packages []string
	for _, t := range it.packages {
		packages = append(packages, t.pkg)
	}
	// With several packages go build takes a directory and names each file after its package; with one it takes a name.
	out := st.dir + string(filepath.Separator)
	if len(it.packages) == 1 {
		out += it.packages[0].file
	}
	// Downloads happen in this step, and it tells how many packages there are to compile. Commands do not count: they are
	// stale for want of an executable, even when only linking is left.
	list := append([]string{"list", "-deps", `-f={{if and .Stale (ne .Name "main")}}{{.ImportPath}}{{end}}`}, it.flags...)
	stale, err := b.runGo(ctx, it.component, st, p, append(list, packages...)...)
	if err != nil {
		return err
	}
	p.expect(len(strings.Fields(stale)))
	build := append([]string{"build", "-v", "-o", out}, it.flags...)
	if _, err := b.runGo(ctx, it.component, st, p, append(build, packages...)...); err != nil {
		return err
	}
	for _, t := range it.packages {
		if _, err := os.Stat(filepath.Join(st.dir, t.file)); err != nil {
			return fmt.Errorf("go build of %s left no %s: %w", it.name, t.file, err)
		}
	}
	return nil
}

// runGo runs one go command, feeding what it says to p, and returns its standard output.
func (b *builder) runGo(ctx context.Context, c component, st *stage, p *progress, args ...string) (string, error) {
	cmd := b.goCommand(ctx, c, args...)
	cmd.Env = append(cmd.Env, "GOTMPDIR="+st.work) // so that a killed build leaves nothing outside the cache
	var stdout bytes.Buffer
	lines := &lineWriter{line: p.line}
	cmd.Stdout, cmd.Stderr = &stdout, lines
	err := cmd.Run()
	if ctx.Err() != nil {
		// Compilers that did not end with the go command would write into a directory that is being removed.
		if cmd.Process != nil {
			syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		}
		return "", ctx.Err()
	}
	lines.flush()
	if err != nil {
		return "", &commandError{command: b.describe(c, args), output: p.tail(), err: err}
	}
	return stdout.String(), nil
}

// describe prints a go command so that it can be pasted into a shell.
func (b *builder) describe(c component, args []string) string {
	words := append(append([]string{}, c.env...), "go")
	for _, arg := range args {
		if strings.ContainsAny(arg, " {}$'\"") {
			arg = "'" + arg + "'"
		}
		words = append(words, arg)
	}
	return fmt.Sprintf("cd %s && %s", filepath.Join(b.source, c.dir), strings.Join(words, " "))
}

// A commandError is a failed command with the end of what it said.
type commandError struct {
	command string
	output  []string
	err     error
}

func (e *commandError) Error() string {
	return fmt.Sprintf("%v\n  %s\n%s", e.err, e.command, strings.Join(e.output, "\n"))
}

func (e *commandError) Unwrap() error { return e.err }

// output runs a short command and returns what it printed.
func output(cmd *exec.Cmd) (string, error) {
	text, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return "", &commandError{
				command: strings.Join(cmd.Args, " "),
				output:  strings.Split(strings.TrimSpace(string(exit.Stderr)), "\n"),
				err:     err,
			}
		}
		return "", err
	}
	return string(text), nil
}

// A lineWriter passes on what is written to it a line at a time.
type lineWriter struct {
	line    func(string)
	pending []byte
}

var _ io.Writer = (*lineWriter)(nil)

func (w *lineWriter) Write(text []byte) (int, error) {
	w.pending = append(w.pending, text...)
	for {
		line, rest, found := bytes.Cut(w.pending, []byte("\n"))
		if !found {
			return len(text), nil
		}
		w.line(string(line))
		w.pending = rest
	}
}

// flush passes on a last line that had no end.
func (w *lineWriter) flush() {
	if len(w.pending) > 0 {
		w.line(string(w.pending))
		w.pending = nil
	}
}
