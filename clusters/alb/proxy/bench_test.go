package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"lameduck/clusters/alb/accesslog"
)

// The benchmarks run the load balancer in a process of its own on one core, as
// a copy of the test binary, so that its cost can be told from that of the
// client and the target, and HAProxy with the same job. For one core's worth of
// each, run them one after another on an idle machine:
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

// serveBench serves until stdin ends. Its address is the first line of stdout.
func serveBench(targets []string) error {
	debug.SetGCPercent(gcPercent)
	h, err := NewHangups()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "alb-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	sink, err := accesslog.Open(dir, "ns", "app", 100*time.Millisecond, func(err error) { fmt.Fprintln(os.Stderr, err) })
	if err != nil {
		return err
	}
	r := &benchRouter{}
	for _, addr := range targets {
		r.targets = append(r.targets, benchTarget{NewPool(PoolOptions{Addr: addr, Hangups: h})})
	}
	l, err := Listen(ListenerOptions{Address: netip.MustParseAddrPort("127.0.0.1:0"), Sink: sink, Hangups: h, Messages: os.Stderr})
	if err != nil {
		return err
	}
	if profile := os.Getenv(benchEnv + "_PROFILE"); profile != "" {
		f, err := os.Create(profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	l.Start(r, Limits{})
	fmt.Println(l.Addr())
	_, err = io.Copy(io.Discard, os.Stdin)
	l.Close()
	return err
}

// gcPercent is what the command sets, too: nearly all that is allocated dies
// with its request, and the heap is small.
const gcPercent = 400

// benchRouter gives requests to targets in turn, as one goroutine at a time
// may on one core.
type benchRouter struct {
	mu      sync.Mutex
	next    int
	targets []benchTarget
}

type benchTarget struct{ pool *Pool }

func (t benchTarget) Pool() *Pool { return t.pool }
func (t benchTarget) Done(int)    {}

func (r *benchRouter) Route(Request) Route {
	r.mu.Lock()
	r.next = (r.next + 1) % len(r.targets)
	t := &r.targets[r.next]
	r.mu.Unlock()
	return Route{Priority: 1, Action: "forward", Group: "ns/app:80", Target: t, State: "healthy"}
}

// startBench starts the load balancer.
func startBench(b *testing.B, targets ...string) (addr string, pid int) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), benchEnv+"="+strings.Join(targets, " "), "GOMAXPROCS=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			b.Error(err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatalf("load balancer: %v", err)
	}
	return strings.TrimSpace(line), cmd.Process.Pid
}

// startHAProxy starts the yardstick, if it is installed, with the same job:
// one thread, keep-alive on both sides, connections shared by all clients.
func startHAProxy(b *testing.B, targets ...string) (addr string, pid int) {
	path, err := exec.LookPath("haproxy")
	if err != nil {
		b.Skip("haproxy is not installed: apt-get install haproxy")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	addr = l.Addr().String()
	l.Close()
	config := filepath.Join(b.TempDir(), "haproxy.cfg")
	text := fmt.Sprintf(`global
  nbthread 1
  maxconn 4000
defaults
  mode http
  timeout client 60s
  timeout server 60s
  timeout connect 10s
  retries 0
  option forwardfor
  http-reuse always
listen bench
  bind %s
`, addr)
	for i, t := range targets {
		text += fmt.Sprintf("  server target%d %s\n", i, t)
	}
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(path, "-db", "-f", config)
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Kill() // it holds nothing of ours
		_ = cmd.Wait()
	})
	eventually(b, "haproxy", func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return addr, cmd.Process.Pid
}

// cpuTime is what a process has used so far (proc(5): utime and stime are the
// 14th and 15th field, in hundredths of a second).
func cpuTime(b *testing.B, pid int) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Skipf("no /proc: %v", err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var ticks time.Duration
	for _, f := range fields[11:13] {
		n, err := strconv.Atoi(f)
		if err != nil {
			b.Fatal(err)
		}
		ticks += time.Duration(n)
	}
	return ticks * 10 * time.Millisecond
}

// residentMB is a process's resident memory.
func residentMB(b *testing.B, pid int) float64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Skipf("no /proc: %v", err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kB, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
	if err != nil {
		b.Fatal(err)
	}
	return kB / 1024
}

// startBenchTargets starts targets that answer every request with the same
// bytes, at the least cost.
func startBenchTargets(b *testing.B, n int) (addrs []string) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go answerAll(c)
			}
		}()
		addrs = append(addrs, l.Addr().String())
	}
	return addrs
}

var benchAnswer = []byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 32\r\nX-Lameduck-Pod: app-1\r\n\r\n0123456789abcdef0123456789abcdef")

func answerAll(c net.Conn) {
	defer c.Close()
	buf := make([]byte, 4<<10)
	for {
		if n, err := c.Read(buf); err != nil || !strings.HasSuffix(string(buf[:n]), "\r\n\r\n") {
			return
		}
		if _, err := c.Write(benchAnswer); err != nil {
			return
		}
	}
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
		fmt.Printf("p99 at %d req/s: direct %.2f ms, alb +%.2f ms, haproxy +%.2f ms\n",
			rate, p99["direct"], p99["alb"]-p99["direct"], p99["haproxy"]-p99["direct"])
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
