package load

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"lameduck/harness"
)

// BenchmarkAttack measures how exactly 1000 requests per second are sent, by a
// worker process to a server in another process, all on this machine. One
// iteration is one second of load. Besides the lateness it reports the CPU time
// that the worker uses, in percent of one core.
func BenchmarkAttack(b *testing.B) {
	url := startServer(b)
	for connections, longLived := range map[harness.Connections]int{
		harness.ConnectionsPooled: 0, harness.ConnectionsNew: 0, harness.ConnectionsLongLived: 100,
	} {
		b.Run(string(connections), func(b *testing.B) {
			const rate = 1000
			spec := harness.AttackSpec{
				Target: harness.Target{URL: url, ControlURL: url},
				Load: harness.Load{
					Rate: rate, ControlRate: 10, Connections: connections, LongLived: longLived, Timeout: harness.Dur(10 * time.Second),
				},
				Anchor: harness.NewClock().Anchor(), Limit: harness.Dur(time.Duration(b.N) * time.Second),
			}
			process, cmd := workerProcess("worker")
			failed := 0
			stats, err := process.Attack(b.Context(), spec, func(r harness.Request) {
				if r.Failed() {
					failed++
				}
			})
			if err != nil {
				b.Fatal(err)
			}
			used := cmd().ProcessState.UserTime() + cmd().ProcessState.SystemTime()
			b.ReportMetric(float64(stats.LatenessP50.Microseconds()), "late-p50-µs")
			b.ReportMetric(float64(stats.LatenessP99.Microseconds()), "late-p99-µs")
			b.ReportMetric(float64(stats.LatenessMax.Microseconds()), "late-max-µs")
			b.ReportMetric(stats.AchievedRate, "requests/s")
			b.ReportMetric(float64(failed), "failed")
			b.ReportMetric(100*used.Seconds()/stats.Elapsed.Seconds(), "cpu-%")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// startServer starts a trivial server in a process of its own.
func startServer(b *testing.B) (url string) {
	b.Helper()
	cmd := helper(b.Context(), "server")
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// serveTrivially answers everything until it is killed.
func serveTrivially() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("http://%s/\n", l.Addr())
	return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(harness.PodHeader, "app-1")
		fmt.Fprintf(w, "%s\n", r.Header.Get(harness.RequestIDHeader))
	}))
}
