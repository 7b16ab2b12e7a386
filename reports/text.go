package reports

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"lameduck/harness"
	"lameduck/harness/record"
)

// orDash is a number, or a dash for zero, which lets the others stand out.
func orDash(n int) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

// secondsText is a length with as many digits as a reader can use.
func secondsText(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%.2f s", d.Seconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// boundText is the upper bound in whole percent, rounded up: it is a bound.
func boundText(share float64) string {
	percent := int(math.Ceil(100*share - 1e-9))
	return fmt.Sprintf("%d %%", min(percent, 99))
}

// joinWords is a list with a separator; joinAnd one for prose.
func joinWords[T ~string](words []T, separator string) string {
	texts := make([]string, len(words))
	for i, word := range words {
		texts[i] = string(word)
	}
	return strings.Join(texts, separator)
}

func joinAnd(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

// listText is 1, 2, 3.
func listText(numbers []int) string {
	texts := make([]string, len(numbers))
	for i, n := range numbers {
		texts[i] = fmt.Sprint(n)
	}
	return strings.Join(texts, ", ")
}

// count is 1 trial, 2 trials.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// outcomesText is ok 90, 502 7, timeout 3, in the order of harness.Outcomes;
// outcomes that this version does not know come last.
func outcomesText(counts map[harness.Outcome]int) string {
	var parts []string
	for _, outcome := range orderedOutcomes(counts) {
		if n := counts[outcome]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", outcome, n))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

func orderedOutcomes(counts map[harness.Outcome]int) []harness.Outcome {
	ordered := slices.Clone(harness.Outcomes)
	for _, outcome := range slices.Sorted(maps.Keys(counts)) {
		if !slices.Contains(ordered, outcome) {
			ordered = append(ordered, outcome)
		}
	}
	return ordered
}

// failures is 7 x 502, 3 x timeout: what outcomesText has but the successes.
func failures(counts map[harness.Outcome]int) string {
	var parts []string
	for _, outcome := range orderedOutcomes(counts) {
		if n := counts[outcome]; n > 0 && outcome != harness.OutcomeOK {
			parts = append(parts, fmt.Sprintf("%d x %s", n, outcome))
		}
	}
	return strings.Join(parts, ", ")
}

// cellName tells a cell from the others of its run.
func cellName(c harness.Cell) string {
	name := fmt.Sprintf("%s, %s targets, %s connections", c.Mitigation, c.TargetType, c.Connections)
	if c.Faults != "" {
		name += ", faults " + c.Faults
	}
	return name
}

// name is a trial's number, with its attempt if that is not the first.
func (t Trial) name() string {
	switch t.Attempt {
	case 0, 1:
		return fmt.Sprint(t.Number)
	case 2:
		return fmt.Sprintf("%d (2nd attempt)", t.Number)
	}
	return fmt.Sprintf("%d (attempt %d)", t.Number, t.Attempt)
}

// oneLine makes a text fit into a line of a list.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// setAside says, one sentence each, which trials are in no count, and why.
func setAside(r Report) []string {
	var lines []string
	notStarted := 0
	for i, t := range r.Trials {
		name := fmt.Sprintf("trial %s, %s,", t.name(), cellName(t.Cell))
		switch {
		case t.State == record.NotStarted:
			notStarted++
		case t.State == record.Incomplete:
			lines = append(lines, fmt.Sprintf("%s was cut off after %s, %d of them failed", name, count(t.Requests, "request"), t.Failed))
		case !t.Valid():
			line := fmt.Sprintf("%s is invalid: %s", name, oneLine(t.Reason))
			if i+1 < len(r.Trials) && r.Trials[i+1].Number == t.Number {
				line += "; " + repetitionText(r.Trials[i+1])
			}
			lines = append(lines, line)
		}
	}
	if notStarted > 0 {
		lines = append(lines, count(notStarted, "planned trial")+" never started")
	}
	return lines
}

// repetitionText says what came of the next attempt of an invalid trial.
func repetitionText(t Trial) string {
	switch {
	case t.State != record.Complete:
		return "its repetition was cut off"
	case !t.Valid():
		return "its repetition is invalid too"
	}
	return "its repetition is valid"
}

// resumedNotes say at which times the run was interrupted, and what differed
// after that.
func resumedNotes(r Report) []string {
	var notes []string
	for _, on := range r.Resumed {
		note := fmt.Sprintf("the run was interrupted, and resumed at %s as run %s", on.Started, on.ID)
		if on.Tool != r.Run.Tool {
			note += fmt.Sprintf(" by lameduck %s instead of %s", on.Tool, r.Run.Tool)
		}
		if len(on.Differs) > 0 {
			note += ", with another environment: " + strings.Join(on.Differs, "; ")
		}
		notes = append(notes, note)
	}
	if r.CutOff > 0 {
		notes = append(notes, count(r.CutOff, "trial")+" cut off by that, run anew from the beginning and counted once; the first records are in the directory interrupted")
	}
	return notes
}

// bounds says what cells without a failure leave possible; "" without any.
func bounds(r Report) string {
	var trials []int
	for _, c := range r.Cells {
		if c.Clean() {
			trials = append(trials, c.Valid())
		}
	}
	slices.Sort(trials)
	var parts []string
	for _, n := range slices.Compact(trials) {
		parts = append(parts, fmt.Sprintf("up to %s with %s", boundText(upperBound(n)), count(n, "trial")))
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("Where no request failed, a failure in some such %s is still possible: %s (95 %% confidence).", occasions(r), joinAnd(parts))
}

// wrap breaks a text into lines of at most width columns, the later ones
// indented; 0 is without limit. A word that is longer has a line of its own.
func wrap(text string, width int, indent string) string {
	if width <= 0 {
		return text + "\n"
	}
	var out strings.Builder
	column := 0
	for _, word := range strings.Fields(text) {
		length := utf8.RuneCountInString(word)
		switch {
		case column == 0:
		case column+1+length > width:
			out.WriteString("\n" + indent)
			column = len(indent)
		default:
			out.WriteByte(' ')
			column++
		}
		out.WriteString(word)
		column += length
	}
	return out.String() + "\n"
}

// headline says what was run, where and for how long.
func headline(r Report) string {
	env := r.Run.Environment
	valid, requests := 0, 0
	for _, c := range r.Cells {
		valid += c.Valid()
		requests += c.Requests
	}
	text := fmt.Sprintf("%s on %s (Kubernetes %s, %s, kernel %s): %s x %s, %s, %s",
		r.Run.Experiment.Name, env.Provider, env.Kubernetes, count(env.Nodes, "node"), env.Kernel,
		count(len(r.Cells), "cell"), count(r.Run.Experiment.Repeats, "repeat"), count(valid, "valid trial"), count(requests, "request"))
	if took, ok := r.took(); ok && len(r.Resumed) == 0 {
		text += " in " + tookText(took)
	}
	return text
}

// took is how long the run lasted.
func (r Report) took() (time.Duration, bool) {
	start, err := time.Parse(time.RFC3339, r.Run.Started)
	if err != nil {
		return 0, false
	}
	end, err := time.Parse(time.RFC3339, r.Ended)
	if err != nil {
		return 0, false
	}
	return end.Sub(start), true
}

func tookText(d time.Duration) string {
	if d < 2*time.Minute {
		return fmt.Sprintf("%.0f s", d.Seconds())
	}
	return fmt.Sprintf("%.0f min", d.Minutes())
}
