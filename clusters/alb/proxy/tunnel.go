package proxy

import (
	"cmp"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
)

// switchProtocols passes on a target's 101 and then every byte, both ways,
// until both sides have ended or nothing has moved for the idle timeout. An
// ALB supports WebSocket (AWS user guide, Listeners: WebSockets); what else a
// client offers and a target accepts passes the same way.
func (x *exchange) switchProtocols(c *targetConn, cookies []string) error {
	protocol := ""
	for i := range x.head.fields {
		if f := &x.head.fields[i]; f.kind == kindUpgrade {
			protocol = f.value
		}
	}
	if x.req.upgrade == "" || !x.head.upgrade || protocol == "" {
		return errMalformed
	}
	x.head.keepAlive, x.last = false, true
	x.answered()
	if strings.EqualFold(protocol, "websocket") {
		x.line.Type = x.req.ws
	}
	x.reply = answerHead{status: http.StatusSwitchingProtocols, reason: x.head.reason, fields: x.head.fields, cookies: cookies, upgrade: protocol}
	x.s.writeHead(&x.reply)
	if err := x.s.finish(); err != nil {
		return clientWriteError{err}
	}
	x.s.detach() // a client that has said all may still listen
	return x.tunnel(c)
}

// tunnel copies until both directions have ended. A failure of one ends the
// other: a peer that is half dead helps nobody. The first failure is returned.
func (x *exchange) tunnel(c *targetConn) error {
	client, clientGuard, in := x.s.takeOver()
	var once sync.Once
	var first error
	fail := func(err error) {
		once.Do(func() { first = err })
		c.cancel(errStopped)
		clientGuard.cancel(errStopped)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		received, read, write := copyTunnel(c.net, in, clientGuard, c.guard)
		x.line.Received = received
		if err := cmp.Or(clientCause(read), write); err != nil {
			fail(err)
		}
	}()
	sent, read, write := copyTunnel(client, c.br, c.guard, clientGuard)
	if err := cmp.Or(read, clientCause(write)); err != nil {
		fail(err)
	}
	<-done
	x.line.Sent = sent
	return first
}

// clientCause is a failure of the client's connection in a tunnel.
func clientCause(err error) error {
	var own *causeError
	if err == nil || errors.As(err, &own) {
		return err
	}
	return errClientGone
}

// copyTunnel copies one direction, and says FIN at its end. Each byte starts
// the idle timeout of both connections anew.
func copyTunnel(to net.Conn, from io.Reader, a, b *guard) (n int64, read, write error) {
	buf := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(buf)
	for {
		got, err := from.Read(*buf)
		if got > 0 {
			a.touch()
			b.touch()
			sent, err := to.Write((*buf)[:got])
			n += int64(sent)
			if err != nil {
				return n, nil, err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			if c, ok := to.(interface{ CloseWrite() error }); ok {
				_ = c.CloseWrite() // the other end may have gone, which its reader notices
			}
			return n, nil, nil
		case err != nil:
			return n, err, nil
		}
	}
}
