package harness

import (
	"fmt"
	"os"
	"time"
)

// cpuUse is how busy the machine was during an attack.
type cpuUse struct {
	mean      float64 // 0..1 of all cores
	saturated float64 // share of one-second samples that were at least saturatedAt busy
	known     bool    // false where /proc/stat can not be read
}

// saturatedAt is the share of busy time from which on a second counts as
// saturated.
const saturatedAt = 0.97

func (c cpuUse) String() string {
	if !c.known {
		return "not known on this system"
	}
	return fmt.Sprintf("%.0f %% busy on average, saturated in %.0f %% of the seconds, of which %.0f %% may be; if it was not: try --parallel 1, or a machine with less to do",
		100*c.mean, 100*c.saturated, 100*maxSaturated)
}

// watchCPU samples the machine's CPU time once a second until stop is called.
func watchCPU(read func() (CPUTimes, bool)) (stop func() cpuUse) {
	quit, done := make(chan struct{}), make(chan cpuUse, 1)
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		first, ok := read()
		last, samples, saturated := first, 0, 0
		for {
			select {
			case <-tick.C:
				now, known := read()
				ok = ok && known
				samples++
				if now.busyShareSince(last) >= saturatedAt {
					saturated++
				}
				last = now
			case <-quit:
				now, known := read()
				use := cpuUse{mean: now.busyShareSince(first), known: ok && known}
				if samples > 0 {
					use.saturated = float64(saturated) / float64(samples)
				}
				done <- use
				return
			}
		}
	}()
	return func() cpuUse { close(quit); return <-done }
}

// CPUTimes are a machine's busy and idle time since boot, in ticks, as in the
// first line of /proc/stat (proc(5)). The time of niced processes counts as
// idle: they give it up as soon as anything else wants it.
type CPUTimes struct{ Busy, Idle uint64 }

func (c CPUTimes) busyShareSince(past CPUTimes) float64 {
	if c.Busy < past.Busy || c.Idle < past.Idle {
		return 0 // iowait, a part of Idle, may decrease (proc(5))
	}
	busy, idle := c.Busy-past.Busy, c.Idle-past.Idle
	if busy+idle == 0 {
		return 0
	}
	return float64(busy) / float64(busy+idle)
}

// ReadCPU reads them; false where there is no /proc/stat.
func ReadCPU() (CPUTimes, bool) {
	f, err := os.Open("/proc/stat")
	if err != nil {
		return CPUTimes{}, false
	}
	defer f.Close()
	var user, nice, system, idle, iowait, irq, softirq, steal uint64
	if _, err := fmt.Fscanf(f, "cpu %d %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &iowait, &irq, &softirq, &steal); err != nil {
		return CPUTimes{}, false
	}
	return CPUTimes{Busy: user + system + irq + softirq + steal, Idle: nice + idle + iowait}, true
}
