package elb

import (
	"fmt"
	"math/rand/v2"
	"time"

	"lameduck/harness"
)

// Range is a time that is drawn anew each time it is needed, evenly from Min
// to Max.
type Range struct{ Min, Max time.Duration }

// maxRange is the longest lag that makes sense: more than any report has.
const maxRange = time.Hour

// presets are the ranges with a name.
var presets = map[string]Range{
	"none": {},
	"17s":  {17 * time.Second, 17 * time.Second},   // after a drain, two pods, ip targets (O)
	"nlb":  {120 * time.Second, 180 * time.Second}, // what is reported of Network Load Balancers (O)
}

// ParseRange reads a preset (none, 17s, nlb), a time like 3s or a range like
// 5s..20s. The error begins with the value.
func ParseRange(value string) (Range, error) {
	if r, ok := presets[value]; ok {
		return r, nil
	}
	var d harness.DurationRange
	err := d.UnmarshalText([]byte(value))
	r := Range(d)
	if err != nil || r.check() != nil {
		return Range{}, fmt.Errorf("%q: want none, 17s, nlb, a time like 3s, or a range like 5s..20s, within 0s..%s", value, maxRange)
	}
	return r, nil
}

func (r Range) check() error {
	if r.Min < 0 || r.Max < r.Min || r.Max > maxRange {
		return fmt.Errorf("is %s: want a range within 0s..%s, the lower end first", r, maxRange)
	}
	return nil
}

// String is a form that ParseRange reads.
func (r Range) String() string { return harness.DurationRange(r).String() }

func (r Range) draw() time.Duration { return r.Min + rand.N(r.Max-r.Min+1) }
