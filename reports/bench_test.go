package reports

import "testing"

// BenchmarkSummarize reports what one request costs, and what a run with ten
// million of them would take at that.
func BenchmarkSummarize(b *testing.B) {
	dir := aRun(b)
	n := 0
	for b.Loop() {
		n = 0
		for _, t := range read(b, dir).Trials {
			n += t.Requests + t.Control
		}
	}
	perRequest := float64(b.Elapsed().Nanoseconds()) / float64(b.N) / float64(n)
	b.ReportMetric(perRequest, "ns/request")
	b.ReportMetric(perRequest*1e7/1e9, "s/10M-requests")
}
