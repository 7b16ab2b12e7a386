package conformance

import (
	"crypto/tls"
	"fmt"
	"net"
	"sync"

	"lameduck/clusters/alb/scripted"
)

// startTarget runs serve for every connection, and closes it afterwards.
func startTarget(t *T, serve func(*scripted.Exchange)) *scripted.Target {
	return startTargetAt(t, "127.0.0.1:0", nil, serve)
}

// startTargetAt listens on an address, with TLS if a configuration is given.
func startTargetAt(t *T, addr string, config *tls.Config, serve func(*scripted.Exchange)) *scripted.Target {
	l, err := net.Listen("tcp", addr)
	t.must(err)
	var wrap func(net.Conn) net.Conn
	if config != nil {
		wrap = func(c net.Conn) net.Conn { return tls.Server(c, config) }
	}
	target := scripted.Serve(l, wrap, serve)
	t.Cleanup(target.Stop)
	return target
}

// named answers every request with 200 and a name.
func named(name string) func(*scripted.Exchange) {
	return func(x *scripted.Exchange) {
		for x.Request() != nil {
			x.Say(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(name), name))
		}
	}
}

// held is a target that answers when release is called.
func held(t *T) (target *scripted.Target, release func()) {
	answer := make(chan struct{})
	release = sync.OnceFunc(func() { close(answer) })
	target = startTarget(t, func(x *scripted.Exchange) {
		for x.Request() != nil {
			hold(t, answer)
			x.Say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	t.Cleanup(release) // before the target's, which waits for its connections
	return target, release
}
