package proxy

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"lameduck/clusters/alb/accesslog"
)

// exchange is one request, from receipt to log line.
type exchange struct {
	l   *Listener
	s   stream
	req *request

	line  accesslog.Line
	relay relay
	head  responseHead
	reply answerHead
	trace []byte
	// cut says that the client's connection, or stream, must be closed without
	// finishing the answer, so that the client notices.
	cut bool
	// last says that the answer is the last one on the client's connection.
	last bool
}

// run serves the request, whose head had been received at now. A refused one
// has the status that it gets.
func (x *exchange) run(now time.Time, headBytes int, refused int) {
	r := x.req
	x.cut = false
	x.line = accesslog.Line{
		Time: now, Node: r.node, Type: r.http, Client: r.addr, Method: r.method, Path: r.target,
		Rule: -1, Phase: accesslog.PhaseRoute, Micros: accesslog.Micros{Connect: -1, Sent: -1, FirstByte: -1},
		Proto: r.proto, Scheme: r.scheme, Host: r.host, Port: r.port,
		TLSCipher: r.cipher, TLSProtocol: r.tlsVersion, ServerName: r.serverName,
	}
	if x.line.Host == "" {
		x.line.Host = r.local
	}
	trace := ""
	for i := range r.fields {
		switch f := &r.fields[i]; f.kind {
		case kindRequestID:
			x.line.ID = f.value
		case kindUserAgent:
			x.line.UserAgent = f.value
		case kindTraceID:
			trace = f.value
		}
	}
	if refused != 0 {
		x.refuse(refused)
	} else {
		x.trace = appendTraceID(x.trace[:0], trace, now)
		x.line.TraceID = string(x.trace)
		x.route()
	}
	x.line.ReceivedTotal = int64(headBytes) + x.line.Received
	x.line.SentTotal = x.s.sentTotal()
	x.line.End = time.Now()
	x.line.Micros.Total = x.line.End.Sub(now).Microseconds()
	if x.l.o.Sink != nil {
		x.l.o.Sink.Add(&x.line)
	}
}

// route finds the target and hands the request over, or answers itself.
func (x *exchange) route() {
	route := (*x.l.router.Load()).Route(x.req)
	x.line.Rule, x.line.Action, x.line.Group = route.Priority, route.Action, route.Group
	if route.Target == nil {
		x.answer(&route.Answer)
		return
	}
	pool := route.Target.Pool()
	x.line.Target, x.line.TargetState = pool.Addr(), route.State
	defer func() { route.Target.Done(x.line.TargetStatus) }()
	x.forward(pool, cookies{route.Cookies, route.CookiesWith})
}

// forward gives the request to one target on one connection. Nothing here
// tries a second time: an ALB does not (alb.md, section 1).
func (x *exchange) forward(pool *Pool, add cookies) {
	x.line.Phase = accesslog.PhaseConnect
	x.line.Micros.Connect = 0
	c, err := pool.take()
	x.line.Reused = c != nil
	if c == nil && err == nil {
		start := time.Now()
		c, err = x.open(pool)
		x.line.Micros.Connect = time.Since(start).Microseconds()
	}
	if err != nil {
		x.fail(err)
		return
	}
	x.line.Local = c.local

	x.s.attach(c)
	reusable, err := x.converse(c, add)
	// If the client has gone the connection has been cancelled, or is about to
	// be, and must not go back.
	if x.s.detach() && reusable && err == nil {
		pool.put(c)
	} else {
		pool.drop(c)
	}
	// After that, so that who has an answer finds its connection in the pool.
	if err == nil {
		if err = x.s.finish(); err != nil {
			err = clientWriteError{err}
		}
	}
	if err != nil {
		x.fail(err)
		return
	}
	x.line.Phase = accesslog.PhaseDone
}

// cookies are values of Set-Cookie that an answer gets.
type cookies struct {
	values []string
	with   string // only with a cookie of this name; "": always
}

// to are those that the answer with some header fields gets.
func (c cookies) to(fields []field) []string {
	if c.with == "" {
		return c.values
	}
	for i := range fields {
		if strings.EqualFold(fields[i].name, "Set-Cookie") && strings.HasPrefix(fields[i].value, c.with+"=") {
			return c.values
		}
	}
	return nil
}

// dialing is a connection attempt that a client which goes away ends.
type dialing struct{ end context.CancelCauseFunc }

func (d dialing) cancel(cause *causeError) { d.end(cause) }

func (x *exchange) open(pool *Pool) (*targetConn, error) {
	ctx, end := context.WithCancelCause(context.Background())
	defer end(nil)
	x.s.attach(dialing{end})
	defer x.s.detach()
	return pool.open(ctx)
}

// converse sends the request and passes the answer on. It says whether the
// connection can be used again.
func (x *exchange) converse(c *targetConn, add cookies) (reusable bool, err error) {
	up, err := x.send(c)
	if err != nil {
		return false, err
	}
	err = x.receive(c, up, add)
	sent := true
	if up != nil {
		if errors.Is(err, errIdle) && up.reading.Load() {
			err = errClientIdle // the target had nothing to answer yet
		}
		done := up.isDone() || err == nil && up.isDoneSoon()
		if err != nil || !done {
			// Failed, or answered before all was sent: the rest is not wanted.
			c.pool.drop(c)
		}
		sent = up.stop()
		x.last = x.last || !done || !sent
		x.line.Received = up.bytes.Load()
	}
	x.line.Sent += x.relay.sent
	return sent && x.head.keepAlive && !x.req.ambiguous && c.br.Buffered() == 0, err
}

// send sends the head, and the body with it if it has come. Otherwise it
// starts the upload of the body beside the exchange: only then there is a
// second goroutine.
func (x *exchange) send(c *targetConn) (*upload, error) {
	x.line.Phase = accesslog.PhaseSend
	c.out = x.req.appendHead(c.out[:0], x.line.TraceID)
	upload := false
	if x.req.length != 0 {
		if body := x.s.arrived(); body != nil {
			c.out = append(c.out, body...)
			x.line.Received = int64(len(body))
		} else {
			upload = true
		}
	}
	if _, err := c.Write(c.out); err != nil {
		return nil, err
	}
	x.line.Micros.Sent = time.Since(x.line.Time).Microseconds()
	if !upload {
		return nil, nil
	}
	if x.req.waits {
		if err := x.s.sendContinue(); err != nil {
			return nil, clientWriteError{err}
		}
	}
	return startUpload(x.s, x.req.length < 0, c), nil
}

// receive reads the target's answer and passes it on, except for what finish
// sends.
func (x *exchange) receive(c *targetConn, up *upload, add cookies) error {
	x.line.Phase = accesslog.PhaseWait
	x.relay = relay{to: x.s}
	for interim := 0; ; interim++ {
		if err := x.head.read(c.br, x.req.method); err != nil {
			return err
		}
		if x.head.status >= 200 {
			break
		}
		if x.head.status == http.StatusSwitchingProtocols {
			return x.switchProtocols(c, add.to(x.head.fields))
		}
		// Other 1xx: the client was not asked to wait for it.
		if interim == maxInterimAnswers {
			return errMalformed
		}
	}
	x.answered()
	// Else the rest of the body stands before the next request.
	x.last = x.last || up != nil && !up.isDone() || x.l.closing.Load()
	x.reply = answerHead{
		status: x.head.status, reason: x.head.reason, fields: x.head.fields, cookies: add.to(x.head.fields),
		length: x.head.length, hasBody: x.head.framing != framedNone, last: x.last,
	}
	x.s.writeHead(&x.reply)
	return x.relay.run(c.br, &x.head)
}

// answered notes that the target's head has come.
func (x *exchange) answered() {
	x.line.Micros.FirstByte = time.Since(x.line.Time).Microseconds()
	x.line.TargetStatus, x.line.Status = x.head.status, x.head.status
	x.line.Phase = accesslog.PhaseBody
}

// fail answers for a target that did not, or cuts an answer that has begun.
func (x *exchange) fail(err error) {
	status, name := classify(err)
	if status == 0 { // stopped: clients are cut, not answered
		x.line.Error = name
		x.cut = true
		if x.s.sentTotal() == 0 {
			x.line.Status = 0
		}
		return
	}
	if x.line.Phase != accesslog.PhaseBody {
		x.page(status, name)
		return
	}
	x.line.Error = name
	x.cut = true
	if status == statusClientClosed || x.head.status == http.StatusSwitchingProtocols {
		return
	}
	x.line.Status = status
	// The head has been decided on; a client that got nothing at all would
	// take the answer for missing instead of cut. It may have gone.
	_ = x.s.flush()
}
