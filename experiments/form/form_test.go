package form_test

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	validator "github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"lameduck/experiments"
	"lameduck/experiments/form"
	"lameduck/harness"
)

func parse(t *testing.T, spec string) form.Document {
	t.Helper()
	doc, err := form.Parse("testdata/file.yaml", []byte(head+spec), experiments.Words())
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// A file with a scenario and mitigations alone is one.
func TestDefaults(t *testing.T) {
	doc := parse(t, "  scenario: {hpa-scale-in: {}}\n  vary: {mitigation: [none, {prestop-sleep: 15s}]}\n")
	builtin, err := experiments.Builtin("scale-in")
	if err != nil {
		t.Fatal(err)
	}
	e := doc.Experiment
	if !reflect.DeepEqual(e.Base, builtin.Base) {
		t.Errorf("base is\n%s\nwant that of scale-in:\n%s", e.Base, builtin.Base)
	}
	if e.Name != "file" || e.Repeats != 3 || len(e.TargetTypes) != 1 || e.TargetTypes[0] != harness.TargetInstance ||
		len(e.Connections) != 1 || e.Connections[0] != harness.ConnectionsPooled || e.Mitigations[1].Name != "prestop-sleep-15s" {
		t.Errorf("got %+v", e)
	}
	if doc.Cluster != (form.ClusterOptions{}) {
		t.Errorf("cluster %+v, want nothing said", doc.Cluster)
	}
}

// Every field arrives where the harness has it.
func TestEveryField(t *testing.T) {
	doc := parse(t, `  about: all of it
  cluster: {provider: embedded, nodes: 3, deadAddress: reset, kubeProxy: {mode: nftables, minSyncPeriod: 10s}}
  workload:
    builtin:
      onSigterm: {wait: 5s}
      responseTime: {p50: 10ms, p99: 20ms, slowShare: 0.5, slow: 1s}
      startDelay: 1s
      keepAlive: 90s
      closeWhileDraining: true
      failReadiness: true
    replicas: 8
    gracePeriod: 45s
    preStop: {sleep: 3s, by: http}
    cpu: 0.1
    maxSurge: 1
    maxUnavailable: 10%
    minReadySeconds: 4
    podDisruptionBudget: 50%
    hpa: {pods: 2, period: 15s, stabilization: 20s}
  loadBalancer:
    targetType: ip
    attributes: {deregistration_delay.timeout_seconds: 7, idle_timeout.timeout_seconds: 8}
    lag: {deregister: 1s..2s, register: 3s, weight: 4s..5s}
    readinessGate: true
  load:
    rate: 50/s
    connections: [new, long-lived]
    longLived: 9
    timeout: 6s
    baseline: 2s
    settle: 1s
    controlRate: 5
    bodySize: 1024
    http2: true
    streams: 3
  scenario: {blue-green: {shift: weights, keepOld: 11s}}
  vary:
    mitigation: [none, "keep-old-20s", {name: mine, edits: {workload.maxUnavailable: 0, workload.failReadiness: false}}]
    faults: [none, {name: both, faults: [{packet-loss: {share: 0.1, for: 10s}}, {late-deregistration: {lag: 30s..60s}}]}]
    exclude: [{mitigation: {keep-old: 20s}, connections: new, faults: both}]
  repeats: 2
  expect: [{targetType: ip, connections: new, faults: none, failed: {atMost: 5}}, {failed: {atMostRate: 0.1%}}]
`)
	second := func(n float64) harness.Duration { return harness.Dur(time.Duration(n * float64(time.Second))) }
	want := harness.Experiment{
		Name: "file", About: "all of it",
		Base: harness.Setup{
			Cluster: harness.ClusterSettings{KubeProxyMode: "nftables", KubeProxyMinSyncPeriod: second(10)},
			Workload: harness.Workload{
				Replicas: 8, OnSIGTERM: harness.SIGTERMWait, SIGTERMWait: second(5), CloseWhileDraining: true, FailReadiness: true,
				ResponseTime: harness.ResponseTime{P50: second(0.01), P99: second(0.02), SlowShare: 0.5, Slow: second(1)},
				StartDelay:   second(1), KeepAlive: second(90), PreStopSleep: second(3), PreStopBy: harness.PreStopHTTP, GracePeriod: second(45),
				CPURequest: "0.1", MaxSurge: "1", MaxUnavailable: "10%", MinReadySeconds: 4, PodDisruptionBudget: "50%",
				HPA: harness.HPABehavior{Pods: 2, Period: second(15), Stabilization: second(20)},
			},
			LoadBalancer: harness.LoadBalancer{
				TargetType: harness.TargetIP, DeregistrationDelay: second(7), IdleTimeout: second(8), ReadinessGate: true,
				DeregistrationLag: harness.DurationRange{Min: time.Second, Max: 2 * time.Second},
				RegistrationLag:   harness.DurationRange{Min: 3 * time.Second, Max: 3 * time.Second},
				WeightLag:         harness.DurationRange{Min: 4 * time.Second, Max: 5 * time.Second},
			},
			Load: harness.Load{
				Rate: 50, LongLived: 9, Timeout: second(6), Baseline: second(2), Settle: second(1), ControlRate: 5,
				BodySize: 1024, HTTP2: true, Streams: 3,
			},
			Scenario: harness.ScenarioSpec{Name: "blue-green", Shift: harness.ShiftWeights, KeepOld: second(11), Limit: second(131)},
		},
		TargetTypes: []harness.TargetType{harness.TargetIP},
		Connections: []harness.Connections{harness.ConnectionsNew, harness.ConnectionsLongLived},
		Mitigations: []harness.Mitigation{
			{Name: "none"},
			{Name: "keep-old-20s", Edits: []harness.Edit{{Field: "scenario.keepOld", To: "20s"}}},
			{Name: "mine", Edits: []harness.Edit{{Field: "workload.maxUnavailable", To: "0"}, {Field: "workload.failReadiness", To: "false"}}},
		},
		FaultSets: []harness.FaultSet{{Name: "none"}, {Name: "both", Faults: []harness.Fault{
			{Kind: harness.FaultPacketLoss, Share: 0.1, For: second(10)},
			{Kind: harness.FaultLateDeregistration, Lag: harness.DurationRange{Min: 30 * time.Second, Max: time.Minute}},
		}}},
		Exclude: []harness.Selector{{Mitigation: "keep-old-20s", Connections: harness.ConnectionsNew, Faults: "both"}},
		Repeats: 2,
		Expect: []harness.Expectation{
			{Selector: harness.Selector{TargetType: harness.TargetIP, Connections: harness.ConnectionsNew, Faults: "none"}, Failed: harness.AtMost(5)},
			{Failed: harness.AtMostRate(0.1)},
		},
	}
	if !reflect.DeepEqual(doc.Experiment, want) {
		t.Errorf("got\n%+v\nwant\n%+v", doc.Experiment, want)
	}
	if want := (form.ClusterOptions{Provider: "embedded", Nodes: 3, DeadAddress: "reset"}); doc.Cluster != want {
		t.Errorf("cluster %+v, want %+v", doc.Cluster, want)
	}
}

func TestMitigationNames(t *testing.T) {
	for spec, want := range map[string]string{
		"none":                                          "none",
		"prestop-sleep-10s":                             "prestop-sleep-10s",
		"{prestop-sleep: 15s}":                          "prestop-sleep-15s",
		"{prestop-sleep: 40s, grace: 60s}":              "prestop-sleep-40s-grace-60s",
		"{grace: 60s, prestop-sleep: 40s}":              "prestop-sleep-40s-grace-60s",
		"{sigterm-wait: 5s, close: true}":               "sigterm-wait-5s-close",
		"{pod-disruption-budget: 2}":                    "pod-disruption-budget-2",
		"{close-while-draining: true}":                  "close-while-draining",
		"{name: own, edits: {workload.keepAlive: 90s}}": "own",
	} {
		doc := parse(t, rolling+"  vary: {mitigation: ["+spec+"]}\n")
		if got := doc.Experiment.Mitigations[0].Name; got != want {
			t.Errorf("%s: %s, want %s", spec, got, want)
		}
	}
}

// The application of the user's own: an image, a directory, a kustomize directory.
func TestOwnApplication(t *testing.T) {
	app := parse(t, rolling+"  workload: {image: {name: shop, args: [-v], binary: file.bin}, port: 9000, path: /x}\n").Experiment.Base.Workload.App
	want := &harness.App{
		Image: "shop", Args: []string{"-v"}, Port: 9000, Path: "/x", Ready: "/x",
		Images: []harness.ImageSource{{Name: "shop", Binary: filepath.Join("testdata", "file.bin")}},
	}
	if !reflect.DeepEqual(app, want) {
		t.Errorf("image: got %+v, want %+v", app, want)
	}
	w := parse(t, rolling+"  workload: {manifests: shop, service: shop, port: 80, readinessPath: /ready}\n").Experiment.Base.Workload
	if w.App.Service != "shop" || w.App.Port != 80 || w.App.Path != "/" || w.App.Ready != "/ready" || w.App.Image != "" {
		t.Errorf("directory: got %+v", w.App)
	}
	if w.GracePeriod.Duration != 0 || w.CPURequest != "" {
		t.Errorf("grace period %s and CPU %q, want what the manifests have", w.GracePeriod, w.CPURequest)
	}
	for _, kind := range []string{"kind: Deployment", "kind: Service"} {
		if !strings.Contains(w.App.Manifests, kind) {
			t.Errorf("directory: manifests lack %s:\n%s", kind, w.App.Manifests)
		}
	}
	w = parse(t, rolling+"  workload: {manifests: ./overlay, service: test-shop, port: 80, gracePeriod: 40s}\n").Experiment.Base.Workload
	if strings.Count(w.App.Manifests, "name: test-shop") != 2 || w.GracePeriod.Duration != 40*time.Second {
		t.Errorf("kustomize: grace period %s, manifests\n%s", w.GracePeriod, w.App.Manifests)
	}
}

// Every fault and scenario there is can be written in a file.
func TestFormKnowsAllThereIs(t *testing.T) {
	var names []string
	for _, f := range form.Faults() {
		names = append(names, f.Name)
		if f.About == "" {
			t.Errorf("%s has no description", f.Name)
		}
	}
	for _, kind := range harness.FaultKinds() {
		if !strings.Contains(" "+strings.Join(names, " ")+" ", " "+string(kind)+" ") {
			t.Errorf("fault %s is not in the form", kind)
		}
	}
	for name := range experiments.Scenarios() {
		if got := parse(t, "  scenario: {"+name+": {}}\n").Experiment.Base.Scenario.Name; got != name {
			t.Errorf("scenario %s, want %s", got, name)
		}
	}
}

func TestStarterIsAnExperiment(t *testing.T) {
	doc, err := form.Parse("starter.yaml", form.Starter(), experiments.Words())
	if err != nil {
		t.Fatal(err)
	}
	if len(doc.Experiment.Mitigations) < 2 || !bytes.HasPrefix(form.Starter(), []byte("# yaml-language-server: $schema=")) {
		t.Errorf("%d mitigations; want at least 2, and a first line for editors", len(doc.Experiment.Mitigations))
	}
	// What is commented out is right too.
	var whole []string
	for line := range strings.Lines(string(form.Starter())) {
		field := strings.TrimPrefix(strings.TrimSpace(line), "# ")
		if strings.HasPrefix(field, "load: ") || strings.HasPrefix(field, "cluster: ") || strings.HasPrefix(field, "faults: [{") {
			line = "  " + field + "\n"
		}
		whole = append(whole, line)
	}
	if _, err := form.Parse("starter.yaml", []byte(strings.Join(whole, "")), experiments.Words()); err != nil {
		t.Error(err)
	}
}

// compiled is the schema as an editor has it.
func compiled(t *testing.T) *validator.Schema {
	t.Helper()
	text, err := form.Schema(experiments.Words())
	if err != nil {
		t.Fatal(err)
	}
	doc, err := validator.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := validator.NewCompiler()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func validate(t *testing.T, s *validator.Schema, text []byte) error {
	t.Helper()
	var doc any
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	return s.Validate(doc)
}

func TestSchemaAcceptsWhatIsRight(t *testing.T) {
	s := compiled(t)
	files, err := filepath.Glob("../builtin/*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("%d built-in experiments, %v", len(files), err)
	}
	for _, file := range append(files, "starter.yaml") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate(t, s, text); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestSchemaRefusesWhatItCanKnow(t *testing.T) {
	s := compiled(t)
	for _, c := range wrongFiles {
		if c.bySchema && validate(t, s, []byte(head+c.spec)) == nil {
			t.Errorf("%s: the schema accepts %q", c.name, c.spec)
		}
	}
}

// The committed schema is what the types say:
//
//	go run ./cmd/lameduck schema > experiments/schema.json
func TestSchemaIsCurrent(t *testing.T) {
	want, err := form.Schema(experiments.Words())
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../schema.json")
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("experiments/schema.json is not current (%v): go run ./cmd/lameduck schema > experiments/schema.json", err)
	}
}
