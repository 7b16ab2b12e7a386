package record

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"lameduck/harness"
)

// realistic is a request as an attack of 300 per second makes them: jitter in
// the nanoseconds, log-normal latency, six pods.
func realistic(r *rand.Rand, i int) harness.Request {
	planned := time.Duration(i) * time.Second / 300
	return harness.Request{
		ID: fmt.Sprintf("r%d", i), Control: i%30 == 7, Planned: planned,
		Sent:    planned + time.Duration(50e3+20e3*r.ExpFloat64()),
		Latency: time.Duration(20e6 * math.Exp(0.6*r.NormFloat64())),
		Outcome: harness.OutcomeOK, Status: 200, Reused: true, Attempts: 1,
		Pod: fmt.Sprintf("app-5d8f7c9b6d-%05d", 10007*r.IntN(6)),
	}
}

// BenchmarkWrite is what one request costs the load generator, with a flush
// every 75 requests as at 300 per second. It reports bytes on disk too.
func BenchmarkWrite(b *testing.B) {
	path := filepath.Join(b.TempDir(), requestsFile)
	f, err := createFile(path)
	if err != nil {
		b.Fatal(err)
	}
	lines, err := newZstdFile(f)
	if err != nil {
		b.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	n := 0
	for b.Loop() {
		lines.addJSON(realistic(r, n))
		if n++; n%75 == 0 {
			lines.flush()
		}
	}
	if err := lines.close(); err != nil {
		b.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(info.Size())/float64(n), "disk-B/op")
}

// BenchmarkRead is what one request costs a report.
func BenchmarkRead(b *testing.B) {
	path := filepath.Join(b.TempDir(), requestsFile)
	f, err := createFile(path)
	if err != nil {
		b.Fatal(err)
	}
	lines, err := newZstdFile(f)
	if err != nil {
		b.Fatal(err)
	}
	const n = 100000
	r := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		lines.addJSON(realistic(r, i))
	}
	if err := lines.close(); err != nil {
		b.Fatal(err)
	}
	trial := Trial{Dir: filepath.Dir(path)}
	for b.Loop() {
		got := 0
		if _, err := trial.Requests(func(harness.Request) error { got++; return nil }); err != nil || got != n {
			b.Fatalf("%d requests, %v", got, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/request")
}
