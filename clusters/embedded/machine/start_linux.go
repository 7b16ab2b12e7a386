package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"lameduck/clusters/embedded/network"
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
	// What an earlier supervisor wrote is not true of this one.
	if err := os.Remove(statusFile(spec.Dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
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
	if err := network.Inside(netns, cmd.Start); err != nil {
		return fmt.Errorf("start machine %s: %w", spec.Host, err)
	}
	go cmd.Wait() // only so that it is no zombie while lameduck runs
	return nil
}

// StartAgain starts a machine whose supervisor has ended, with its last Spec.
// One with Forwards cannot be: their listeners went with it.
func StartAgain(self, netns, dir string) error {
	spec, err := readSpec(specFile(dir))
	if err != nil {
		return err
	}
	return Start(self, netns, spec, nil)
}
