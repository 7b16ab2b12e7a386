//go:build unix && !linux

package proxy

import "syscall"

// Hangups watches nothing on systems without epoll: there a connection that
// its target has closed leaves the pool at the next checkout (see
// guard.quiet) or when its idle timeout ends, and a client that goes away is
// noticed when its answer is sent.
type Hangups struct{}

// NewHangups makes one.
func NewHangups() (*Hangups, error) { return &Hangups{}, nil }

// Close does nothing.
func (*Hangups) Close() error { return nil }

func (*Hangups) watch(syscall.RawConn, hangupWatcher) (uint64, error) { return 0, nil }
func (*Hangups) forget(uint64)                                        {}
