package form

import (
	"cmp"
	"path/filepath"
	"reflect"
	"regexp"
	"time"

	"lameduck/harness"
)

// Document is what a file says.
type Document struct {
	Experiment harness.Experiment
	Cluster    ClusterOptions
}

// ClusterOptions are those of the cluster to make. Zero fields: not said.
type ClusterOptions struct {
	Provider    string
	Nodes       int
	DeadAddress string
}

// DefaultLongLived is the number of connections of kind long-lived.
const DefaultLongLived = 50

// Defaults that depend on other fields.
const (
	defaultGrace = 30 * time.Second // of Kubernetes
	defaultCPU   = "50m"
	defaultLimit = 2 * time.Minute
	// metrics-server scrapes, the HPA's sync period and its stabilisation window
	// come before the first pod goes.
	defaultLimitCPU = 5 * time.Minute
)

// build makes the document of a file that could be read. dir is what paths are
// relative to.
func (d *decoder) build(f file, fileName, dir string) Document {
	s := f.Spec
	e := harness.Experiment{
		Name:  d.name(f.Metadata.Name, fileName),
		About: string(s.About),
		Base: harness.Setup{
			Cluster:  harness.ClusterSettings{KubeProxyMode: s.Cluster.KubeProxy.Mode, KubeProxyMinSyncPeriod: s.Cluster.KubeProxy.MinSyncPeriod},
			Workload: d.workload(s.Workload, dir),
			LoadBalancer: harness.LoadBalancer{
				TargetType:            harness.TargetType(s.LoadBalancer.TargetType),
				IdleTimeout:           seconds(s.LoadBalancer.Attributes.IdleTimeout),
				DeregistrationDelay:   seconds(s.LoadBalancer.Attributes.DeregistrationDelay),
				DeregistrationLag:     s.LoadBalancer.Lag.Deregister,
				RegistrationLag:       s.LoadBalancer.Lag.Register,
				WeightLag:             s.LoadBalancer.Lag.Weight,
				ReadinessGate:         s.LoadBalancer.ReadinessGate,
				ExternalTrafficPolicy: harness.TrafficPolicy(s.LoadBalancer.ExternalTrafficPolicy),
			},
			Load: harness.Load{
				Rate: int(s.Load.Rate), LongLived: s.Load.LongLived,
				Timeout: s.Load.Timeout, Baseline: s.Load.Baseline, Settle: s.Load.Settle, ControlRate: s.Load.ControlRate,
				BodySize: s.Load.BodySize, HTTP2: s.Load.HTTP2, Streams: s.Load.Streams,
			},
			Scenario: s.Scenario.spec(),
			Faults:   faultsOf(s.Faults),
		},
		Repeats: s.Repeats,
	}
	d.vary(&e, s)
	for _, x := range s.Expect {
		e.Expect = append(e.Expect, harness.Expectation{Selector: x.of(), Failed: x.Failed.expected})
	}
	return Document{e, ClusterOptions{s.Cluster.Provider, s.Cluster.Nodes, s.Cluster.DeadAddress}}
}

// name is that of the experiment: by default the one of the file.
func (d *decoder) name(given name, fileName string) string {
	if given != "" {
		return string(given)
	}
	if !regexp.MustCompile(namePattern).MatchString(fileName) {
		d.at("metadata.name", "is missing, and the file's name is %q: want %s", fileName, given.wants())
	}
	return fileName
}

// vary sets what is varied.
func (d *decoder) vary(e *harness.Experiment, s spec) {
	kinds := s.Vary.Connections
	if len(kinds) == 0 {
		kinds = s.Load.Connections
	} else if len(s.Load.Connections) > 0 {
		d.at("spec.vary.connections", "is there as well as spec.load.connections: want one of them")
	}
	if len(kinds) == 0 {
		kinds = []string{string(harness.ConnectionsPooled)}
	}
	longLived := false
	for _, k := range kinds {
		e.Connections = append(e.Connections, harness.Connections(k))
		longLived = longLived || k == string(harness.ConnectionsLongLived)
	}
	if longLived {
		e.Base.Load.LongLived = cmp.Or(e.Base.Load.LongLived, DefaultLongLived)
	} else if e.Base.Load.LongLived > 0 {
		d.at("spec.load.longLived", "is %d: want it with connections long-lived only", e.Base.Load.LongLived)
	}
	e.TargetTypes = []harness.TargetType{e.Base.LoadBalancer.TargetType}
	if len(s.Vary.TargetType) > 0 {
		e.TargetTypes = nil
	}
	for _, t := range s.Vary.TargetType {
		e.TargetTypes = append(e.TargetTypes, harness.TargetType(t))
	}
	if len(s.Vary.Mitigation) == 0 {
		e.Mitigations = []harness.Mitigation{{Name: "none"}}
	}
	for _, m := range s.Vary.Mitigation {
		e.Mitigations = append(e.Mitigations, m.Mitigation)
	}
	if len(s.Faults) > 0 && len(s.Vary.Faults) > 0 {
		d.at("spec.faults", "is there as well as spec.vary.faults, which takes its place: want one of them")
	}
	for _, f := range s.Vary.Faults {
		e.FaultSets = append(e.FaultSets, f.set)
	}
	for _, x := range s.Vary.Exclude {
		e.Exclude = append(e.Exclude, x.of())
	}
}

func (x selector) of() harness.Selector {
	return harness.Selector{
		TargetType: harness.TargetType(x.TargetType), Mitigation: string(x.Mitigation),
		Connections: harness.Connections(x.Connections), Faults: x.Faults,
	}
}

func (d *decoder) workload(w workload, dir string) harness.Workload {
	var b builtin
	if w.Builtin != nil {
		b = *w.Builtin
	} else {
		fieldValue{value: reflect.ValueOf(&b).Elem()}.setDefault()
	}
	out := harness.Workload{
		App:                d.app(w, dir),
		Replicas:           w.Replicas,
		OnSIGTERM:          cmp.Or(b.OnSIGTERM.does, harness.SIGTERMDrain),
		SIGTERMWait:        b.OnSIGTERM.wait,
		CloseWhileDraining: b.CloseWhileDraining,
		FailReadiness:      b.FailReadiness,
		ResponseTime: harness.ResponseTime{
			P50: b.ResponseTime.P50, P99: b.ResponseTime.P99, SlowShare: b.ResponseTime.SlowShare, Slow: b.ResponseTime.Slow,
		},
		StartDelay:          b.StartDelay,
		KeepAlive:           b.KeepAlive,
		PreStopSleep:        w.PreStop.Sleep,
		PreStopBy:           harness.PreStopBy(w.PreStop.By),
		GracePeriod:         w.GracePeriod,
		CPURequest:          string(w.CPU),
		MaxSurge:            string(w.MaxSurge),
		MaxUnavailable:      string(w.MaxUnavailable),
		MinReadySeconds:     w.MinReadySeconds,
		PodDisruptionBudget: string(w.PodDisruptionBudget),
		HPA:                 harness.HPABehavior{Pods: w.HPA.Pods, Period: w.HPA.Period, Stabilization: w.HPA.Stabilization},
	}
	if w.Manifests == "" {
		out.CPURequest = cmp.Or(out.CPURequest, defaultCPU)
		if !d.has("spec.workload.gracePeriod") {
			out.GracePeriod = harness.Dur(defaultGrace)
		}
	}
	return out
}

// spec is the scenario as the harness has it.
func (s scenario) spec() harness.ScenarioSpec {
	name, value := chosen(reflect.ValueOf(s))
	out := harness.ScenarioSpec{Name: name}
	if name == "" {
		return out
	}
	limit := defaultLimit
	switch p := value.Interface().(type) {
	case *hpaScaleIn:
		out.To, out.Drive, out.Limit = p.To, p.Drive, p.Limit
		if p.Drive == harness.DriveCPU {
			limit = defaultLimitCPU
		}
	case *blueGreen:
		out.Shift, out.KeepOld, out.Limit = p.Shift, p.KeepOld, p.Limit
	case *rollingUpdate:
		out.Limit = p.Limit
	case *nodeScaleIn:
		out.HoldNode, out.Limit = p.HoldNode, p.Limit
	case *nodeLoss:
		out.Length, out.Limit = p.Length, p.Limit
	case *podKill:
		out.Pods, out.Limit = p.Pods, p.Limit
	case *baseline:
		out.Length, out.Limit = p.Length, p.Limit
	}
	if out.Limit.Duration == 0 {
		out.Limit = harness.Dur(limit + out.KeepOld.Duration + out.HoldNode.Duration + out.Length.Duration)
	}
	return out
}

func faultsOf(list []fault) []harness.Fault {
	var out []harness.Fault
	for _, f := range list {
		name, value := chosen(reflect.ValueOf(f))
		if name == "" {
			continue // noted when it was read
		}
		h := harness.Fault{Kind: harness.FaultKind(name)}
		switch p := value.Interface().(type) {
		case *lasting:
			h.For = p.For
		case *share:
			h.For, h.Share = p.For, p.Share
		case *late:
			h.Lag = p.Lag
		case *throttled:
			h.Every = p.Every
		}
		out = append(out, h)
	}
	return out
}

func seconds(n int) harness.Duration { return harness.Dur(time.Duration(n) * time.Second) }

// nameOf is the name of the experiment in a file that does not say one.
func nameOf(path string) string {
	base := filepath.Base(path)
	return base[:len(base)-len(filepath.Ext(base))]
}
