package load

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"lameduck/harness"
)

// recorder is the http.RoundTripper of one loop. It makes the record of each
// request and sends it to requests.
type recorder struct {
	schedule
	clock       harness.Clock
	connections connections
	timeout     time.Duration // of one request, body included
	body        []byte        // of each request; empty: none
	prefix      string        // of ids
	control     bool
	requests    chan<- harness.Request
}

const userAgent = "lameduck"

// seqHeader is where vegeta tells a request's number.
const seqHeader = "X-Vegeta-Seq"

// RoundTrip sends one request of vegeta's, reads the whole answer and records
// how it went. The answer that it returns has no body.
func (t *recorder) RoundTrip(in *http.Request) (*http.Response, error) {
	sent := time.Now()
	seq, err := strconv.ParseUint(in.Header.Get(seqHeader), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("header %s: %w", seqHeader, err)
	}
	r := harness.Request{
		ID: t.prefix + strconv.FormatUint(seq, 10), Control: t.control,
		Planned: t.clock.At(t.due(seq)), Sent: t.clock.At(sent),
	}
	ctx, cancel := context.WithTimeout(in.Context(), t.timeout)
	defer cancel()
	out := in.WithContext(ctx)
	out.Header = http.Header{harness.RequestIDHeader: {r.ID}, "User-Agent": {userAgent}}
	setBody(out, t.body)
	answer, err := t.connections.send(out, &r)
	failure := err
	if err != nil {
		r.Outcome = classify(err, false)
	} else {
		r.Status = answer.StatusCode
		r.Pod = answer.Header.Get(harness.PodHeader)
		r.Outcome, failure = judge(answer, r.ID)
		answer.Body = http.NoBody
	}
	if failure != nil {
		r.Error = failure.Error()
	}
	r.Latency = time.Since(sent)
	t.requests <- r
	return answer, err
}

// content is what a body of this size holds: the same in each.
func content(size int) []byte {
	const line = "lameduck 0123456789 abcdefghijklmnopqrstuvwxyz 0123456789 0123\n"
	return bytes.Repeat([]byte(line), size/len(line)+1)[:size]
}

// setBody makes the request send a body. It has no GetBody, so that net/http can
// not send it twice.
func setBody(r *http.Request, body []byte) {
	r.Body, r.GetBody, r.ContentLength = http.NoBody, nil, int64(len(body))
	if len(body) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
}

// heads are buffers for the first bytes of bodies.
var heads = sync.Pool{New: func() any { return new([512]byte) }}

// judge reads the answer's body to its end and says how the request ended. The
// status counts more than the body: that of an error page is not looked at.
func judge(answer *http.Response, id string) (harness.Outcome, error) {
	buf := heads.Get().(*[512]byte)
	defer heads.Put(buf)
	head, err := readBody(answer.Body, buf[:])
	answer.Body.Close()
	if o := ofStatus(answer.StatusCode); o != harness.OutcomeOK {
		return o, nil
	}
	if err != nil {
		return classify(err, true), err
	}
	if err := checkHead(answer, head, id); err != nil {
		return harness.OutcomeWrongBody, err
	}
	return harness.OutcomeOK, nil
}

// ofStatus is the outcome of an answer with this status and a right body.
func ofStatus(s int) harness.Outcome {
	switch {
	case s == http.StatusBadGateway:
		return harness.Outcome502
	case s == http.StatusServiceUnavailable:
		return harness.Outcome503
	case s == http.StatusGatewayTimeout:
		return harness.Outcome504
	case s >= 500:
		return harness.Outcome5xx
	case s >= 400:
		return harness.Outcome4xx
	}
	return harness.OutcomeOK
}

// checkHead says whether a body that begins like this is that of the request.
// Only the built-in application, which gives its pod's name, is known to begin
// its body with the request's id; a user's own need not.
func checkHead(answer *http.Response, head []byte, id string) error {
	if answer.Header.Get(harness.PodHeader) == "" {
		return nil
	}
	if line, _, _ := bytes.Cut(head, []byte("\n")); string(line) != id {
		return fmt.Errorf("body is for request %.40q", line)
	}
	return nil
}

// readBody reads to the end and returns the first bytes, as many as fit in buf.
func readBody(body io.Reader, buf []byte) (head []byte, err error) {
	n := 0
	for n < len(buf) {
		m, err := body.Read(buf[n:])
		n += m
		if err == io.EOF {
			return buf[:n], nil
		}
		if err != nil {
			return buf[:n], err
		}
	}
	_, err = io.Copy(io.Discard, body)
	return buf, err
}
