package alb

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"lameduck/harness"
)

// exchange is one request, from receipt to log line.
type exchange struct {
	l     *listener
	w     responseWriter
	r     *http.Request
	line  LogLine
	relay relay
	head  responseHead
	// cut says that the client's connection must be closed without finishing
	// the answer, so that the client notices.
	cut bool
	// closing says that the answer is the last one on the client's connection.
	closing bool
}

var exchanges = sync.Pool{New: func() any { return new(exchange) }}

func (x *exchange) run(now time.Time, client *clientConn) {
	x.line = LogLine{
		Time:   now,
		Client: x.r.RemoteAddr,
		Method: x.r.Method,
		Path:   x.r.RequestURI,
		Phase:  PhaseRoute,
		Micros: Micros{Connect: -1, FirstByte: -1},
	}
	if id := x.r.Header[harness.RequestIDHeader]; len(id) > 0 {
		x.line.ID = id[0]
	}
	limits := x.l.limits.Load()
	x.closing = now.Sub(client.since) >= limits.clientKeepAlive
	x.route(limits, client)
	x.line.Micros.Total = time.Since(now).Microseconds()
	x.l.log.add(&x.line)
}

var closeHeader = []string{"close"}

// route finds the target and hands the request over, or answers itself.
func (x *exchange) route(limits *limits, client *clientConn) {
	if status := refusal(x.r); status != 0 {
		x.closing = x.closing || status == statusWrongProtocol
		x.answer(status, ErrorRefused)
		return
	}
	g, ok := x.l.routes.Load().match(x.r.Host, x.r.RequestURI)
	if !ok {
		x.answer(http.StatusNotFound, ErrorNoRule)
		return
	}
	if g == nil { // a rule without a Service
		x.answer(http.StatusServiceUnavailable, ErrorNoTarget)
		return
	}
	x.line.Group = g.name
	t := g.pick()
	if t == nil {
		x.answer(http.StatusServiceUnavailable, ErrorNoTarget)
		return
	}
	x.line.Target = t.addr
	x.forward(t, limits, client)
}

// forward gives the request to one target on one connection. Nothing here
// tries a second time: an ALB does not (alb.md, section 1).
func (x *exchange) forward(t *target, limits *limits, client *clientConn) {
	ctx := x.r.Context()
	x.line.Phase = PhaseConnect
	start := time.Now()
	c, reused, err := t.pool.get(ctx)
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
	reusable, err := x.converse(c, client, limits)
	// If stop comes too late the connection has been cancelled, or is about
	// to be, and must not go back.
	if stop() && reusable && err == nil {
		t.pool.put(c)
	} else {
		t.pool.drop(c)
	}
	if err != nil {
		x.fail(err)
		return
	}
	x.line.Phase = PhaseDone
}

// converse sends the request and passes the answer on. It says whether the
// connection can be used again.
func (x *exchange) converse(c *targetConn, client *clientConn, limits *limits) (reusable bool, err error) {
	x.line.Phase = PhaseSend
	c.out = appendHead(c.out[:0], x.r, headInfo{client.ip, x.l.portString, client.local}, x.line.Time)
	if _, err := c.Write(c.out); err != nil {
		return false, err
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
func (x *exchange) startUpload(c *targetConn, limits *limits) *upload {
	rc := http.NewResponseController(x.w)
	// Without it http.Server would read the whole body before the first byte
	// of an answer. It cannot fail for HTTP/1.
	_ = rc.EnableFullDuplex()
	return startUpload(x.r, rc, c, limits.idle)
}

// receive reads the target's answer and passes it on.
func (x *exchange) receive(c *targetConn, up *upload) error {
	x.line.Phase = PhaseWait
	h := x.w.Header()
	for interim := 0; ; interim++ {
		if err := x.head.read(c.br, x.r.Method, h); err != nil {
			clear(h)
			return err
		}
		if x.head.status >= 200 {
			break
		}
		clear(h) // 1xx: the client was not asked to wait for it
		// 101 would need an Upgrade header, which was not sent.
		if x.head.status == http.StatusSwitchingProtocols || interim == maxInterimAnswers {
			return errMalformed
		}
	}
	x.line.Micros.FirstByte = time.Since(x.line.Time).Microseconds()
	x.line.TargetStatus, x.line.Status = x.head.status, x.head.status
	x.line.Phase = PhaseBody
	if h["Content-Type"] == nil {
		h["Content-Type"] = nil // or http.Server would guess one
	}
	if x.closing || up != nil && !up.isDone() { // else the rest of the body stands before the next request
		h["Connection"] = closeHeader
	}
	x.w.WriteHeader(x.head.status)
	x.relay = relay{w: x.w}
	return x.relay.run(c.br, &x.head)
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
	if x.line.Phase != PhaseBody {
		x.answer(status, name)
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

// answer is the load balancer's own.
func (x *exchange) answer(status int, reason string) {
	x.line.Status, x.line.Error = status, reason
	h := x.w.Header()
	// Seen in front of every ALB; tools tell its errors from the target's by it.
	h["Server"] = []string{"awselb/2.0"}
	h["Content-Type"] = []string{"text/html"}
	if x.closing {
		h["Connection"] = closeHeader
	}
	text := http.StatusText(status)
	if text == "" {
		text = "Load Balancer Error"
	}
	page := "<html><head><title>" + strconv.Itoa(status) + " " + text + "</title></head><body><h1>" +
		strconv.Itoa(status) + " " + text + "</h1></body></html>\r\n"
	h["Content-Length"] = []string{strconv.Itoa(len(page))}
	x.w.WriteHeader(status)
	// A client that has gone away is not told; http.Server notices.
	_, _ = x.w.Write([]byte(page))
}
