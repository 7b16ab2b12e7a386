package proxy

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"lameduck/clusters/alb/accesslog"
)

// Status codes that only load balancers use (AWS user guide, Troubleshooting).
const (
	statusClientClosed  = 460
	statusTooManyXFF    = 463
	statusWrongProtocol = 464
)

// causeError is a failure that the load balancer itself decided on.
type causeError struct {
	status int
	name   string
}

func (e *causeError) Error() string { return e.name }

var (
	errClientGone    = &causeError{statusClientClosed, accesslog.ErrorClientClosed}
	errClientIdle    = &causeError{http.StatusRequestTimeout, accesslog.ErrorClientIdle}
	errClientStalled = &causeError{statusClientClosed, accesslog.ErrorClientIdle} // it does not read
	errClientBody    = &causeError{http.StatusBadRequest, accesslog.ErrorClientBody}
	errDeregistered  = &causeError{http.StatusBadGateway, accesslog.ErrorDeregistered}
	errIdle          = &causeError{http.StatusGatewayTimeout, "ETIMEDOUT"}
	errMalformed     = &causeError{http.StatusBadGateway, accesslog.ErrorMalformed}
	errHeadTooLarge  = &causeError{http.StatusBadGateway, accesslog.ErrorHeaderTooLarge}
	errTLS           = &causeError{http.StatusBadGateway, accesslog.ErrorTLS}
	errStopped       = &causeError{0, accesslog.ErrorStopped} // nothing is sent
)

// Cause is why a pool is closed; what is in flight ends with it.
type Cause struct{ err *causeError }

// The causes.
var (
	// CauseDeregistered: the deregistration delay is over. Clients get 502
	// (AWS user guide, Troubleshooting: HTTP 502).
	CauseDeregistered = Cause{errDeregistered}
	// CauseStopped: the load balancer goes away. Clients are cut.
	CauseStopped = Cause{errStopped}
)

// clientWriteError is a failure to send to the client, as opposed to one of
// the target.
type clientWriteError struct{ error }

func (e clientWriteError) Unwrap() error { return e.error }

// classify gives the status a client gets and the name in the log. Timeouts
// are 504 and everything else a target does is 502; what is the load
// balancer's own shortage is 500, so that it is never taken for the target's.
func classify(err error) (status int, name string) {
	var own *causeError
	var write clientWriteError
	var errno syscall.Errno
	var netErr net.Error
	switch {
	case errors.As(err, &write):
		own = writeCause(write.error)
		return own.status, own.name
	case errors.As(err, &own):
		return own.status, own.name
	case errors.As(err, &errno):
		name = unix.ErrnoName(errno)
		if name == "" {
			name = errno.Error()
		}
		switch errno {
		case unix.ETIMEDOUT:
			return http.StatusGatewayTimeout, name
		case unix.EMFILE, unix.ENFILE, unix.EADDRNOTAVAIL, unix.ENOBUFS, unix.ENOMEM:
			return http.StatusInternalServerError, name
		}
		return http.StatusBadGateway, name
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		return http.StatusGatewayTimeout, "ETIMEDOUT"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return http.StatusBadGateway, accesslog.ErrorEOF
	case errors.Is(err, net.ErrClosed):
		return errStopped.status, errStopped.name
	}
	return http.StatusBadGateway, accesslog.ErrorMalformed
}

// writeCause tells a client that went away from one that does not read, and
// from a load balancer that stops.
func writeCause(err error) *causeError {
	var own *causeError
	switch {
	case errors.As(err, &own) && own == errIdle, errors.Is(err, os.ErrDeadlineExceeded):
		return errClientStalled
	case errors.As(err, &own):
		return own
	}
	return errClientGone
}

// bodyCause says what a failure to read a request's body means.
func bodyCause(err error) *causeError {
	var own *causeError
	var errno syscall.Errno
	switch {
	case errors.As(err, &own) && own != errIdle && own != errMalformed:
		return own
	case own == errIdle, errors.Is(err, os.ErrDeadlineExceeded):
		return errClientIdle
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed), errors.As(err, &errno):
		return errClientGone
	}
	return errClientBody
}
