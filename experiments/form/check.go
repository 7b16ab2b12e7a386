package form

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"lameduck/harness"
)

// check notes what harness.Expand and the scenario refuse, at the lines that
// caused it.
func (d *decoder) check(e harness.Experiment) {
	if d.checkNames(e); len(d.problems) > 0 {
		return
	}
	base := e
	base.Mitigations, base.FaultSets, base.Exclude, base.Expect = []harness.Mitigation{{Name: "none"}}, nil, nil, nil
	for _, text := range d.refused(e) {
		path, rest := d.blame(e, base, text)
		d.at(path, "%s", rest)
	}
}

// checkNames notes names in exclude and expect that nothing has.
func (d *decoder) checkNames(e harness.Experiment) {
	var mitigations, faults []string
	for _, m := range e.Mitigations {
		mitigations = append(mitigations, m.Name)
	}
	for _, f := range e.FaultSets {
		faults = append(faults, f.Name)
	}
	check := func(path, name string, known []string) {
		if name == "" || slices.Contains(known, name) {
			return
		}
		if len(known) == 0 {
			d.at(path, "is %q: want none, spec.vary.faults has no names", name)
			return
		}
		d.at(path, "is %q%s: want one of %s", name, hint(name, known), strings.Join(known, ", "))
	}
	for i, x := range e.Exclude {
		check(fmt.Sprintf("spec.vary.exclude[%d].mitigation", i), x.Mitigation, mitigations)
		check(fmt.Sprintf("spec.vary.exclude[%d].faults", i), x.Faults, faults)
	}
	for i, x := range e.Expect {
		check(fmt.Sprintf("spec.expect[%d].mitigation", i), x.Mitigation, mitigations)
		check(fmt.Sprintf("spec.expect[%d].faults", i), x.Faults, faults)
	}
}

// refused is what is wrong with an experiment, in the words of the harness and
// the scenario, each once.
func (d *decoder) refused(e harness.Experiment) []string {
	e.Repeats = 1 // one trial of each cell has all of it
	plan, err := harness.Expand(e, "check")
	texts := flatten(err)
	scenario, known := d.catalogue.Scenarios[e.Base.Scenario.Name]
	if !known {
		return append(texts, fmt.Sprintf("scenario is %q: want one of %s", e.Base.Scenario.Name,
			strings.Join(slices.Sorted(maps.Keys(d.catalogue.Scenarios)), ", ")))
	}
	for _, t := range plan.Trials {
		texts = append(texts, flatten(scenario.Check(t.Setup))...)
	}
	seen := make(map[string]bool)
	return slices.DeleteFunc(texts, func(text string) bool {
		twice := seen[text]
		seen[text] = true
		return twice
	})
}

// flatten takes joined errors apart.
func flatten(err error) []string {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var texts []string
		for _, e := range joined.Unwrap() {
			texts = append(texts, flatten(e)...)
		}
		return texts
	}
	return []string{err.Error()}
}

var (
	leadingField = regexp.MustCompile(`^[a-zA-Z]+(\.[a-zA-Z0-9]+|\[\d+\])*`)
	setupField   = regexp.MustCompile(`\b(workload|loadBalancer|load|scenario|cluster)(\.[a-zA-Z0-9]+)+`)
)

// blame finds the path of the file that a sentence of the harness is about, and
// what is left of the sentence then.
func (d *decoder) blame(e, base harness.Experiment, text string) (path, rest string) {
	for i, m := range e.Mitigations {
		if after, ok := strings.CutPrefix(text, "mitigation "+m.Name); ok && strings.IndexAny(after, ": ") == 0 {
			if what, _, ok := strings.Cut(after, ": the setup already is"); ok {
				after = what + ": want an edit of something that is not so already, or leave it out"
			}
			return fmt.Sprintf("spec.vary.mitigation[%d]", i), d.inFile(e, strings.TrimLeft(after, ": "))
		}
	}
	if strings.HasPrefix(text, "cell ") {
		return "spec.vary", text
	}
	field := leadingField.FindString(text)
	rest = d.inFile(e, strings.TrimLeft(strings.TrimPrefix(text, field), ": "))
	if strings.HasSuffix(rest, "matches no cell") {
		rest += ": want a combination that spec.vary has and does not exclude"
	}
	path = d.pathOf(e, field)
	if !ofSetup(field) || slices.Contains(d.refused(base), text) {
		return path, rest
	}
	for i, m := range e.Mitigations {
		with := base
		with.Mitigations = []harness.Mitigation{m}
		if slices.Contains(d.refused(with), text) {
			return fmt.Sprintf("spec.vary.mitigation[%d]", i), fmt.Sprintf("with %s %s %s", m.Name, strings.TrimPrefix(path, "spec."), rest)
		}
	}
	for i, set := range e.FaultSets {
		with := base
		with.FaultSets = []harness.FaultSet{set}
		if slices.Contains(d.refused(with), text) {
			return fmt.Sprintf("spec.vary.faults[%d].%s", i, field), rest
		}
	}
	return path, rest
}

// ofSetup says whether a field is one of a setup, which mitigations and faults
// change.
func ofSetup(field string) bool {
	return setupField.MatchString(field) || strings.HasPrefix(field, "faults[")
}

// inFile replaces the names of a setup's fields by those of the file.
func (d *decoder) inFile(e harness.Experiment, text string) string {
	return setupField.ReplaceAllStringFunc(text, func(field string) string {
		return strings.TrimPrefix(d.pathOf(e, field), "spec.")
	})
}

// renamed are the fields whose place in the file is not the one in the harness.
var renamed = map[string]string{
	"name":                             "metadata.name",
	"targetTypes":                      "spec.vary.targetType",
	"mitigations":                      "spec.vary.mitigation",
	"exclude":                          "spec.vary.exclude",
	"faultSets":                        "spec.vary.faults",
	"workload.onSigterm":               "spec.workload.builtin.onSigterm",
	"workload.sigtermWait":             "spec.workload.builtin.onSigterm.wait",
	"workload.closeWhileDraining":      "spec.workload.builtin.closeWhileDraining",
	"workload.failReadiness":           "spec.workload.builtin.failReadiness",
	"workload.responseTime":            "spec.workload.builtin.responseTime",
	"workload.responseTime.slowShare":  "spec.workload.builtin.responseTime.slowShare",
	"workload.startDelay":              "spec.workload.builtin.startDelay",
	"workload.keepAlive":               "spec.workload.builtin.keepAlive",
	"workload.preStopSleep":            "spec.workload.preStop.sleep",
	"workload.preStopBy":               "spec.workload.preStop.by",
	"workload.cpuRequest":              "spec.workload.cpu",
	"loadBalancer.idleTimeout":         "spec.loadBalancer.attributes.idle_timeout.timeout_seconds",
	"loadBalancer.deregistrationDelay": "spec.loadBalancer.attributes.deregistration_delay.timeout_seconds",
	"loadBalancer.deregistrationLag":   "spec.loadBalancer.lag.deregister",
	"loadBalancer.registrationLag":     "spec.loadBalancer.lag.register",
	"loadBalancer.weightLag":           "spec.loadBalancer.lag.weight",
	"cluster.kubeProxyMode":            "spec.cluster.kubeProxy.mode",
	"cluster.kubeProxyMinSyncPeriod":   "spec.cluster.kubeProxy.minSyncPeriod",
}

var index = regexp.MustCompile(`^([a-zA-Z]+)\[(\d+)\](.*)$`)

// pathOf is the place in the file of a field of the harness.
func (d *decoder) pathOf(e harness.Experiment, field string) string {
	if to, ok := renamed[field]; ok {
		return to
	}
	if of, ok := strings.CutPrefix(field, "scenario."); ok {
		return fmt.Sprintf("spec.scenario.%s.%s", e.Base.Scenario.Name, of)
	}
	if found := index.FindStringSubmatch(field); found != nil {
		if to, ok := renamed[found[1]]; ok {
			n, _ := strconv.Atoi(found[2])
			return fmt.Sprintf("%s[%d]%s", to, n, found[3])
		}
	}
	if field == "connections" && d.has("spec.vary.connections") {
		return "spec.vary.connections"
	}
	if field == "connections" {
		return "spec.load.connections"
	}
	return "spec." + field
}
