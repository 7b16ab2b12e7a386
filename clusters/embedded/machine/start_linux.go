package machine

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Start starts the supervisor of a machine as "self embedded-host --spec FILE"
// in the network namespace at netns. The listeners, one for each of
// spec.Forwards, are inherited by it. It returns once the supervisor is forked;
// ReadStatus tells how far it has come.
func Start(self, netns string, spec Spec, listeners []*os.File) error {
	if len(listeners) != len(spec.Forwards) {
		return fmt.Errorf("start machine %s: %d listeners for %d forwards", spec.Host, len(listeners), len(spec.Forwards))
	}
	if err := os.MkdirAll(filepath.Join(spec.Dir, "log"), 0o700); err != nil {
		return err
	}
	if err := writeJSON(specFile(spec.Dir), spec); err != nil {
		return err
	}
	log, err := os.OpenFile(LogFile(spec.Dir, "supervisor"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(self, "embedded-host", "--spec", specFile(spec.Dir))
	cmd.Dir = "/"
	cmd.Env = append([]string{MarkerEnv + "=" + spec.Cluster}, spec.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = listeners
	cmd.SysProcAttr = &syscall.SysProcAttr{
		// A session of its own keeps a terminal's Ctrl-C away.
		Setsid:     true,
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS,
	}
	if err := inNamespace(netns, cmd.Start); err != nil {
		return fmt.Errorf("start machine %s: %w", spec.Host, err)
	}
	go cmd.Wait() // only so that it is no zombie while lameduck runs
	return nil
}

// inNamespace runs f on a thread in a network namespace. A child that f forks
// inherits it; goroutines that f starts do not.
func inNamespace(path string, f func() error) error {
	target, err := os.Open(path)
	if err != nil {
		return err
	}
	defer target.Close()
	runtime.LockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer own.Close()
	if err := unix.Setns(int(target.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter %s: %w", path, err)
	}
	result := f()
	if err := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); err != nil {
		// The thread stays locked and so ends with its goroutine.
		return fmt.Errorf("leave %s: %w", path, err)
	}
	runtime.UnlockOSThread()
	return result
}
