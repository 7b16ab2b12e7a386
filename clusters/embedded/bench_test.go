//go:build e2e

package embedded

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lameduck/clusters/embedded/sweep"
)

// BenchmarkCluster measures what the project promises of an embedded cluster
// with two nodes. Run it with -benchtime=1x on an otherwise idle machine: the
// second run on, when the binaries are in the page cache, is "warm".
//
//	up-s          from nothing to a cluster that is ready
//	first-pod-s   from nothing to the first ready pod (promised: 6)
//	20-pods-s     from 1 to 20 ready pods (promised: 8)
//	memory-MB     of all processes then, shared pages counted once (promised: 2048)
//	idle-mcores   CPU that the cluster uses with one idle pod
//	clean-s       until nothing is left
func BenchmarkE2ECluster(b *testing.B) {
	const name = "bench"
	for b.Loop() {
		p := newProvider(b, name)
		start := time.Now()
		c, client := up(b, p, name, 2)
		upTime := time.Since(start)
		image := loadTarget(b, c)
		deploy(b, client, image, 1)
		waitReplicas(b, client, 1)
		first := time.Since(start)
		time.Sleep(10 * time.Second) // until the work that follows a start is done
		idle := cpuUse(b, p, name, 10*time.Second)
		scale(b, client, 20)
		twenty := waitReplicas(b, client, 20)
		memory := memoryMB(b, p, name)
		start = time.Now()
		if err := p.Clean(b.Context(), name, io.Discard); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(start).Seconds(), "clean-s")
		b.ReportMetric(upTime.Seconds(), "up-s")
		b.ReportMetric(first.Seconds(), "first-pod-s")
		b.ReportMetric(twenty.Seconds(), "20-pods-s")
		b.ReportMetric(memory, "memory-MB")
		b.ReportMetric(idle, "idle-mcores")
		b.ReportMetric(0, "ns/op") // says nothing here
	}
}

// BenchmarkE2ETenNodes measures a cluster of the size that is promised to come
// up: 10 nodes and 200 pods.
//
//	up-s        from nothing to a cluster that is ready
//	200-pods-s  from none to 200 ready pods
//	memory-MB   of all processes then, shared pages counted once
//	inotify     instances in use then (preflight's inotifyPerNode and inotifyBase)
//	clean-s     until nothing is left
func BenchmarkE2ETenNodes(b *testing.B) {
	const name, nodes, pods = "bench-ten", 10, 200
	for b.Loop() {
		p := newProvider(b, name)
		start := time.Now()
		c, client := up(b, p, name, nodes)
		b.ReportMetric(time.Since(start).Seconds(), "up-s")
		image := loadTarget(b, c)
		deploy(b, client, image, pods)
		b.ReportMetric(waitReplicas(b, client, pods).Seconds(), "200-pods-s")
		b.ReportMetric(memoryMB(b, p, name), "memory-MB")
		watching := 0
		for _, proc := range sweep.System("/").Processes(p.layout(name).scope()) {
			watching += inotifyInUse(fmt.Sprintf("/proc/%d", proc.PID))
		}
		b.ReportMetric(float64(watching), "inotify")
		start = time.Now()
		if err := p.Clean(b.Context(), name, io.Discard); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(start).Seconds(), "clean-s")
		b.ReportMetric(0, "ns/op") // says nothing here
	}
}

// memoryMB is the proportional set size of all processes of a cluster.
func memoryMB(b *testing.B, p *Provider, name string) float64 {
	b.Helper()
	total := 0.0
	for _, proc := range sweep.System("/").Processes(p.layout(name).scope()) {
		f, err := os.Open(filepath.Join("/proc", fmt.Sprint(proc.PID), "smaps_rollup"))
		if err != nil {
			continue // gone meanwhile
		}
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			if value, ok := strings.CutPrefix(lines.Text(), "Pss:"); ok {
				var kB float64
				fmt.Sscan(value, &kB)
				total += kB / 1024
			}
		}
		f.Close()
	}
	if total == 0 {
		b.Fatal("no process has memory")
	}
	return total
}

// cpuUse is the CPU time per second of all processes of a cluster, in
// thousandths of a core.
func cpuUse(b *testing.B, p *Provider, name string, d time.Duration) float64 {
	b.Helper()
	before := cpuTicks(p, name)
	time.Sleep(d)              // the measurement
	const ticksPerSecond = 100 // USER_HZ on all architectures of ours
	return (cpuTicks(p, name) - before) / ticksPerSecond / d.Seconds() * 1000
}

func cpuTicks(p *Provider, name string) float64 {
	total := 0.0
	for _, proc := range sweep.System("/").Processes(p.layout(name).scope()) {
		stat, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(proc.PID), "stat"))
		if err != nil {
			continue
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		var user, system float64
		fmt.Sscan(fields[11]+" "+fields[12], &user, &system)
		total += user + system
	}
	return total
}
