package conformance

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"lameduck/clusters/alb/accesslog"
	"lameduck/clusters/alb/scripted"
)

// entries is a front whose access log is a file.
type entries struct {
	*front
	path string
}

func frontWithLog(t *T, targets []string, edits ...func(*frontOptions)) entries {
	dir := t.TempDir()
	log, err := accesslog.Open(dir, "ns", "app", time.Millisecond, func(err error) { t.Errorf("log: %v", err) })
	t.must(err)
	t.Cleanup(func() { t.check(log.Close()) })
	f := newFront(t, targets, append(edits, func(o *frontOptions) { o.listener.Sink = accesslog.Sinks{o.listener.Sink, log} })...)
	return entries{front: f, path: filepath.Join(dir, "ns", "app.log")}
}

// column matches one column of the access log: with quotes or without.
var column = regexp.MustCompile(`"[^"]*"|[^ ]+`)

// columns are the names of the access log's columns in their order.
var columns = strings.Fields(`type time elb client:port target:port request_processing_time target_processing_time
	response_processing_time elb_status_code target_status_code received_bytes sent_bytes request user_agent ssl_cipher ssl_protocol
	target_group_arn trace_id domain_name chosen_cert_arn matched_rule_priority request_creation_time actions_executed redirect_url
	error_reason target:port_list target_status_code_list classification classification_reason`)

// entry waits for the only line of the access log.
func (e entries) entry(t *T) map[string]string { return entry(t, e.path, 0) }

// entry waits for the nth line of an access log, from 0.
func entry(t *T, path string, n int) map[string]string {
	var all []string
	t.eventually("line in the access log", func() bool {
		data, err := os.ReadFile(path)
		t.must(err)
		all = strings.SplitAfter(string(data), "\n")
		return len(all) > n+1
	})
	values := column.FindAllString(strings.TrimSuffix(all[n], "\n"), -1)
	if len(values) != len(columns) {
		t.Fatalf("%d columns, want %d: %s", len(values), len(columns), all[n])
	}
	byName := map[string]string{}
	for i, name := range columns {
		byName[name] = values[i]
	}
	return byName
}

// wantColumns compares columns with regular expressions.
func wantColumns(t *T, got, want map[string]string) {
	for name, expr := range want {
		if !regexp.MustCompile("^(" + expr + ")$").MatchString(got[name]) {
			t.Errorf("column %s: %s, want %s", name, got[name], expr)
		}
	}
}

func entryColumns(t *T) {
	const micros = `\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z`
	target := startTarget(t, scripted.Echo)
	f := frontWithLog(t, []string{target.Address()})
	req := newRequest(t, http.MethodGet, f.url+"/a?b=%22", nil)
	req.Header.Set("User-Agent", `say "x"`)
	wantStatus(t, "request", f.do(req), http.StatusOK)
	wantColumns(t, f.entry(t), map[string]string{
		"type": "http", "time": micros, "elb": `app/[^ /]+/[0-9a-f]{16}`, "client:port": `127\.0\.0\.1:\d+`,
		"target:port": regexp.QuoteMeta(target.Address()), "request_processing_time": `0\.\d{3}`, "target_processing_time": `0\.\d{3}`,
		"response_processing_time": `0\.\d{3}`, "elb_status_code": "200", "target_status_code": "200",
		"received_bytes": `[1-9]\d+`, "sent_bytes": `[1-9]\d+`, "request": `"GET http://` + regexp.QuoteMeta(f.addr()) + `/a\?b=%22 HTTP/1\.1"`,
		"user_agent": `"say \\x22x\\x22"`, "ssl_cipher": "-", "ssl_protocol": "-", "target_group_arn": `arn:aws:elasticloadbalancing:.*:targetgroup/.*`,
		"trace_id": `"Root=1-[0-9a-f]{8}-[0-9a-f]{24}"`, "domain_name": `"-"`, "chosen_cert_arn": `"-"`, "matched_rule_priority": "1",
		"request_creation_time": micros, "actions_executed": `"forward"`, "redirect_url": `"-"`, "error_reason": `"-"`,
		"target:port_list": `"` + regexp.QuoteMeta(target.Address()) + `"`, "target_status_code_list": `"200"`,
		"classification": `"-"`, "classification_reason": `"-"`,
	})
}

func entryRefused(t *T) {
	dead := startTarget(t, scripted.Echo)
	dead.Close()
	f := frontWithLog(t, []string{dead.Address()})
	f.get("/")
	wantColumns(t, f.entry(t), map[string]string{
		"request_processing_time": "-1", "target_processing_time": "-1", "response_processing_time": "-1",
		"elb_status_code": "502", "target_status_code": "-", "target_status_code_list": `"-"`,
	})
}

func entryClosed(t *T) {
	const after = 20 * time.Millisecond
	target := startTarget(t, func(x *scripted.Exchange) {
		x.Request()
		time.Sleep(after)
	})
	f := frontWithLog(t, []string{target.Address()})
	f.get("/")
	e := f.entry(t)
	wantColumns(t, e, map[string]string{
		"request_processing_time": `\d\.\d{3}`, "response_processing_time": "-1", "elb_status_code": "502", "target_status_code": "-",
	})
	wantAtLeast(t, e["target_processing_time"], after)
}

func entryTimeout(t *T) {
	const idle = shortIdle
	target := startTarget(t, func(x *scripted.Exchange) {
		x.Request()
		x.Request()
	})
	f := frontWithLog(t, []string{target.Address()}, idleOf(idle))
	f.get("/")
	e := f.entry(t)
	wantColumns(t, e, map[string]string{
		"request_processing_time": `\d\.\d{3}`, "response_processing_time": "-1", "elb_status_code": "504", "target_status_code": "-",
	})
	wantAtLeast(t, e["target_processing_time"], idle)
}

// wantAtLeast compares a time of the access log. It is counted from when the
// request had been sent, and rounded: a little less than what was waited for.
func wantAtLeast(t *T, column string, want time.Duration) {
	seconds, err := strconv.ParseFloat(column, 64)
	if err != nil || seconds < (want-5*time.Millisecond).Seconds() {
		t.Errorf("target_processing_time %s, want at least %s", column, want)
	}
}

func entryReason(t *T) {
	dead := startTarget(t, scripted.Echo)
	dead.Close()
	for want, targets := range map[string][]string{"502": {dead.Address()}, "503": nil, "504": {fullBacklog(t)}} {
		f := frontWithLog(t, targets, func(o *frontOptions) { o.pool.ConnectTimeout = 50 * time.Millisecond })
		f.get("/")
		wantColumns(t, f.entry(t), map[string]string{"elb_status_code": want, "error_reason": `"-"`, "actions_executed": `"forward"`})
	}
}

func cloudWatchNames(t *T) {
	counters := accesslog.NewCounters()
	lb := counters.LoadBalancer("ns/app")
	count := func(o *frontOptions) { o.listener.Sink, o.listener.Metrics = lb, lb }
	dead := startTarget(t, scripted.Echo)
	dead.Close()
	own := startTarget(t, func(x *scripted.Exchange) {
		for x.Request() != nil {
			x.Say("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
		}
	})
	good := startTarget(t, scripted.Echo)
	f := newFront(t, []string{dead.Address(), own.Address(), good.Address(), good.Address()}, count)
	for range f.router.targets {
		f.get("/")
	}
	empty := newFront(t, nil, count)
	empty.get("/")
	server := httptest.NewServer(counters.Handler())
	defer server.Close()
	want := []string{
		`RequestCount{LoadBalancer="ns/app",TargetGroup="ns/app:80"} 4`,
		`HTTPCode_ELB_5XX_Count{LoadBalancer="ns/app"} 2`,
		`HTTPCode_ELB_502_Count{LoadBalancer="ns/app"} 1`,
		`HTTPCode_ELB_503_Count{LoadBalancer="ns/app"} 1`,
		`HTTPCode_ELB_504_Count{LoadBalancer="ns/app"} 0`,
		`HTTPCode_Target_2XX_Count{LoadBalancer="ns/app",TargetGroup="ns/app:80"} 2`,
		`HTTPCode_Target_5XX_Count{LoadBalancer="ns/app",TargetGroup="ns/app:80"} 1`,
		`TargetConnectionErrorCount{LoadBalancer="ns/app",TargetGroup="ns/app:80"} 1`,
		`TargetResponseTime_count{LoadBalancer="ns/app",TargetGroup="ns/app:80"} 3`,
		`NewConnectionCount{LoadBalancer="ns/app"} 8`,
		`RejectedConnectionCount{LoadBalancer="ns/app"} 0`,
		`ActiveConnectionCount{LoadBalancer="ns/app"} 0`,
	}
	var missing []string
	t.Cleanup(func() {
		for _, line := range missing {
			t.Errorf("metrics lack %s", line)
		}
	})
	t.eventually("complete counters", func() bool {
		resp, err := server.Client().Get(server.URL)
		t.must(err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		t.must(err)
		missing = missing[:0]
		for _, line := range want {
			if !strings.Contains(string(body), "\n"+line+"\n") {
				missing = append(missing, line)
			}
		}
		return len(missing) == 0
	})
}
