package harness

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Expected is how many failed requests are expected: ExpectNone, ExpectSome,
// "at most N" or "at most P%". It is judged per cell, over its valid trials.
type Expected string

// The expectations without a number.
const (
	ExpectNone Expected = "none" // no failed request in any trial
	ExpectSome Expected = "some" // at least one in most trials
)

// The expectations with a number. Each is about every single trial.
const atMost = "at most "

// AtMost expects n failed requests or fewer in each trial.
func AtMost(n int) Expected { return Expected(atMost + strconv.Itoa(n)) }

// AtMostRate expects a share of at most percent of each trial's requests to fail.
func AtMostRate(percent float64) Expected {
	return Expected(atMost + strconv.FormatFloat(percent, 'g', -1, 64) + "%")
}

var errExpected = errors.New(`want none, some, "at most N" (failed requests in a trial) or "at most P%" (of a trial's requests)`)

// Check says whether x is one of the forms.
func (x Expected) Check() error {
	if _, _, err := x.limit(); err != nil && x != ExpectNone && x != ExpectSome {
		return fmt.Errorf("%q: %w", string(x), err)
	}
	return nil
}

// limit is the number of an "at most", and whether it is a percentage.
func (x Expected) limit() (limit float64, percent bool, err error) {
	text, ok := strings.CutPrefix(string(x), atMost)
	if !ok {
		return 0, false, errExpected
	}
	if rate, isRate := strings.CutSuffix(text, "%"); isRate {
		limit, err = strconv.ParseFloat(rate, 64)
		if err != nil || !(limit >= 0 && limit <= 100) { // written so that NaN fails
			return 0, false, errExpected
		}
		return limit, true, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, false, errExpected
	}
	return float64(n), false, nil
}

// IsRate says whether x is about a share of the requests.
func (x Expected) IsRate() bool {
	_, percent, err := x.limit()
	return percent && err == nil
}

// Tried is what one valid trial counted.
type Tried struct{ Requests, Failed int }

// Met says whether a cell's valid trials are as expected. Without a valid trial
// nothing is met.
func (x Expected) Met(trials []Tried) bool {
	if len(trials) == 0 {
		return false
	}
	withFailures := 0
	for _, t := range trials {
		if t.Failed > 0 {
			withFailures++
		}
	}
	switch x {
	case ExpectNone:
		return withFailures == 0
	case ExpectSome:
		return 2*withFailures > len(trials)
	}
	limit, percent, err := x.limit()
	if err != nil {
		return false
	}
	for _, t := range trials {
		failed := float64(t.Failed)
		if percent && t.Requests > 0 {
			failed = 100 * failed / float64(t.Requests)
		}
		if failed > limit {
			return false
		}
	}
	return true
}
