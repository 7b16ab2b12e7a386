package elb

import (
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"testing"
	"time"
)

// TestThousandTargets: as many as a group may have, on two nodes, checked over
// real connections.
func TestThousandTargets(t *testing.T) {
	const n = 1000
	server := &http.Server{Handler: http.HandlerFunc(ok)}
	defer server.Close()
	var targets []netip.AddrPort
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		targets = append(targets, mustAddr(l.Addr().String()))
		go server.Serve(l)
	}
	memory := func() int64 {
		for range 3 { // pools and what had finalizers take more than one
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc + m.StackInuse)
	}
	before, goroutines := memory(), runtime.NumGoroutine()
	w := newWorld(t, wired, func(o *worldOptions) { o.group.HealthCheck.Interval = time.Hour })
	w.register(targets...)
	healthy := func() (count int) {
		all, err := w.DescribeTargetHealth(t.Context(), groupName)
		w.must(err)
		for _, h := range all {
			if h.State == StateHealthy {
				count++
			}
		}
		return count
	}
	eventually(t, "thousand healthy targets", func() bool { return healthy() == n })
	eventually(t, "end of the checks' goroutines", func() bool { return runtime.NumGoroutine() < goroutines+20 })
	used := memory() - before
	t.Logf("%d targets on two nodes: %d KiB", n, used>>10)
	if used > 20<<20 { // of 200 MB for the whole process
		t.Errorf("%d MiB for %d targets", used>>20, n)
	}
	seen := make(map[string]bool)
	for range n {
		seen[w.where(1, &request{})] = true
	}
	if len(seen) != n {
		t.Errorf("round robin reached %d targets", len(seen))
	}
	w.deregister(targets...)
	w.wantWhere(0, "503 NO_USABLE_TARGET")
}
