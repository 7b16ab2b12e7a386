package network

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Inside runs f on a thread in the network namespace at path. A child that f
// forks and a socket that f opens belong to it; goroutines that f starts do not.
func Inside(path string, f func() error) error {
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
