package machine

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"sync"
	"time"
)

// accept passes connections on until the listener fails. The sockets to f.To
// are made by this process and so belong to the machine's network namespace,
// while the listener belongs to the one in which it was made.
func accept(ctx context.Context, l net.Listener, f Forward) {
	context.AfterFunc(ctx, func() { l.Close() })
	for {
		in, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			log.Printf("forward %s: %v", f.Name, err)
			// Out of file descriptors, usually: refuse to spin.
			select {
			case <-ctx.Done():
				return
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		go relay(ctx, in, f)
	}
}

func relay(ctx context.Context, in net.Conn, f Forward) {
	defer in.Close()
	out, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp", f.To)
	if err != nil {
		log.Printf("forward %s: %v", f.Name, err)
		return
	}
	defer out.Close()
	var both sync.WaitGroup
	both.Go(func() { copyHalf(out, in) })
	both.Go(func() { copyHalf(in, out) })
	both.Wait()
}

// copyHalf passes on one direction, and its end. On an error both connections
// are closed, so that the other direction ends too.
func copyHalf(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		to.Close()
		from.Close()
		return
	}
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
	}
}
