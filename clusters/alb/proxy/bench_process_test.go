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
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"lameduck/clusters/alb/accesslog"
)

// serveBench serves until stdin ends. Its address is the first line of stdout.
func serveBench(targets []string) error {
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
