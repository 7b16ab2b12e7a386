package conformance

import (
	"net"
	"net/http"
	"strings"
	"time"

	"lameduck/clusters/alb/accesslog"
	"lameduck/clusters/alb/scripted"
)

func logFacts() []Fact {
	return []Fact{
		{"6-entry", 6, Documented, guideAccessLogs, "the access log has the documented columns in their order and form", entryColumns},
		{"6-entry-refused", 6, Documented, guideTroubleshooting, "RST while connecting is logged as 502 - with times -1 -1 -1", entryRefused},
		{"6-entry-closed", 6, Documented, guideTroubleshooting, "a target that closes is logged as 502 - with the time until then, then -1", entryClosed},
		{"6-entry-timeout", 6, Documented, guideTroubleshooting, "an answer that does not come is logged as 504 - with the idle timeout, then -1", entryTimeout},
		{"6-error-reason", 6, Documented, guideAccessLogs, "error_reason stays - for 502, 503 and 504", entryReason},
		{"6-cloudwatch", 6, Documented, guideCloudWatch, "counters have CloudWatch's names, apart for the load balancer's and the targets' statuses", cloudWatchNames},
		{"6-own-502", 6, Documented, guideAccessLogs, "the target's own 502 is passed on and told apart in the log", ownBadGateway},
		{"6-side-log", 6, Inferred, guideAccessLogs, "the side log tells client, target, local port, times and bytes", logTells},
	}
}

func ownBadGateway(t *T) {
	target := startTarget(t, scripted.Once("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 4\r\n\r\nmine"))
	f := newFront(t, []string{target.Address()})
	if a := f.get("/"); a.status != 502 || a.body != "mine" {
		t.Errorf("status %d, body %q", a.status, a.body)
	}
	wantLine(t, f.line(), 502, 502, accesslog.PhaseDone, "")
}

func logTells(t *T) {
	peer := make(chan string, 1)
	target := startTarget(t, func(x *scripted.Exchange) {
		peer <- x.RemoteAddr().String()
		scripted.Echo(x)
	})
	f := newFront(t, []string{target.Address()})
	before := time.Now()
	req := newRequest(t, http.MethodPost, f.url+"/a?b=\"%C3%A4", strings.NewReader("hello"))
	req.Header.Set("X-Lameduck-Request", "id-\"1\"")
	f.do(req)
	l := f.line()
	wantLine(t, l, 200, 200, accesslog.PhaseDone, "")
	if l.ID != "id-\"1\"" || l.Method != "POST" || !strings.HasPrefix(l.Path, "/a?b=") || l.Group != frontGroup {
		t.Errorf("log: %+v", l)
	}
	if host, _, err := net.SplitHostPort(l.Client); err != nil || host != "127.0.0.1" {
		t.Errorf("log: client %q", l.Client)
	}
	if l.Target != target.Address() || l.Local != wait(t, "connection", peer) || l.Reused {
		t.Errorf("log: target %s, local %s, reused %v", l.Target, l.Local, l.Reused)
	}
	if l.Time.Before(before.Add(-time.Second)) || l.Time.After(time.Now()) {
		t.Errorf("log: time %s", l.Time)
	}
	if m := l.Micros; m.Connect < 0 || m.FirstByte < m.Connect || m.Total < m.FirstByte {
		t.Errorf("log: micros %+v", m)
	}
	if l.Received != 5 || l.Sent != 5 {
		t.Errorf("log: received %d, sent %d", l.Received, l.Sent)
	}
	f.get("/")
	if l := f.wait(t, 2)[1]; !l.Reused || l.Micros.Connect != 0 {
		t.Errorf("log: second request reused %v, connect %d", l.Reused, l.Micros.Connect)
	}
}
