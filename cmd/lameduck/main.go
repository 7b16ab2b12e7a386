// Command lameduck finds out what clients of a Kubernetes service get while
// its pods go away, why, and which setting stops it.
//
// Results go to stdout, progress and errors to stderr. Exit codes: 0 all is as
// expected, 1 an expectation failed, 2 wrong usage, 3 no valid result, 4 the
// run could not be done, 130 interrupted. The first Ctrl-C tears down and keeps
// what was recorded, the second exits at once.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"lameduck/clusters"
)

// version is set by the Makefile (-ldflags -X).
var version = "devel"

const (
	exitOK          = 0
	exitUnexpected  = 1
	exitUsage       = 2
	exitNoResult    = 3
	exitError       = 4
	exitInterrupted = 130 // 128 + SIGINT, as shells have it
)

// exitCode is an error that asks for an exit code. Without an error in it
// nothing is printed: the result already said it.
type exitCode struct {
	code int
	err  error
}

func (e exitCode) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e exitCode) Unwrap() error { return e.err }

// usageError wraps what the user can mend on the command line.
func usageError(err error) error { return exitCode{exitUsage, err} }

func main() {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as nohup makes it
		signal.Notify(signals, syscall.SIGHUP)
	}
	go func() {
		s := <-signals
		fmt.Fprintf(os.Stderr, "\nlameduck: %s: tearing down and keeping what was recorded; once more to exit at once (then: lameduck cluster clean --name NAME)\n", s)
		cancel(errInterrupted)
		<-signals
		os.Exit(exitInterrupted)
	}()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

var errInterrupted = errors.New("interrupted")

// run is main without the process: it returns the exit code.
func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	root := rootCommand()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	code := exitError
	var asked exitCode
	if errors.As(err, &asked) {
		code = asked.code
	} else if wrong := (clusters.OptionsError{}); errors.As(err, &wrong) || errors.Is(err, clusters.ErrNotFound) {
		code = exitUsage
	}
	if context.Cause(ctx) == errInterrupted {
		code = exitInterrupted
	}
	if message := strings.TrimSpace(err.Error()); message != "" {
		fmt.Fprintf(errOut, "lameduck: %s\n", message)
	}
	return code
}
