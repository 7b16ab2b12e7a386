package main

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"time"

	"lameduck/harness"
)

// z99 is the standard normal distribution's 99th percentile.
const z99 = 2.3263478740408408

// responseTimes draws response times.
type responseTimes struct {
	mu, sigma float64 // of the logarithm of seconds
	slowShare float64
	slow      time.Duration
	// Sources of randomness, safe for concurrent use.
	normal, uniform func() float64
}

// newResponseTimes fits a log-normal distribution to the two percentiles: its
// logarithm is normal, with its median at ln(p50) and ln(p99) z99 deviations
// above.
func newResponseTimes(r harness.ResponseTime) responseTimes {
	return responseTimes{
		mu:        math.Log(r.P50.Seconds()),
		sigma:     math.Log(r.P99.Seconds()/r.P50.Seconds()) / z99,
		slowShare: r.SlowShare, slow: r.Slow.Duration,
		normal: rand.NormFloat64, uniform: rand.Float64,
	}
}

// of is the response time of the request with this id, "" for none. Which
// requests are slow depends on nothing but their ids: trials that send the
// same ids have the same slow requests, so that they differ by what is
// examined and not by the luck of a draw of few large values.
func (r responseTimes) of(id string) time.Duration {
	if r.slowShare > 0 {
		draw := r.uniform
		if id != "" {
			draw = func() float64 { return hashShare(id) }
		}
		if draw() < r.slowShare {
			return r.slow
		}
	}
	return time.Duration(math.Exp(r.mu+r.sigma*r.normal()) * float64(time.Second))
}

// hashShare maps an id to 0..1, excluding 1. Ids differ in one digit only; a
// cryptographic hash spreads them evenly all the same.
func hashShare(id string) float64 {
	sum := sha256.Sum256([]byte(id))
	return float64(binary.BigEndian.Uint64(sum[:])>>11) / (1 << 53)
}
