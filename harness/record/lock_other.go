//go:build !linux && !darwin

package record

import "os"

// lockDir locks nothing here.
func lockDir(dir string) (*os.File, error) { return os.Open(dir) }
