package elb

import (
	"context"
	"syscall"

	"golang.org/x/sys/unix"
)

// bindWithoutPort leaves the choice of a local port to connect, which knows the
// other end: a port may then be used for any number of targets at once. Without
// it all connections of a node share one range of ports.
func bindWithoutPort(_ context.Context, _, _ string, c syscall.RawConn) error {
	var err error
	if e := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	}); e != nil {
		return e
	}
	return err
}
