package proxy

import (
	"bufio"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// stream is one request's way to and from its client: over HTTP/1 (client) or
// HTTP/2 (stream2). Only stopReading may be called from another goroutine than
// the exchange's.
type stream interface {
	// body is the request's. Reads give up after the idle timeout.
	body() io.Reader
	// arrived is the whole body if it has come already, nil otherwise. It must
	// be used before anything else is read.
	arrived() []byte
	// skipBody drops what has come of a body that was not asked for, and says
	// whether the next request can be read then.
	skipBody() bool
	// stopReading makes reads of the body fail from now on.
	stopReading()
	// sendContinue sends 100 Continue.
	sendContinue() error

	// attach has c cancelled if the client goes away, at once if it has gone.
	attach(c canceler)
	// detach ends that. It is false if the client has gone: c has been
	// cancelled, or is about to be.
	detach() bool

	// writeHead begins the answer and write continues it. What they send may
	// wait for flush or finish; finish also ends the answer.
	writeHead(a *answerHead)
	write(p []byte) error
	flush() error
	finish() error
	// sentTotal is what the answer has been so far, its head included.
	sentTotal() int64

	// takeOver hands the connection to who speaks another protocol on it.
	takeOver() (net.Conn, *guard, *bufio.Reader)
}

// canceler is something that waits for a target.
type canceler interface{ cancel(cause *causeError) }

// answerHead is the head of the answer to a client.
type answerHead struct {
	status  int
	reason  string
	fields  []field // those that pass go on
	cookies []string
	length  int64  // declared; -1: not known
	hasBody bool   // a body follows
	last    bool   // the connection ends with this answer
	upgrade string // of 101
}

// dateLine is the Date header of this second.
type dateLine struct {
	second int64
	line   string
}

var lastDate atomic.Pointer[dateLine]

// appendDate appends a Date header (RFC 9110, 6.6.1: who passes an answer on
// without one adds it).
func appendDate(b []byte, now time.Time) []byte {
	d := lastDate.Load()
	if d == nil || d.second != now.Unix() {
		d = &dateLine{now.Unix(), now.UTC().Format("Date: Mon, 02 Jan 2006 15:04:05 GMT\r\n")}
		lastDate.Store(d)
	}
	return append(b, d.line...)
}
