package proxy

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// The benchmarks run the load balancer in a process of its own on one core, as
// a copy of the test binary, so that its cost can be told from that of the
// client and the target, and HAProxy with the same job. For one core's worth of
// each, run them on an idle machine:
//
//	go test -run '^$' -bench . -benchtime 5s ./clusters/alb/proxy/
//
// req/cpu-s is requests per second of the process's own CPU time.
const benchEnv = "LAMEDUCK_ALB_BENCH_TARGETS"

// TestMain lets the test binary be the load balancer of the benchmarks.
func TestMain(m *testing.M) {
	if targets := os.Getenv(benchEnv); targets != "" {
		if err := serveBench(strings.Fields(targets)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

var balancers = []struct {
	name  string
	start func(*testing.B, ...string) (string, int)
}{{"alb", startBench}, {"haproxy", startHAProxy}}

func BenchmarkThroughput(b *testing.B) {
	rate, perCPU := make(map[string]float64), make(map[string]float64)
	for _, lb := range balancers {
		b.Run(lb.name, func(b *testing.B) {
			const connections = 32
			addr, pid := lb.start(b, startBenchTargets(b, 1)...)
			send(b, addr, connections, connections*10)
			before := cpuTime(b, pid)
			b.ResetTimer()
			send(b, addr, connections, b.N)
			b.StopTimer()
			used := cpuTime(b, pid) - before
			perCPU[lb.name] = float64(b.N) / max(used.Seconds(), 0.01)
			rate[lb.name] = float64(b.N) / b.Elapsed().Seconds()
			b.ReportMetric(perCPU[lb.name], "req/cpu-s")
			b.ReportMetric(rate[lb.name], "req/s")
		})
	}
	if rate["haproxy"] > 0 && rate["alb"] > 0 {
		fmt.Printf("alb/haproxy: %.2f of the req/s, %.2f of the req/cpu-s\n", rate["alb"]/rate["haproxy"], perCPU["alb"]/perCPU["haproxy"])
	}
}

// send sends n requests over keep-alive connections.
func send(b *testing.B, addr string, connections, n int) {
	var wg sync.WaitGroup
	for i := range connections {
		share := n / connections
		if i < n%connections {
			share++
		}
		wg.Go(func() {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				b.Error(err)
				return
			}
			defer c.Close()
			buf := make([]byte, 4<<10)
			for range share {
				if !ask(b, c, buf) {
					return
				}
			}
		})
	}
	wg.Wait()
}

var benchRequest = []byte("GET /path HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: bench\r\nX-Lameduck-Request: r-000001\r\n\r\n")

func ask(b *testing.B, c net.Conn, buf []byte) bool {
	if _, err := c.Write(benchRequest); err != nil {
		b.Error(err)
		return false
	}
	got, err := c.Read(buf)
	if err != nil || !strings.HasPrefix(string(buf[:got]), "HTTP/1.1 200 ") {
		b.Errorf("answer %q, %v", buf[:got], err)
		return false
	}
	return true
}

// BenchmarkLatency sends at a constant rate and reports percentiles, without a
// load balancer, too: the difference is what it adds. It sends for 5 s, however
// many iterations are asked for.
func BenchmarkLatency(b *testing.B) {
	const rate, connections, period = 1000, 50, 5 * time.Second
	p99 := make(map[string]float64)
	direct := balancers[0]
	direct.name = "direct"
	direct.start = func(_ *testing.B, targets ...string) (string, int) { return targets[0], 0 }
	for _, lb := range append([]struct {
		name  string
		start func(*testing.B, ...string) (string, int)
	}{direct}, balancers...) {
		b.Run(lb.name, func(b *testing.B) {
			addr, _ := lb.start(b, startBenchTargets(b, 1)...)
			pace(b, addr, rate, connections, period/10)
			took := pace(b, addr, rate, connections, period)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(percentile(took, 0.5), "p50-ms")
			p99[lb.name] = percentile(took, 0.99)
			b.ReportMetric(p99[lb.name], "p99-ms")
		})
	}
	if p99["haproxy"] > 0 {
		fmt.Printf("p99 at %d req/s: direct %.2f ms, alb %.2f ms, haproxy %.2f ms; alb - haproxy: %+.2f ms\n",
			rate, p99["direct"], p99["alb"], p99["haproxy"], p99["alb"]-p99["haproxy"])
	}
}

// BenchmarkManyTargets reports the memory with 1000 targets at 5000 req/s.
func BenchmarkManyTargets(b *testing.B) {
	addr, pid := startBench(b, startBenchTargets(b, 1000)...)
	took := pace(b, addr, 5000, 200, 5*time.Second)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(len(took))/5, "req/s")
	b.ReportMetric(percentile(took, 0.99), "p99-ms")
	b.ReportMetric(residentMB(b, pid), "peak-MB")
}

// pace sends at a constant rate over keep-alive connections and returns how
// long answers took, counted from when the request was due, sorted.
func pace(b *testing.B, addr string, rate, connections int, period time.Duration) []time.Duration {
	each := int(period.Seconds()*float64(rate)) / connections
	gap := time.Second * time.Duration(connections) / time.Duration(rate)
	all := make([][]time.Duration, connections)
	start := time.Now().Add(50 * time.Millisecond)
	var wg sync.WaitGroup
	for i := range connections {
		wg.Go(func() {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				b.Error(err)
				return
			}
			defer c.Close()
			buf := make([]byte, 4<<10)
			due := start.Add(gap * time.Duration(i) / time.Duration(connections))
			for range each {
				time.Sleep(time.Until(due))
				if !ask(b, c, buf) {
					return
				}
				all[i] = append(all[i], time.Since(due))
				due = due.Add(gap)
			}
		})
	}
	wg.Wait()
	took := slices.Concat(all...)
	slices.Sort(took)
	if len(took) == 0 {
		b.Fatal("no answers")
	}
	return took
}

// percentile is in milliseconds.
func percentile(sorted []time.Duration, p float64) float64 {
	return float64(sorted[int(p*float64(len(sorted)-1))]) / float64(time.Millisecond)
}
