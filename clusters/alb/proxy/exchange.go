package proxy

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"lameduck/clusters/alb/accesslog"
	"lameduck/harness"
)

// exchange is one request, from receipt to log line.
type exchange struct {
	l      *Listener
	client *clientConn
	w      responseWriter
	r      *http.Request
	line   accesslog.Line
	relay  relay
	head   responseHead
	// cookies are added to the target's answer.
	cookies []string
	// upgrade says that the client asks for another protocol (WebSocket).
	upgrade bool
	// cut says that the client's connection must be closed without finishing
	// the answer, so that the client notices.
	cut bool
	// closing says that the answer is the last one on the client's connection.
	closing bool
}

var exchanges = sync.Pool{New: func() any { return new(exchange) }}

func (x *exchange) run(now time.Time) {
	x.begin(now)
	limits := x.l.limits.Load()
	x.closing = now.Sub(x.client.since) >= limits.ClientKeepAlive
	x.route(limits)
	x.line.End = time.Now()
	x.line.Micros.Total = x.line.End.Sub(now).Microseconds()
	x.line.ReceivedTotal += x.line.Received
	x.line.SentTotal += x.line.Sent
	x.l.sink.Add(&x.line)
}

// begin fills in what is known of a request before anything is done with it.
func (x *exchange) begin(now time.Time) {
	r := x.r
	x.line = accesslog.Line{
		Time: now, Client: r.RemoteAddr, Node: x.l.node, Type: x.l.scheme, Scheme: x.l.scheme, Port: x.l.port,
		Method: r.Method, Path: r.RequestURI, Proto: r.Proto, Host: r.Host,
		Rule: -1, Phase: accesslog.PhaseRoute,
		Micros: accesslog.Micros{Connect: -1, Sent: -1, FirstByte: -1},
	}
	if x.line.Host == "" {
		x.line.Host = x.client.local
	}
	if r.ProtoMajor == 2 {
		x.line.Type = "h2"
	}
	if x.client.tls != nil {
		x.line.TLSCipher, x.line.TLSProtocol, x.line.ServerName = x.client.tls.cipher, x.client.tls.protocol, x.client.tls.serverName
	}
	if id := r.Header[harness.RequestIDHeader]; len(id) > 0 {
		x.line.ID = id[0]
	}
	if agent := r.Header["User-Agent"]; len(agent) > 0 {
		x.line.UserAgent = agent[0]
	}
	x.upgrade = r.ProtoMajor == 1 && r.Header["Upgrade"] != nil && listedIn(r.Header["Connection"], "Upgrade")
}

var closeHeader = []string{"close"}

// route finds the target and hands the request over, or answers itself.
func (x *exchange) route(limits *Limits) {
	status, size := refusal(x.r)
	x.line.ReceivedTotal = size
	if status != 0 {
		x.closing = x.closing || status == statusWrongProtocol
		x.answer(Answer{Status: status, Error: accesslog.ErrorRefused})
		return
	}
	to := (*x.l.router.Load()).Route(x)
	x.line.Rule, x.line.Action, x.line.Group, x.line.TargetState = to.Priority, to.Action, to.Group, to.State
	x.cookies = to.Cookies
	if to.Target == nil {
		x.answer(to.Answer)
		return
	}
	x.line.Target = to.Target.Pool().options.Addr
	x.forward(to.Target.Pool(), limits)
	to.Target.Done(x.line.TargetStatus)
}

// forward gives the request to one target on one connection. Nothing here
// tries a second time: an ALB does not (AWS user guide, Troubleshooting).
func (x *exchange) forward(pool *Pool, limits *Limits) {
	ctx := x.r.Context()
	x.line.Phase = accesslog.PhaseConnect
	start := time.Now()
	c, reused, err := pool.get(ctx)
	x.line.Micros.Connect = 0
	if !reused {
		x.line.Micros.Connect = time.Since(start).Microseconds()
	}
	if err != nil {
		x.fail(err)
		return
	}
	x.line.Local, x.line.Reused = c.local, reused

	// http.Server ends ctx when the client closes its connection.
	stop := context.AfterFunc(ctx, c.clientGone)
	reusable, err := x.converse(c, limits)
	// If stop comes too late the connection has been cancelled, or is about
	// to be, and must not go back.
	if stop() && reusable && err == nil {
		pool.put(c)
	} else {
		pool.drop(c)
	}
	if err != nil {
		x.fail(err)
		return
	}
	x.line.Phase = accesslog.PhaseDone
}

// converse sends the request and passes the answer on. It says whether the
// connection can be used again.
func (x *exchange) converse(c *targetConn, limits *Limits) (reusable bool, err error) {
	x.line.Phase = accesslog.PhaseSend
	c.out, x.line.TraceID = x.appendHead(c.out[:0])
	if _, err := c.Write(c.out); err != nil {
		return false, err
	}
	x.line.Micros.Sent = time.Since(x.line.Time).Microseconds()
	if x.upgrade {
		return false, x.tunnel(c)
	}
	var up *upload
	if x.r.ContentLength != 0 {
		up = x.startUpload(c, limits)
	}
	err = x.receive(c, up)
	sent := true
	if up != nil {
		if errors.Is(err, errIdle) && up.reading.Load() {
			err = errClientIdle // the target had nothing to answer yet
		}
		if err != nil || !up.isDone() {
			// Failed, or answered before all was sent: the rest is not wanted.
			c.pool.drop(c)
		}
		sent = up.stop()
		x.closing = x.closing || !sent
		x.line.Received = up.bytes.Load()
	}
	x.line.Sent = x.relay.sent
	return sent && x.head.keepAlive, err
}

// startUpload sends the body beside the exchange. Only requests with a body
// pay for the second goroutine.
func (x *exchange) startUpload(c *targetConn, limits *Limits) *upload {
	rc := http.NewResponseController(x.w)
	// Without it http.Server would read the whole body before the first byte
	// of an answer. HTTP/2 is always full duplex, and says that it cannot.
	_ = rc.EnableFullDuplex()
	return startUpload(x.r, rc, c, limits.Idle)
}

// receive reads the target's answer and passes it on.
func (x *exchange) receive(c *targetConn, up *upload) error {
	h := x.w.Header()
	if err := x.readHead(c, h); err != nil {
		return err
	}
	if x.head.status == http.StatusSwitchingProtocols { // was not asked for
		clear(h)
		return errMalformed
	}
	x.headCame()
	if x.closing || up != nil && !up.isDone() { // else the rest of the body stands before the next request
		h["Connection"] = closeHeader
	}
	x.passHead(h)
	x.relay = relay{w: x.w}
	return x.relay.run(c.br, &x.head)
}

// readHead reads the final head, or that of a switch of protocols, into h.
func (x *exchange) readHead(c *targetConn, h http.Header) error {
	x.line.Phase = accesslog.PhaseWait
	for interim := 0; ; interim++ {
		if err := x.head.read(c.br, x.r.Method, h); err != nil {
			clear(h)
			return err
		}
		if x.head.status >= 200 || x.head.status == http.StatusSwitchingProtocols {
			return nil
		}
		clear(h) // 1xx: the client was not asked to wait for it
		if interim == maxInterimAnswers {
			return errMalformed
		}
	}
}

// headCame notes the target's verdict.
func (x *exchange) headCame() {
	x.line.Micros.FirstByte = time.Since(x.line.Time).Microseconds()
	x.line.TargetStatus, x.line.Status = x.head.status, x.head.status
	x.line.Phase = accesslog.PhaseBody
}

// passHead sends a head with what the load balancer adds.
func (x *exchange) passHead(h http.Header) {
	if h["Content-Type"] == nil {
		h["Content-Type"] = nil // or http.Server would guess one
	}
	if len(x.cookies) > 0 {
		h["Set-Cookie"] = append(h["Set-Cookie"], x.cookies...)
	}
	x.line.SentTotal = headSize(x.head.status, h)
	x.w.WriteHeader(x.head.status)
}

// fail answers for a target that did not, or cuts an answer that has begun.
func (x *exchange) fail(err error) {
	var write clientWriteError
	if errors.As(err, &write) {
		err = errClientGone
	}
	status, name := classify(err)
	if status == 0 { // stopped: clients are cut, not answered
		x.line.Error = name
		x.cut = true
		return
	}
	if x.line.Phase != accesslog.PhaseBody {
		x.answer(Answer{Status: status, Error: name})
		return
	}
	x.line.Error = name
	if status != statusClientClosed {
		x.line.Status = status
		// The head has been decided on; a client that got nothing at all would
		// take the answer for missing instead of cut.
		_ = x.w.FlushError()
	}
	x.cut = true
}
