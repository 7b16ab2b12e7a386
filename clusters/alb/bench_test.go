package alb

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// The benchmark runs the load balancer in a process of its own on one core, as
// a copy of the test binary, so that its cost can be told from that of the
// client and the target: req/cpu-s is requests per second of its CPU time.
const benchEnv = "LAMEDUCK_ALB_BENCH_TARGET"

// TestMain lets the test binary be the load balancer of BenchmarkThroughput.
func TestMain(m *testing.M) {
	if target := os.Getenv(benchEnv); target != "" {
		if err := serveBench(target); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// serveBench serves until stdin ends. Its address is the first line of stdout.
func serveBench(target string) error {
	h, err := newHangups()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "alb-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b, err := newBalancer(&environment{address: "127.0.0.1", logDir: dir, settings: Settings{}.withDefaults(), hangups: h, messages: os.Stderr}, "ns", "app")
	if err != nil {
		return err
	}
	err = b.apply(model{
		ports: []uint16{0}, idleTimeout: defaultIdleTimeout, clientKeepAlive: defaultClientKeepAlive,
		rules:  []ruleModel{{paths: []string{"/*"}, group: "g"}},
		groups: map[string]groupModel{"g": {targets: []string{target}}},
	})
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
	fmt.Println(b.listeners[0].tcp.Addr())
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	return b.close(0)
}

// startBench starts the load balancer.
func startBench(b *testing.B, target string) (addr string, pid int) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), benchEnv+"="+target, "GOMAXPROCS=1")
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
func startHAProxy(b *testing.B, target string) (addr string, pid int) {
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
  maxconn 1000
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
  server target %s
`, addr, target)
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

// benchTarget answers every request with the same bytes, at the least cost.
func benchTarget(b *testing.B) string {
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
			go func() {
				defer c.Close()
				buf := make([]byte, 4<<10)
				answer := []byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 32\r\nX-Lameduck-Pod: app-1\r\n\r\n0123456789abcdef0123456789abcdef")
				for {
					if n, err := c.Read(buf); err != nil || !strings.HasSuffix(string(buf[:n]), "\r\n\r\n") {
						return
					}
					if _, err := c.Write(answer); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

func BenchmarkThroughput(b *testing.B) {
	for name, start := range map[string]func(*testing.B, string) (string, int){"alb": startBench, "haproxy": startHAProxy} {
		b.Run(name, func(b *testing.B) {
			const connections = 32
			addr, pid := start(b, benchTarget(b))
			send(b, addr, connections, connections*10)
			before := cpuTime(b, pid)
			b.ResetTimer()
			send(b, addr, connections, b.N)
			b.StopTimer()
			used := cpuTime(b, pid) - before
			b.ReportMetric(float64(b.N)/max(used.Seconds(), 0.01), "req/cpu-s")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "req/s")
		})
	}
}

// send sends n requests over keep-alive connections.
func send(b *testing.B, addr string, connections, n int) {
	request := []byte("GET /path HTTP/1.1\r\nHost: " + addr + "\r\nUser-Agent: bench\r\nX-Lameduck-Request: r-000001\r\n\r\n")
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
				if _, err := c.Write(request); err != nil {
					b.Error(err)
					return
				}
				got, err := c.Read(buf)
				if err != nil || !strings.HasPrefix(string(buf[:got]), "HTTP/1.1 200 ") {
					b.Errorf("answer %q, %v", buf[:got], err)
					return
				}
			}
		})
	}
	wg.Wait()
}
