//go:build unix && !linux

package proxy

// hangups watches nothing on systems without epoll: there a connection that
// its target has closed leaves the pool at the next checkout (see
// targetConn.quiet) or when its idle timeout ends.
type Hangups struct{}

func NewHangups() (*Hangups, error) { return &Hangups{}, nil }

func (*Hangups) watch(*targetConn) error { return nil }
func (*Hangups) forget(uint64)           {}
func (*Hangups) Close() error            { return nil }
