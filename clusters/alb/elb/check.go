package elb

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// schedule is that of one node's checks of one target. A target that waits for
// its next check has a timer and no goroutine.
type schedule struct {
	timer *time.Timer
	made  int // checks
}

// firstCheckSpread is how much the first checks of many targets are spread at
// most, so that a thousand registrations do not dial at one moment.
const firstCheckSpread = time.Second

// startChecks begins to check a target that the node has got to know.
func (g *group) startChecks(nt *nodeTarget) {
	if g.config.HealthCheck.Disabled {
		nt.health.observe(outcome{}, g.config.HealthCheck)
		g.slowStart(nt)
		return
	}
	sch := new(schedule)
	nt.checks = sch
	sch.timer = time.AfterFunc(rand.N(min(g.config.HealthCheck.Interval, firstCheckSpread)), func() { g.runCheck(nt, sch) })
}

func (g *group) stopChecks(nt *nodeTarget) {
	if nt.checks != nil {
		nt.checks.timer.Stop()
		nt.checks = nil
	}
}

// restartChecks is for checks that have been turned on or off.
func (g *group) restartChecks() {
	for _, t := range g.order {
		for _, nt := range t.nodes {
			if nt.phase == phaseServing {
				g.stopChecks(nt)
				g.startChecks(nt)
				g.show(nt, "")
			}
		}
	}
}

// runCheck makes one check and waits for the next. Its timer's goroutine runs
// it, so that only checks under way have one.
func (g *group) runCheck(nt *nodeTarget, sch *schedule) {
	s := g.service
	s.mu.Lock()
	if s.closed || nt.checks != sch {
		s.mu.Unlock()
		return
	}
	h := g.config.HealthCheck
	s.background.Add(1)
	s.mu.Unlock()
	defer s.background.Done()

	addr := nt.target.addr
	if h.Port != 0 {
		addr = netip.AddrPortFrom(addr.Addr(), h.Port)
	}
	start := time.Now()
	o := s.check(s.life, checkRequest{node: nt.node.node, addr: addr.String(), HealthCheck: h})

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || nt.checks != sch {
		return
	}
	if nt.health.observe(o, h) {
		if nt.health.state == StateHealthy {
			g.slowStart(nt)
		}
		defer g.rebuild(nt.node)
	}
	g.show(nt, o.description)
	next := h.Interval
	if sch.made++; sch.made == 1 {
		// Targets registered together are checked all over the interval from
		// the second check on.
		next = h.Interval/2 + rand.N(h.Interval)
	}
	sch.timer.Reset(max(0, next-time.Since(start)))
}

// slowStart begins for a target that has got healthy, if there is a healthy
// one which is not in slow start itself (D: user guide, Target group
// attributes, Slow start mode).
func (g *group) slowStart(nt *nodeTarget) {
	first := nt.first
	nt.first, nt.health.slowFrom = false, time.Time{}
	if g.config.SlowStart == 0 || first {
		return
	}
	now := time.Now()
	for _, t := range g.order {
		other := t.nodes[nt.node.node.index]
		if other != nt && other.phase == phaseServing && other.health.state == StateHealthy && now.Sub(other.health.slowFrom) >= g.config.SlowStart {
			nt.health.slowFrom = now
			return
		}
	}
}

// checkRequest is one check.
type checkRequest struct {
	node *node
	addr string
	HealthCheck
}

// outcome of a check; the reason is "" if it passed.
type outcome struct{ reason, description string }

// checkHTTP makes a check.
func checkHTTP(ctx context.Context, c checkRequest) outcome {
	status, err := c.exchange(ctx)
	if err != nil {
		var netErr net.Error
		if errors.As(err, &netErr) && netErr.Timeout() {
			return outcome{ReasonTimeout, "Request timed out"}
		}
		return outcome{ReasonFailedHealthChecks, "Health checks failed: " + err.Error()}
	}
	for _, r := range c.Codes {
		if r.Low <= status && status <= r.High {
			return outcome{description: fmt.Sprintf("Health check answered %d", status)}
		}
	}
	return outcome{ReasonResponseCodeMismatch, fmt.Sprintf("Health checks failed with these codes: [%d]", status)}
}

// maxCheckAnswer bounds what is read of an answer, in bytes.
const maxCheckAnswer = 64 << 10

// exchange returns the answer's status. It opens a connection and closes it (D:
// user guide, Health checks for target groups). http.Transport would do the
// same with three goroutines, and complains to the process's log about targets
// that speak before they are asked.
func (c checkRequest) exchange(ctx context.Context) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	req, err := http.NewRequest(http.MethodGet, "http://"+c.addr+c.Path, nil)
	if err != nil {
		return 0, err
	}
	req.Close = true
	req.Header.Set("User-Agent", "ELB-HealthChecker/2.0")
	conn, err := c.node.dial(ctx, c.addr, c.Timeout)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })() // of an open connection
	if c.Protocol == HTTPS {
		conn = tls.Client(conn, anyCertificate)
	}
	if err := req.Write(conn); err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(bufio.NewReaderSize(io.LimitReader(conn, maxCheckAnswer), 1<<10), req)
	if err != nil {
		return 0, err
	}
	// The status is all that matters, but what is left unread at the close
	// makes the target's kernel report a reset.
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode, nil
}
