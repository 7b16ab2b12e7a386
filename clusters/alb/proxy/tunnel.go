package proxy

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"

	"lameduck/clusters/alb/accesslog"
)

// tunnel passes on a request for another protocol (WebSocket). If the target
// agrees, both connections carry that protocol until one side closes or neither
// has sent a byte for the idle timeout; else its answer is passed on as any
// other.
func (x *exchange) tunnel(c *targetConn) error {
	h := x.w.Header()
	if err := x.readHead(c, h); err != nil {
		return err
	}
	x.headCame()
	if x.head.status != http.StatusSwitchingProtocols {
		x.passHead(h)
		x.relay = relay{w: x.w}
		err := x.relay.run(c.br, &x.head)
		x.line.Sent = x.relay.sent
		return err
	}
	x.line.Type = map[string]string{"http": "ws", "https": "wss"}[x.l.scheme]
	clear(h)
	client, buffered, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		return clientWriteError{err}
	}
	defer client.Close() // whoever closed first; nobody is left to be told
	head := "HTTP/1.1 101 Switching Protocols\r\n" + x.head.raw + "\r\n"
	if _, err := io.WriteString(client, head); err != nil {
		return clientWriteError{err}
	}
	x.line.SentTotal = int64(len(head))

	up := make(chan int64, 1)
	go func() {
		n, _ := io.Copy(writerOnly{c}, buffered.Reader) // its end, however it came, ends the tunnel
		c.cancel(errTunnelEnd)
		up <- n
	}()
	down, err := io.Copy(writerOnly{client}, readerOnly{c.br})
	client.Close()
	x.line.Received, x.line.Sent = <-up, down
	if errors.Is(err, net.ErrClosed) || errors.Is(err, errTunnelEnd) || errors.Is(err, errIdle) {
		err = nil // the ordinary ends
	}
	if err == nil {
		x.line.Phase = accesslog.PhaseDone
	}
	return err
}

// errTunnelEnd cancels a target's connection when the client's end has come.
var errTunnelEnd = &causeError{0, accesslog.ErrorClientClosed}

// writerOnly and readerOnly keep io.Copy from shortcuts around Read and Write,
// which know the idle timeout.
type writerOnly struct{ io.Writer }

type readerOnly struct{ r *bufio.Reader }

func (r readerOnly) Read(p []byte) (int, error) { return r.r.Read(p) }
