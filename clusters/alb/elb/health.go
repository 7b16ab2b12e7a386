package elb

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"time"
)

// result is the outcome of one health check.
type result struct {
	ok             bool
	reason, detail string // if not
}

// scheduleCheck makes the next check after d. Callers hold group.mu.
func (nt *nodeTarget) scheduleCheck(d time.Duration) {
	g := nt.target.group
	var timer *time.Timer
	timer = time.AfterFunc(d, func() {
		g.mu.Lock() // held by our caller until timer and nt.check are set
		current, check := nt.check == timer && !g.closed, g.spec.HealthCheck
		g.mu.Unlock()
		if !current {
			return
		}
		started := time.Now()
		r := nt.probe(check)
		g.mu.Lock()
		defer g.mu.Unlock()
		if nt.check != timer || g.closed {
			return // deregistered meanwhile
		}
		nt.judge(check, r)
		g.tell(nt.target)
		nt.scheduleCheck(max(0, check.Interval-time.Since(started)))
	})
	nt.check = timer
}

// judge counts a result towards the thresholds. Callers hold group.mu.
func (nt *nodeTarget) judge(check HealthCheck, r result) {
	if r.ok {
		nt.passes, nt.fails = nt.passes+1, 0
	} else {
		nt.passes, nt.fails = 0, nt.fails+1
	}
	switch {
	// User guide, Health checks: a new target needs one check that passes.
	case r.ok && nt.phase == phaseInitial, r.ok && nt.phase == phaseUnhealthy && nt.passes >= check.Healthy:
		nt.enterPhase(phaseHealthy, "", "")
	case !r.ok && nt.phase != phaseUnhealthy && nt.fails >= check.Unhealthy:
		nt.enterPhase(phaseUnhealthy, r.reason, r.detail)
	case !r.ok && nt.phase == phaseUnhealthy:
		nt.reason, nt.detail = r.reason, r.detail
	}
}

// probe makes one check. It opens a connection of its own and closes it (user
// guide, Health checks for target groups).
func (nt *nodeTarget) probe(check HealthCheck) result {
	ctx, cancel := context.WithTimeout(context.Background(), check.Timeout)
	defer cancel()
	addr := nt.addr
	if check.Port != 0 {
		addr = netip.AddrPortFrom(addr.Addr(), check.Port)
	}
	conn, err := nt.target.group.service.dial(nt.view.node)(ctx, addr.String(), check.Timeout)
	if err != nil {
		return failedCheck(err)
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return failedCheck(err)
	}
	if check.Protocol == HTTPS {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) // certificates of targets are not validated
	}
	request := "GET " + check.Path + " HTTP/1.1\r\nHost: " + addr.String() +
		"\r\nConnection: close\r\nUser-Agent: ELB-HealthChecker/2.0\r\nAccept-Encoding: gzip, compressed\r\n\r\n"
	if _, err := conn.Write([]byte(request)); err != nil {
		return failedCheck(err)
	}
	answer, err := http.ReadResponse(bufio.NewReaderSize(conn, 1<<10), nil)
	if err != nil {
		return failedCheck(err)
	}
	answer.Body.Close()
	for _, c := range check.Codes {
		if answer.StatusCode >= c.Low && answer.StatusCode <= c.High {
			return result{ok: true}
		}
	}
	return result{reason: ReasonResponseCodeMismatch, detail: "Health checks failed with these codes: [" + strconv.Itoa(answer.StatusCode) + "]"}
}

func failedCheck(err error) result {
	var timeout net.Error
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout() {
		return result{reason: ReasonTimeout, detail: "Request timed out"}
	}
	return result{reason: ReasonFailedHealthChecks, detail: fmt.Sprintf("Health checks failed: %v", err)}
}
