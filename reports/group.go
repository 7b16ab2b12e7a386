package reports

import (
	"fmt"
	"slices"
	"strings"

	"lameduck/harness"
)

// group is what verdicts are given for: what is true of one target type, or
// while one thing is broken, says nothing about another.
type group struct {
	target harness.TargetType // before mitigations, which may change it
	faults string
}

// groups are those of the run's cells, in their order.
func groups(r Report) []group {
	var all []group
	for _, c := range r.Cells {
		if g := groupOf(r.Run.Experiment, c.Cell); !slices.Contains(all, g) {
			all = append(all, g)
		}
	}
	return all
}

// groupOf puts a mitigation that changes the target type beside those which
// keep it: it is an answer to the same failures.
func groupOf(e harness.Experiment, c harness.Cell) group {
	g := group{c.TargetType, c.Faults}
	changes := slices.ContainsFunc(e.Mitigations, func(m harness.Mitigation) bool {
		return m.Name == c.Mitigation &&
			slices.ContainsFunc(m.Edits, func(edit harness.Edit) bool { return edit.Field == "loadBalancer.targetType" })
	})
	if i := slices.IndexFunc(e.TargetTypes, func(t harness.TargetType) bool { return t != c.TargetType }); changes && i >= 0 {
		g.target = e.TargetTypes[i]
	}
	return g
}

// of is the report with the cells of one group only.
func (r Report) of(g group) Report {
	r.Cells = slices.DeleteFunc(slices.Clone(r.Cells), func(c Cell) bool { return groupOf(r.Run.Experiment, c.Cell) != g })
	return r
}

// about tells a group from the others; "" if there is only one.
func (g group) about(all []group) string {
	var parts []string
	if slices.ContainsFunc(all, func(other group) bool { return other.target != g.target }) {
		parts = append(parts, fmt.Sprintf("%s targets", map[harness.TargetType]string{
			harness.TargetInstance: "instance", harness.TargetIP: "IP"}[g.target]))
	}
	if slices.ContainsFunc(all, func(other group) bool { return other.faults != g.faults }) {
		parts = append(parts, "faults "+g.faults)
	}
	return strings.Join(parts, ", ")
}

// key names a group in the JSON report.
func (g group) key() string {
	if g.faults == "" {
		return string(g.target)
	}
	return string(g.target) + ", faults " + g.faults
}

// verdicts are the two sentences for each group, which they name if there is
// more than one.
func verdicts(r Report) (sentences [][2]string) {
	all := groups(r)
	for _, g := range all {
		first, second := verdict(r.of(g))
		if about := g.about(all); about != "" {
			first = strings.ToUpper(about[:1]) + about[1:] + ": " + strings.ToLower(first[:1]) + first[1:]
		}
		sentences = append(sentences, [2]string{first, second})
	}
	return sentences
}

// disrupts says whether the scenario does anything: only one that does nothing
// has a length of its own.
func disrupts(r Report) bool { return r.Run.Experiment.Base.Scenario.Length.Duration == 0 }

// occasions are what trials are a sample of.
func occasions(r Report) string {
	if disrupts(r) {
		return "disruptions"
	}
	return "trials"
}
