package reports

import (
	"fmt"
	"math"
	"strings"
	"time"

	"lameduck/harness"
)

// editDiff shows a mitigation as a change of the workload's manifest, as a
// unified diff without hunk headers. Empty when it changes nothing there.
func editDiff(from harness.Setup, m harness.Mitigation) (string, error) {
	to, err := m.Apply(from)
	if err != nil {
		return "", fmt.Errorf("show the edit: %w", err)
	}
	var d diff
	was, is := from.Workload, to.Workload
	d.same("spec:", "  template:", "    spec:")
	d.change("      terminationGracePeriodSeconds: "+seconds(was.GracePeriod), "      terminationGracePeriodSeconds: "+seconds(is.GracePeriod))
	d.same("      containers:", "        - name: app")
	d.change(sigtermArg(was), sigtermArg(is))
	if was.PreStopSleep != is.PreStopSleep {
		if was.PreStopSleep.Duration > 0 && is.PreStopSleep.Duration > 0 {
			d.same("          lifecycle:", "            preStop:")
			d.change(sleepAction(was), sleepAction(is))
		} else {
			d.change(preStop(was), preStop(is))
		}
	}
	if !d.changed {
		return "", nil
	}
	return d.String(), nil
}

// editAdvice are sentences about what the diff alone does not tell.
func editAdvice(from harness.Setup, m harness.Mitigation) []string {
	to, err := m.Apply(from)
	if err != nil {
		return nil
	}
	var advice []string
	was, is := from.Workload, to.Workload
	if is.PreStopSleep != was.PreStopSleep && is.PreStopSleep.Duration > 0 {
		advice = append(advice, fmt.Sprintf("The `sleep` action needs Kubernetes 1.30; before that use `exec: {command: [\"sleep\", \"%s\"]}`, "+
			"which is also what was measured here.", seconds(is.PreStopSleep)))
	}
	if is.OnSIGTERM != was.OnSIGTERM || is.SIGTERMWait != was.SIGTERMWait {
		advice = append(advice, fmt.Sprintf("The argument is the built-in application's. In your own, handle SIGTERM so that it %s.", sigtermText(is)))
	}
	if busy := is.PreStopSleep.Duration + is.SIGTERMWait.Duration; busy > 0 {
		left := is.GracePeriod.Duration - busy
		if left <= 0 {
			advice = append(advice, fmt.Sprintf("The grace period (%s) ends before the waiting (%s) does: requests in flight are cut by SIGKILL. Make it longer.",
				is.GracePeriod, busy))
		} else {
			advice = append(advice, fmt.Sprintf("preStop counts against the grace period: %s of it are left to finish requests. Raise it if yours take longer.", left))
		}
	}
	return advice
}

func sigtermArg(w harness.Workload) string {
	arg := string(w.OnSIGTERM)
	if w.OnSIGTERM == harness.SIGTERMWait {
		arg += "=" + w.SIGTERMWait.String()
	}
	return `          args: ["--on-sigterm=` + arg + `"]`
}

func sigtermText(w harness.Workload) string {
	switch w.OnSIGTERM {
	case harness.SIGTERMWait:
		return fmt.Sprintf("goes on serving, new connections too, for %s, and only then stops listening and finishes what is in flight", w.SIGTERMWait)
	case harness.SIGTERMDrain:
		return "stops listening, finishes what is in flight, and exits"
	case harness.SIGTERMIgnore:
		return "goes on serving"
	}
	return "exits at once"
}

func sleepAction(w harness.Workload) string {
	return "              sleep: {seconds: " + seconds(w.PreStopSleep) + "}"
}

func preStop(w harness.Workload) string {
	if w.PreStopSleep.Duration == 0 {
		return ""
	}
	return "          lifecycle:\n            preStop:\n" + sleepAction(w)
}

// seconds is a duration as manifests have it: whole seconds, rounded up.
func seconds(d harness.Duration) string {
	return fmt.Sprint(int(math.Ceil(d.Duration.Seconds() - float64(time.Nanosecond)/float64(time.Second))))
}

// diff collects lines that are the same, gone or new.
type diff struct {
	strings.Builder
	changed bool
}

func (d *diff) same(lines ...string) {
	for _, line := range lines {
		d.WriteString(" " + line + "\n")
	}
}

// change takes texts of no, one or several lines, and shows nothing when they
// are the same.
func (d *diff) change(from, to string) {
	if from == to {
		return
	}
	d.changed = true
	d.marked("-", from)
	d.marked("+", to)
}

func (d *diff) marked(mark, text string) {
	if text == "" {
		return
	}
	for line := range strings.Lines(text + "\n") {
		d.WriteString(mark + line)
	}
}
