package load

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"
)

// alarm waits more exactly than a time.Timer. Go's runtime sleeps in epoll_wait,
// whose timeout is in whole milliseconds, so that at 1000 requests per second
// half of them would go out half a millisecond late. A timerfd
// (timerfd_create(2)) is a file that becomes readable when it is time, within
// some 50 microseconds.
type alarm struct {
	file   *os.File
	detach func() bool // from the context
}

// Constants of timerfd_create(2) that package syscall lacks.
const (
	clockMonotonic = 1
	tfdNonblock    = syscall.O_NONBLOCK
	tfdCloexec     = syscall.O_CLOEXEC
)

// itimerspec is struct itimerspec of timerfd_settime(2).
type itimerspec struct{ interval, value syscall.Timespec }

// newAlarm makes an alarm whose waits end with ctx at the latest.
func newAlarm(ctx context.Context) (*alarm, error) {
	fd, _, errno := syscall.RawSyscall(syscall.SYS_TIMERFD_CREATE, clockMonotonic, tfdNonblock|tfdCloexec, 0)
	if errno != 0 {
		return nil, fmt.Errorf("timerfd_create: %w", errno)
	}
	// As the file does not block, a read waits in the runtime's poller, which
	// costs no thread and can be interrupted.
	a := &alarm{file: os.NewFile(fd, "timerfd")}
	a.detach = context.AfterFunc(ctx, func() { _ = a.file.SetReadDeadline(time.Unix(1, 0)) })
	return a, nil
}

// wait returns after d, or when the context ends.
func (a *alarm) wait(d time.Duration) error {
	if d <= 0 {
		return nil
	}
	raw, err := a.file.SyscallConn()
	if err != nil {
		return err
	}
	spec := itimerspec{value: syscall.NsecToTimespec(d.Nanoseconds())}
	var errno syscall.Errno
	err = raw.Control(func(fd uintptr) {
		_, _, errno = syscall.RawSyscall6(syscall.SYS_TIMERFD_SETTIME, fd, 0, uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
	})
	if err != nil {
		return err
	}
	if errno != 0 {
		return fmt.Errorf("timerfd_settime: %w", errno)
	}
	var expirations [8]byte
	if _, err := a.file.Read(expirations[:]); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return nil
}

func (a *alarm) close() {
	a.detach()
	a.file.Close()
}
