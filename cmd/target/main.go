// Command target is the application under test: a small HTTP server whose
// response time, start-up time, keep-alive and behaviour on SIGTERM are set by
// flags, so that they can be what is varied in an experiment. It needs nothing
// in its container but itself.
//
//	target [flags]        serve until stopped
//	target sleep 10s      wait; what a preStop exec hook runs
//
// Every answer names the pod and the version (harness.PodHeader and
// VersionHeader), and its body's first line is the request's own id
// (harness.RequestIDHeader), so that a client notices an answer that is not
// its own. The paths with a meaning are /healthz, /lameduck/config,
// /lameduck/burn, /lameduck/prestop and /lameduck/stream; every other path is
// the application. stdout is a log of JSON lines, see log.go.
//
// Exit codes: 0 stopped as asked, 1 could not serve, or connections were left
// when --drain-timeout was over, 2 wrong usage.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
)

func main() {
	// Buffered, so that no signal is lost while an earlier one is handled.
	sigterm := make(chan os.Signal, 16)
	if !isSleep(os.Args[1:]) { // which SIGTERM just ends
		signal.Notify(sigterm, syscall.SIGTERM)
	}
	os.Exit(run(os.Args[1:], podName(), sigterm, os.Stdout, os.Stderr))
}

// podName is what the downward API put into POD_NAME. A pod's host name is its
// name too, and outside of one it is as good as any.
func podName() string {
	if name := os.Getenv("POD_NAME"); name != "" {
		return name
	}
	if name, err := os.Hostname(); err == nil {
		return name
	}
	return "unknown"
}

func isSleep(args []string) bool { return len(args) > 0 && args[0] == "sleep" }

// run is main without the process: it returns the exit code.
func run(args []string, pod string, sigterm <-chan os.Signal, out, errOut io.Writer) int {
	usage := func(err error) int {
		fmt.Fprintf(errOut, "target: %v; see target --help\n", err)
		return exitUsage
	}
	if isSleep(args) {
		d, err := parseSleep(args[1:])
		if err != nil {
			return usage(err)
		}
		time.Sleep(d)
		return exitOK
	}
	s, err := parseSettings(args, out)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		return usage(err)
	}
	s.Pod = pod
	if os.Getenv("GOMAXPROCS") == "" {
		// Mostly idle: a second processor would only be woken to find nothing to
		// do, which several pods on one machine pay for with its CPU time.
		runtime.GOMAXPROCS(1)
	}
	code, err := serve(s, sigterm, &logger{out: out})
	if err != nil {
		fmt.Fprintf(errOut, "target: %v\n", err)
	}
	return code
}

func parseSleep(args []string) (time.Duration, error) {
	if len(args) != 1 {
		return 0, fmt.Errorf("sleep: want one duration, like: target sleep 10s")
	}
	d, err := time.ParseDuration(args[0])
	if err != nil || d < 0 {
		return 0, fmt.Errorf("sleep %q: want a duration, like: target sleep 10s", args[0])
	}
	return d, nil
}

// serve runs the application until it is stopped, and returns the exit code.
func serve(s settings, sigterm <-chan os.Signal, log *logger) (int, error) {
	log.event(event{Event: "starting"})
	a := newApp(s, log)
	ready := time.NewTimer(s.StartDelay.Duration)
	defer ready.Stop()
	for waiting := true; waiting; {
		select {
		case <-ready.C:
			waiting = false
		case <-sigterm:
			a.sigterm(s.onSIGTERM())
			if s.stops() {
				// Nothing is served yet, so there is nothing to wait for or to drain.
				return log.exit(exitOK, "before it listened"), nil
			}
		}
	}

	listener, err := net.Listen("tcp", s.listen)
	if err != nil {
		return exitError, fmt.Errorf("--listen: %w", err)
	}
	failed := a.start(listener)
	log.event(event{Event: "listening", Detail: listener.Addr().String()})

	for {
		select {
		case err := <-failed:
			return exitError, err
		case <-sigterm:
			a.sigterm(s.onSIGTERM())
			if s.stops() {
				return a.stop(sigterm, listener, failed)
			}
		}
	}
}
