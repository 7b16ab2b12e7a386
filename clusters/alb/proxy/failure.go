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
	errClientGone   = &causeError{statusClientClosed, accesslog.ErrorClientClosed}
	errClientIdle   = &causeError{http.StatusRequestTimeout, accesslog.ErrorClientIdle}
	errClientBody   = &causeError{http.StatusBadRequest, accesslog.ErrorClientBody}
	errDeregistered = &causeError{http.StatusBadGateway, accesslog.ErrorDeregistered}
	errIdle         = &causeError{http.StatusGatewayTimeout, "ETIMEDOUT"}
	errTLS          = &causeError{http.StatusBadGateway, accesslog.ErrorTLS}
	errMalformed    = &causeError{http.StatusBadGateway, accesslog.ErrorMalformed}
	errHeadTooLarge = &causeError{http.StatusBadGateway, accesslog.ErrorHeaderTooLarge}
	errStopped      = &causeError{0, accesslog.ErrorStopped} // nothing is sent
)

// classify gives the status a client gets and the name in the log. Timeouts
// are 504 and everything else a target does is 502; what is the load
// balancer's own shortage is 500, so that it is never taken for the target's.
func classify(err error) (status int, name string) {
	var own *causeError
	var errno syscall.Errno
	var netErr net.Error
	switch {
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
