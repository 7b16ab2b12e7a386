//go:build !linux

package elb

import (
	"context"
	"syscall"
)

// bindWithoutPort has an effect on Linux only.
func bindWithoutPort(context.Context, string, string, syscall.RawConn) error { return nil }
