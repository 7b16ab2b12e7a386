package reports

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// ending sums up pods of one cell that ended alike.
type ending struct {
	Exited       bool
	ExitCode     int
	Reason       string
	Pods         int
	First, Last  time.Duration // the shortest and longest time from deletion to exit
	Gone         int           // of Pods, those that were seen to go
	GoneLast     time.Duration // the longest time from deletion until the pod was gone
	GoneEarliest time.Duration
}

// endings groups pods by how they ended: exits first, by code.
func endings(pods []PodEnd) []ending {
	type key struct {
		exited bool
		code   int
		reason string
	}
	groups := make(map[key]*ending)
	for _, p := range pods {
		k := key{p.Exited, p.ExitCode, p.Reason}
		g, ok := groups[k]
		if !ok {
			g = &ending{Exited: p.Exited, ExitCode: p.ExitCode, Reason: p.Reason, First: p.AfterExit, Last: p.AfterExit}
			groups[k] = g
		}
		g.Pods++
		g.First, g.Last = min(g.First, p.AfterExit), max(g.Last, p.AfterExit)
		if p.Gone {
			if g.Gone == 0 {
				g.GoneEarliest = p.AfterGone
			}
			g.Gone++
			g.GoneEarliest, g.GoneLast = min(g.GoneEarliest, p.AfterGone), max(g.GoneLast, p.AfterGone)
		}
	}
	var out []ending
	for _, g := range groups {
		out = append(out, *g)
	}
	slices.SortFunc(out, func(a, b ending) int {
		if a.Exited != b.Exited {
			if a.Exited {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.ExitCode, b.ExitCode), cmp.Compare(a.Reason, b.Reason))
	})
	return out
}

// Exit codes of processes that a signal ended, 128 + its number as container
// runtimes have it.
const (
	exitSIGKILL = 128 + 9
	exitSIGTERM = 128 + 15
)

// exitText names an exit code.
func (e ending) exitText() string {
	switch {
	case !e.Exited:
		return "not seen"
	case e.ExitCode == exitSIGKILL:
		return "137 (SIGKILL)"
	case e.ExitCode == exitSIGTERM:
		return "143 (SIGTERM)"
	}
	return fmt.Sprint(e.ExitCode)
}

// rangeText is 10.1 to 10.4 s, or 10.1 s.
func rangeText(from, to time.Duration) string {
	a, b := fmt.Sprintf("%.1f", from.Seconds()), fmt.Sprintf("%.1f", to.Seconds())
	if a == b {
		return a + " s"
	}
	return a + " to " + b + " s"
}
