//go:build linux || darwin

package record

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lockDir keeps other processes from writing a run, until the file is closed or
// this process ends, however it ends (flock(2)).
func lockDir(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("lock run: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("run %s is being written by another process: wait for its end", dir)
		}
		return nil, fmt.Errorf("lock run %s: %w", dir, err)
	}
	return f, nil
}
