package form_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"lameduck/experiments"
	"lameduck/experiments/form"
)

const head = "apiVersion: lameduck/v1\nkind: Experiment\nspec:\n"

// wrongFile is a file with one thing wrong, and what is said of it: in which
// line, of which field, and what would be right.
type wrongFile struct {
	name string
	spec string // below head, so that its first line is line 4
	want string
	// bySchema: the schema can know it too.
	bySchema bool
}

const rolling = "  scenario: {rolling-update: {}}\n"

var wrongFiles = []wrongFile{
	{"unknown key", rolling + "  loda: {rate: 5}\n", "f.yaml:5: spec.loda: is not a field, did you mean load?: want about, cluster, workload, loadBalancer, load, scenario, faults, vary, repeats, expect", true},
	{"unknown inner key", rolling + "  workload:\n    replica: 3\n", "f.yaml:6: spec.workload.replica: is not a field, did you mean replicas?: want builtin, image,", true},
	{"duplicate key", rolling + "  repeats: 2\n  repeats: 3\n", "f.yaml:6: spec.repeats: is there twice, first in line 5: want it once", false},
	{"number as text", rolling + "  workload: {replicas: six}\n", `f.yaml:5: spec.workload.replicas: is "six": want a whole number from 1 to 500`, true},
	{"out of range", rolling + "  workload: {replicas: 0}\n", "f.yaml:5: spec.workload.replicas: is 0: want a whole number from 1 to 500", true},
	{"fraction", rolling + "  repeats: 1.5\n", "f.yaml:5: spec.repeats: is 1.5: want a whole number from 1 to 1000", true},
	{"enum", rolling + "  loadBalancer: {targetType: pods}\n", `f.yaml:5: spec.loadBalancer.targetType: is "pods"`, true},
	{"enum with a hint", rolling + "  loadBalancer: {targetType: instanc}\n", `spec.loadBalancer.targetType: is "instanc", did you mean instance?: want one of instance, ip`, true},
	{"enum in a list", rolling + "  vary:\n    connections:\n      - pooled\n      - old\n", `f.yaml:8: spec.vary.connections[1]: is "old": want one of pooled, new, long-lived`, true},
	{"duration without unit", rolling + "  load: {timeout: 5}\n", "f.yaml:5: spec.load.timeout: is 5: want a duration, like 500ms, 10s or 2m", true},
	{"bad duration", rolling + "  load: {timeout: 5 seconds}\n", `f.yaml:5: spec.load.timeout: duration "5 seconds": want a number with a unit, like 500ms, 10s or 2m`, true},
	{"negative duration", rolling + "  workload: {preStop: {sleep: -5s}}\n", "f.yaml:5: spec.workload.preStop.sleep: -5s: want 0s or more", true},
	{"bad range", rolling + "  loadBalancer: {lag: {deregister: 20s-5s}}\n", `f.yaml:5: spec.loadBalancer.lag.deregister: range "20s-5s": want a duration or two, the lower first, like 17s or 5s..20s`, true},
	{"range the wrong way round", rolling + "  loadBalancer: {lag: {deregister: 20s..5s}}\n", `f.yaml:5: spec.loadBalancer.lag.deregister: range "20s..5s": want a duration or two, the lower first`, false},
	{"rate", rolling + "  load: {rate: 100/min}\n", `f.yaml:5: spec.load.rate: is "100/min": want requests per second, 1 to 5000, like 100 or 100/s`, true},
	{"list instead of mapping", rolling + "  load: [100]\n", "f.yaml:5: spec.load: is a list: want a mapping with rate, connections,", true},
	{"mapping instead of list", rolling + "  faults: {drop-fin: {}}\n", "f.yaml:5: spec.faults: is a mapping: want a list", true},
	{"empty value", rolling + "  load:\n", "f.yaml:5: spec.load: is empty: want a mapping with rate,", true},
	{"bool", rolling + "  load: {http2: yep}\n", `f.yaml:5: spec.load.http2: is "yep": want true or false`, true},
	{"no scenario", "  repeats: 2\n", "f.yaml:4: spec.scenario: is missing: want a mapping with hpa-scale-in, blue-green, rolling-update", true},
	{"unknown scenario", "  scenario: {rolling-updates: {}}\n", "f.yaml:4: spec.scenario.rolling-updates: is not a field, did you mean rolling-update?: want hpa-scale-in, blue-green,", true},
	{"two scenarios", "  scenario: {rolling-update: {}, baseline: {}}\n", "f.yaml:4: spec.scenario: has 2 keys: want one of hpa-scale-in,", true},
	{"scenario without braces", "  scenario: rolling-update\n", `f.yaml:4: spec.scenario: is "rolling-update": want it as a key with parameters, {rolling-update: {}}`, true},
	{"parameter of another scenario", "  scenario: {rolling-update: {keepOld: 5s}}\n", "f.yaml:4: spec.scenario.rolling-update.keepOld: is not a field: want limit", true},
	{"unknown fault", rolling + "  faults:\n    - packet-los: {share: 0.1}\n", "f.yaml:6: spec.faults[0].packet-los: is not a field, did you mean packet-loss?: want drop-fin, packet-loss,", true},
	{"fault without its parameter", rolling + "  faults: [{packet-loss: {}}]\n", "f.yaml:5: spec.faults[0].packet-loss.share: is missing: want a number above 0 and below 1", true},
	{"fault with a wrong parameter", rolling + "  faults: [{packet-loss: {share: 10}}]\n", "f.yaml:5: spec.faults[0].packet-loss.share: is 10: want a number above 0 and below 1", true},
	{"fault out of range", rolling + "  faults: [{throttled-api: {every: 500ms}}]\n", "f.yaml:5: spec.faults[0]: every is 500ms: want 1s..1h", false},
	{"fault set out of range", rolling + "  vary:\n    faults:\n      - none\n      - {name: slow, faults: [{throttled-api: {every: 500ms}}]}\n", "f.yaml:8: spec.vary.faults[1].faults[0]: every is 500ms: want 1s..1h", false},
	{"unknown mitigation", rolling + "  vary:\n    mitigation:\n      - none\n      - {prestop-slep: 15s}\n", `f.yaml:8: spec.vary.mitigation[1]: "prestop-slep-15s": want one of none, prestop-sleep-D,`, false},
	{"unknown mitigation by name", rolling + "  vary: {mitigation: [hope]}\n", `f.yaml:5: spec.vary.mitigation[0]: "hope": want one of none,`, true},
	{"mitigation without unit", rolling + "  vary: {mitigation: [{prestop-sleep: 15}]}\n", `f.yaml:5: spec.vary.mitigation[0]: "prestop-sleep-15": duration "15": want a number with a unit`, false},
	{"field that can not be edited", rolling + "  vary: {mitigation: [{name: x, edits: {workload.grace: 1s}}]}\n", "f.yaml:5: spec.vary.mitigation[0].edits.workload.grace: can not be edited, did you mean workload.gracePeriod?: want one of cluster.kubeProxyMinSyncPeriod,", true},
	{"edit that changes nothing", rolling + "  vary:\n    mitigation:\n      - none\n      - {grace: 30s}\n", "f.yaml:8: spec.vary.mitigation[1]: changes nothing: want an edit of something that is not so already", false},
	{"mitigation that is refused", rolling + "  vary:\n    mitigation:\n      - none\n      - {name: x, edits: {workload.gracePeriod: 1500ms}}\n", "f.yaml:8: spec.vary.mitigation[1]: with x workload.gracePeriod is 1.5s: want whole seconds, at least 1s", false},
	{"grace of the base", rolling + "  workload:\n    gracePeriod: 1500ms\n", "f.yaml:6: spec.workload.gracePeriod: is 1.5s: want whole seconds, at least 1s", false},
	{"another name in the harness", rolling + "  workload:\n    builtin:\n      responseTime: {p50: 90ms}\n", "f.yaml:7: spec.workload.builtin.responseTime: p50 is 90ms and p99 is 80ms: want 0s < p50 <= p99", false},
	{"native sleep above the grace period", rolling + "  workload:\n    preStop: {sleep: 40s, by: sleep}\n", "f.yaml:6: spec.workload.preStop.sleep: is 40s by the sleep action: want at most workload.gracePeriod (30s)", false},
	{"scenario refuses", "  workload: {replicas: 3}\n  scenario:\n    hpa-scale-in:\n      to: 3\n", "f.yaml:7: spec.scenario.hpa-scale-in.to: is 3: want at least 1 and less than workload.replicas (3)", false},
	{"control rate above the rate", rolling + "  load: {rate: 5}\n", "f.yaml:5: spec.load.controlRate: is 10: want 1..load.rate", false},
	{"excludes an unknown name", rolling + "  vary:\n    mitigation: [none, {prestop-sleep: 15s}]\n    exclude:\n      - {mitigation: prestop-sleep}\n", `f.yaml:8: spec.vary.exclude[0].mitigation: is "prestop-sleep", did you mean prestop-sleep-15s?: want one of none, prestop-sleep-15s`, false},
	{"expects of a cell that is not there", rolling + "  expect:\n    - {targetType: ip, failed: none}\n", "f.yaml:6: spec.expect[0]: matches no cell: want a combination that spec.vary has and does not exclude", false},
	{"expects something else", rolling + "  expect: [{failed: few}]\n", `f.yaml:5: spec.expect[0].failed: is "few": want none, some, {atMost: 5} or {atMostRate: 0.1%}`, true},
	{"expects without failed", rolling + "  expect: [{mitigation: none}]\n", "f.yaml:5: spec.expect[0].failed: is missing: want none, some, {atMost: 5} or {atMostRate: 0.1%}", true},
	{"expects a rate that is none", rolling + "  expect: [{failed: {atMostRate: 0.001}}]\n", "f.yaml:5: spec.expect[0].failed.atMostRate: is 0.001: want a percentage from 0% to 100%, like 0.1%", true},
	{"mitigation twice", rolling + "  vary:\n    mitigation: [none, none]\n", "f.yaml:5: spec.vary: cell instance none pooled is there twice: name each mitigation", false},
	{"SIGTERM", rolling + "  workload: {builtin: {onSigterm: wait}}\n", `f.yaml:5: spec.workload.builtin.onSigterm: is "wait": want exit, drain, ignore or {wait: 10s}`, true},
	{"CPU", rolling + "  workload: {cpu: 0}\n", "f.yaml:5: spec.workload.cpu: is 0: want CPUs above 0, like 50m, 0.5 or 1", true},
	{"surge", rolling + "  workload: {maxSurge: some}\n", `f.yaml:5: spec.workload.maxSurge: is "some": want a number of pods or a percentage, like 1 or 25%`, true},
	{"attribute by another name", rolling + "  loadBalancer: {attributes: {deregistration_delay: 30}}\n", "f.yaml:5: spec.loadBalancer.attributes.deregistration_delay: is not a field", true},
	{"two applications", rolling + "  workload:\n    builtin: {}\n    manifests: ./k8s\n", "f.yaml:7: spec.workload.manifests: is there as well as builtin: want one of builtin, image, manifests", true},
	{"image without port", rolling + "  workload:\n    image: {name: shop}\n", "f.yaml:5: spec.workload.port: is missing: want it with image", true},
	{"port of the built-in application", rolling + "  workload: {port: 80}\n", "f.yaml:5: spec.workload.port: has no effect here: want it with image or manifests only", true},
	{"no such manifests", rolling + "  workload: {manifests: none, service: shop, port: 80}\n", "f.yaml:5: spec.workload.manifests: stat testdata/none: no such file or directory: want a file, a directory of files or a kustomize directory", false},
	{"no such service", rolling + "  workload: {manifests: shop, service: shopp, port: 80}\n", `f.yaml:5: spec.workload.service: is "shopp": want a Service of the manifests: shop`, false},
	{"no such port", rolling + "  workload: {manifests: shop, service: shop, port: 81}\n", "f.yaml:5: spec.workload.port: is 81: want a port of Service shop: 80", false},
	{"image from nowhere", rolling + "  workload: {manifests: shop, service: shop, port: 80, images: [{name: shop}]}\n", "f.yaml:5: spec.workload.images[0]: want one of archive and binary", true},
	{"long-lived connections that nobody has", rolling + "  load: {longLived: 5}\n", "f.yaml:5: spec.load.longLived: is 5: want it with connections long-lived only", false},
	{"edits of nothing", rolling + "  vary: {mitigation: [{name: x, edits: {}}]}\n", "f.yaml:5: spec.vary.mitigation[0].edits: is {}: want a mapping of fields to values", true},
	{"own mitigation with a name of the catalogue", rolling + "  vary: {mitigation: [{name: prestop-sleep-15s, edits: {workload.gracePeriod: 60s}}]}\n", `f.yaml:5: spec.vary.mitigation[0].name: is "prestop-sleep-15s", which is a mitigation of the catalogue: want another name`, false},
	{"own mitigation called none", rolling + "  vary: {mitigation: [{name: none, edits: {workload.gracePeriod: 60s}}]}\n", `f.yaml:5: spec.vary.mitigation[0].name: is "none", which is a mitigation of the catalogue`, false},
	{"faults called none", rolling + "  vary: {faults: [{name: none, faults: [{link-down: {}}]}]}\n", "f.yaml:5: spec.vary.faults[0].name: is none, which is the name of no faults: want another", false},
	{"name with a path in it", rolling + "  vary: {faults: [{name: a/b, faults: [{link-down: {}}]}]}\n", `f.yaml:5: spec.vary.faults[0].name: is "a/b": want at most 63 letters, digits, . _ and -`, true},
	{"name that is too long", rolling + "  vary: {mitigation: [{name: " + strings.Repeat("x", 64) + ", edits: {workload.gracePeriod: 60s}}]}\n", "f.yaml:5: spec.vary.mitigation[0].name: is \"xxx", true},
	{"name that is a number", rolling + "  vary: {faults: [{name: 1, faults: [{link-down: {}}]}]}\n", "f.yaml:5: spec.vary.faults[0].name: is 1: want text (in quotes", true},
	{"about of two lines", rolling + "  about: \"a\\nb\"\n", `f.yaml:5: spec.about: is "a\nb": want one line of at most 200 characters`, true},
	{"about that is too long", rolling + "  about: " + strings.Repeat("x", 201) + "\n", "f.yaml:5: spec.about: is \"xxx", true},
	{"duration that is too long", rolling + "  load: {baseline: 61m}\n", "f.yaml:5: spec.load.baseline: is 61m: want at most 1h", false},
	{"range that is too long", rolling + "  loadBalancer: {lag: {deregister: 1s..2h}}\n", "f.yaml:5: spec.loadBalancer.lag.deregister: is 1s..2h: want at most 1h", false},
	{"limit that is too long", "  scenario: {rolling-update: {limit: 7h}}\n", "f.yaml:4: spec.scenario.rolling-update.limit: is 7h: want at most 6h", false},
	{"edit that is too long", rolling + "  vary: {mitigation: [{name: x, edits: {workload.gracePeriod: 2562047h}}]}\n", "f.yaml:5: spec.vary.mitigation[0].edits.workload.gracePeriod: is 2562047h: want at most 1h", false},
	{"mitigation that is too long", rolling + "  vary: {mitigation: [{prestop-sleep: 2h}]}\n", `f.yaml:5: spec.vary.mitigation[0]: "prestop-sleep-2h": duration is 2h0m0s: want more than 0s, at most 1h`, false},
	{"faults twice", rolling + "  faults: [{link-down: {}}]\n  vary: {faults: [none]}\n", "f.yaml:5: spec.faults: is there as well as spec.vary.faults", false},
}

func TestWrongFiles(t *testing.T) {
	for _, c := range wrongFiles {
		t.Run(c.name, func(t *testing.T) {
			_, err := form.Parse("testdata/f.yaml", []byte(head+c.spec), experiments.Words())
			var problems form.Problems
			if !errors.As(err, &problems) {
				t.Fatalf("got %v, want problems", err)
			}
			if len(problems) != 1 || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %v\nwant %s and nothing else", err, c.want)
			}
			if !strings.HasPrefix(err.Error(), "testdata/f.yaml:") {
				t.Errorf("%v does not begin with the file", err)
			}
		})
	}
}

func TestWrongDocuments(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "f.yaml:1: is empty: want an experiment; lameduck init writes one",
		"# nothing\n":               "f.yaml:1: is empty",
		"a: [\n":                    "is not YAML: ",
		"a: 1\n b: 2\n":             "f.yaml:2: is not YAML: ",
		"text\n":                    `f.yaml:1: is "text": want a mapping with apiVersion, kind, metadata, spec`,
		"apiVersion: lameduck/v2\n": `f.yaml:1: apiVersion: is "lameduck/v2", did you mean lameduck/v1?: want lameduck/v1`,
		"kind: Experiments\n":       `f.yaml:1: kind: is "Experiments", did you mean Experiment?: want Experiment`,
		head + rolling + "---\n" + head + rolling: "f.yaml:5: has a second document: want one experiment in a file",
	} {
		_, err := form.Parse("f.yaml", []byte(text), experiments.Words())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

// The name of the file is the experiment's if it can be one.
func TestWrongFileName(t *testing.T) {
	_, err := form.Parse("my experiment.yaml", []byte(head+rolling), experiments.Words())
	if want := `my experiment.yaml:1: metadata.name: is missing, and the file's name is "my experiment": want at most 63`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// All that is wrong is said at once, in the order of the lines.
func TestAllProblemsAtOnce(t *testing.T) {
	_, err := form.Parse("f.yaml", []byte(head+`  repeats: none
  load: {rate: 0, timeout: soon}
  scenario: {pod-kill: {pods: 0}}
  vary:
    mitigation: [none, {prestop-sleep: x}]
  expect:
    - {failed: maybe}
`), experiments.Words())
	var problems form.Problems
	if !errors.As(err, &problems) {
		t.Fatal(err)
	}
	var at []string
	for _, p := range problems {
		at = append(at, fmt.Sprintf("%d %s", p.Line, p.Path))
	}
	want := "4 spec.repeats, 5 spec.load.rate, 5 spec.load.timeout, 6 spec.scenario.pod-kill.pods, 8 spec.vary.mitigation[1], 10 spec.expect[0].failed"
	if got := strings.Join(at, ", "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
