//go:build !linux

package load

import "errors"

// preferThisProcess is for Linux only.
func preferThisProcess() error { return errors.ErrUnsupported }
