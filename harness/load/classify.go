package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
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
	}
	// In HTTP/2 an answer is a stream, which may be cut on a connection that goes on.
	var cut streamError
	isCut := errors.As(err, &cut)
	ended := errors.Is(err, io.ErrUnexpectedEOF) || saidGoodbye(err)
	switch {
	case inBody && (ended || isCut):
		return harness.OutcomeTruncated
	case isCut:
		return harness.OutcomeReset
	case ended, errors.Is(err, io.EOF), err.Error() == closedIdle:
		return harness.OutcomeEOF
	default:
		return harness.OutcomeOther
	}
}

// streamError takes what net/http's error of a stream of HTTP/2 that was reset
// holds (RST_STREAM, RFC 9113, 6.4). That type is not exported, but lets itself be
// taken over by any with the same fields.
type streamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (e streamError) Error() string { return fmt.Sprintf("stream reset with code %d", e.Code) }

// saidGoodbye says whether the server of a connection of HTTP/2 took no more
// requests, or not this one (GOAWAY, RFC 9113, 6.8), or had closed it. The errors
// of net/http have no types; TestHTTP2NoHiddenRetry notices when their texts change.
func saidGoodbye(err error) bool {
	text := err.Error()
	return strings.Contains(text, "GOAWAY") || text == "http2: client conn not usable"
}
