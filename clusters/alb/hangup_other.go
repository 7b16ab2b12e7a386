//go:build unix && !linux

package alb

// hangups watches nothing on systems without epoll: there a connection that
// its target has closed leaves the pool at the next checkout (see
// targetConn.quiet) or when its idle timeout ends.
type hangups struct{}

func newHangups() (*hangups, error) { return &hangups{}, nil }

func (*hangups) watch(*targetConn) error { return nil }
func (*hangups) forget(uint64)           {}
func (*hangups) close() error            { return nil }
