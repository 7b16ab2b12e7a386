package load

import (
	"slices"
	"time"

	"lameduck/harness"
)

// statistics collect what harness.AttackStats tells. Every lateness is kept, 8
// bytes each, so that the percentiles are exact.
type statistics struct {
	lateness []time.Duration
	streams  int
}

func (s *statistics) add(r harness.Request) {
	if r.Stream {
		s.streams++
		return
	}
	s.lateness = append(s.lateness, r.Sent-r.Planned)
}

func (s *statistics) sent() int { return len(s.lateness) }

// result gives the figures of requests that were sent for the given time.
func (s *statistics) result(sending time.Duration) harness.AttackStats {
	stats := harness.AttackStats{Sent: s.sent(), Streams: s.streams, Elapsed: sending}
	if sending > 0 {
		stats.AchievedRate = float64(stats.Sent) / sending.Seconds()
	}
	if stats.Sent > 0 {
		slices.Sort(s.lateness)
		stats.LatenessP50 = percentile(s.lateness, 50)
		stats.LatenessP99 = percentile(s.lateness, 99)
		stats.LatenessMax = s.lateness[len(s.lateness)-1]
	}
	return stats
}

// percentile is the smallest of the sorted values that at least p percent of
// them do not exceed (nearest rank).
func percentile(sorted []time.Duration, p int) time.Duration {
	return sorted[(len(sorted)*p+99)/100-1]
}
