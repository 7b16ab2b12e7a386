package proxy

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Hangups notices when the other end of a connection closes it. A target's idle
// connection leaves its pool, and our FIN answers theirs, at once: leaving it
// to the next checkout would keep connections in CLOSE_WAIT, here and in the
// conntrack tables that experiments look at. A client that goes away while its
// request is handled ends the exchange. A real load balancer is driven by
// events and does so too.
//
// It is one epoll descriptor for all connections, watched by one goroutine
// through Go's own poller. A goroutine that reads from each such connection
// would do the same at the price of two switches per request.
type Hangups struct {
	epoll *os.File
	raw   syscall.RawConn
	done  chan struct{}

	mu    sync.Mutex
	next  uint64
	conns map[uint64]hangupWatcher
}

// NewHangups starts to watch.
func NewHangups() (*Hangups, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create epoll: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // makes os.File use the poller
		return nil, fmt.Errorf("create epoll: %w", errors.Join(err, unix.Close(fd)))
	}
	h := &Hangups{epoll: os.NewFile(uintptr(fd), "epoll"), done: make(chan struct{}), conns: make(map[uint64]hangupWatcher)}
	if h.raw, err = h.epoll.SyscallConn(); err != nil {
		return nil, fmt.Errorf("create epoll: %w", errors.Join(err, h.epoll.Close()))
	}
	go h.run()
	return h, nil
}

// watch reports a hang-up of the connection to w, once, until forget.
func (h *Hangups) watch(raw syscall.RawConn, w hangupWatcher) (key uint64, err error) {
	h.mu.Lock()
	h.next++
	key = h.next
	h.conns[key] = w
	h.mu.Unlock()
	// The event carries the key, not the descriptor: a descriptor may have
	// been given to another connection by the time the event is handled.
	event := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(uint32(key)), Pad: int32(uint32(key >> 32))}
	var added error
	err = raw.Control(func(fd uintptr) {
		added = unix.EpollCtl(int(h.epollFD()), unix.EPOLL_CTL_ADD, int(fd), &event)
	})
	if err = errors.Join(err, added); err != nil {
		h.forget(key)
		return 0, fmt.Errorf("watch connection: %w", err)
	}
	return key, nil
}

// epollFD is the descriptor; os.File.Fd would make it blocking.
func (h *Hangups) epollFD() (fd uintptr) {
	// After close this leaves 0, which is not an epoll descriptor: the caller
	// gets EINVAL.
	_ = h.raw.Control(func(f uintptr) { fd = f })
	return fd
}

// forget ends watching; closing the socket takes it out of the epoll set.
func (h *Hangups) forget(key uint64) {
	h.mu.Lock()
	delete(h.conns, key)
	h.mu.Unlock()
}

func (h *Hangups) run() {
	defer close(h.done)
	events := make([]unix.EpollEvent, 128)
	for {
		n := 0
		err := h.raw.Read(func(fd uintptr) bool {
			var err error
			n, err = unix.EpollWait(int(fd), events, 0)
			return n > 0 || (err != nil && !errors.Is(err, unix.EINTR))
		})
		if err != nil || n <= 0 {
			return // closed
		}
		for _, e := range events[:n] {
			key := uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32
			h.mu.Lock()
			w := h.conns[key]
			h.mu.Unlock()
			if w != nil {
				w.hungUp()
			}
		}
	}
}

// Close ends watching. Listeners and pools must have been closed before.
func (h *Hangups) Close() error {
	err := h.epoll.Close()
	<-h.done
	return err
}
