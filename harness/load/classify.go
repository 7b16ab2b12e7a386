package load

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"

	"lameduck/harness"
)

// ownFaults are errors of a machine that can not open one more connection.
var ownFaults = []error{
	syscall.EADDRNOTAVAIL, syscall.EADDRINUSE, // no local port
	syscall.EMFILE, syscall.ENFILE, // no file descriptor
	syscall.ENOBUFS, syscall.ENOMEM,
}

// closedIdle is the text of net/http's errServerClosedIdle, which has no type:
// the server closed a reused connection before anything was written to it.
// TestServerClosedIdle notices when it changes.
const closedIdle = "http: server closed idle connection"

// classify says how a request ended that got no answer, or (inBody) no whole
// one.
func classify(err error, inBody bool) harness.Outcome {
	for _, own := range ownFaults {
		if errors.Is(err, own) {
			return harness.OutcomeGenerator
		}
	}
	var dns *net.DNSError
	var netErr net.Error
	switch {
	case errors.As(err, &dns):
		return harness.OutcomeDNS
	case errors.Is(err, syscall.ECONNREFUSED):
		return harness.OutcomeRefused
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return harness.OutcomeReset
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		return harness.OutcomeTimeout
	case inBody && errors.Is(err, io.ErrUnexpectedEOF):
		return harness.OutcomeTruncated
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), err.Error() == closedIdle:
		return harness.OutcomeEOF
	default:
		return harness.OutcomeOther
	}
}
