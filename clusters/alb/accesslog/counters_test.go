package accesslog

import (
	"io"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestCounters(t *testing.T) {
	c := NewCounters()
	b := c.LoadBalancer("ns/app")
	b.ConnectionOpened()
	b.ConnectionOpened()
	b.ConnectionClosed()
	b.ConnectionRejected()
	b.Hosts("ns/app:80", 2, 1)
	for _, l := range []Line{
		with(func(*Line) {}),
		with(func(l *Line) {
			l.Reused, l.TargetState, l.TargetStatus, l.Status = true, "unhealthy", 502, 502
		}),
		with(func(l *Line) {
			l.Phase, l.Error, l.Status, l.TargetStatus, l.Local = PhaseConnect, "ECONNREFUSED", 502, 0, ""
		}),
		with(func(l *Line) {
			l.Phase, l.Error, l.Status, l.TargetStatus, l.Local = PhaseConnect, ErrorTLS, 502, 0, ""
		}),
		with(func(l *Line) { l.Phase, l.Error, l.Status = PhaseBody, "ETIMEDOUT", 504 }),
		with(func(l *Line) { l.Target, l.Local, l.Status, l.TargetStatus = "", "", 503, 0 }),
		with(func(l *Line) {
			l.Target, l.Local, l.Action, l.Status, l.TargetStatus = "", "", "redirect", 301, 0
		}),
		with(func(l *Line) {
			l.Target, l.Local, l.Action, l.Status, l.TargetStatus = "", "", "fixed-response", 404, 0
		}),
		with(func(l *Line) { l.Status, l.TargetStatus, l.Error = 460, 0, ErrorClientClosed }),
	} {
		Sinks{b, Sinks{}}.Add(&l)
	}
	got := scrape(t, c)
	for _, want := range []string{
		`ActiveConnectionCount{LoadBalancer="ns/app"} 1`,
		`NewConnectionCount{LoadBalancer="ns/app"} 5`,
		`RejectedConnectionCount{LoadBalancer="ns/app"} 1`,
		`RequestCount{LoadBalancer="ns/app",TargetGroup="ns/app:80"} 6`,
		`HTTPCode_ELB_3XX_Count{LoadBalancer="ns/app"} 1`,
		`HTTPCode_ELB_4XX_Count{LoadBalancer="ns/app"} 2`,
		`HTTPCode_ELB_5XX_Count{LoadBalancer="ns/app"} 4`,
		`HTTPCode_ELB_500_Count{LoadBalancer="ns/app"} 0`,
		`HTTPCode_ELB_502_Count{LoadBalancer="ns/app"} 2`,
		`HTTPCode_ELB_503_Count{LoadBalancer="ns/app"} 1`,
		`HTTPCode_ELB_504_Count{LoadBalancer="ns/app"} 1`,
		`HTTPCode_Target_2XX_Count{LoadBalancer="ns/app",TargetGroup="ns/app:80"} 2`,
		`HTTPCode_Target_5XX_Count{LoadBalancer="ns/app",TargetGroup="ns/app:80"} 1`,
		`TargetConnectionErrorCount{LoadBalancer="ns/app",TargetGroup="ns/app:80"} 1`,
		`TargetTLSNegotiationErrorCount{LoadBalancer="ns/app",TargetGroup="ns/app:80"} 1`,
		`TargetResponseTime_count{LoadBalancer="ns/app",TargetGroup="ns/app:80"} 3`,
		`UnhealthyRoutingRequestCount{LoadBalancer="ns/app",TargetGroup="ns/app:80"} 1`,
		`HealthyHostCount{LoadBalancer="ns/app",TargetGroup="ns/app:80"} 2`,
		`UnHealthyHostCount{LoadBalancer="ns/app",TargetGroup="ns/app:80"} 1`,
		`HTTP_Fixed_Response_Count{LoadBalancer="ns/app"} 1`,
		`HTTP_Redirect_Count{LoadBalancer="ns/app"} 1`,
		`ProcessedBytes{LoadBalancer="ns/app"} 3906`,
	} {
		if !strings.Contains(got, "\n"+want+"\n") {
			t.Errorf("no %s", want)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
	b.GroupGone("ns/app:80")
	if got := scrape(t, c); strings.Contains(got, "\nHealthyHostCount{") {
		t.Error("the group's gauges are still there")
	}
}

func scrape(t *testing.T, c *Counters) string {
	t.Helper()
	server := httptest.NewServer(c.Handler())
	defer server.Close()
	resp, err := server.Client().Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func BenchmarkCount(b *testing.B) {
	lb := NewCounters().LoadBalancer("ns/app")
	l := with(func(*Line) {})
	b.ReportAllocs()
	for b.Loop() {
		lb.Add(&l)
	}
}
