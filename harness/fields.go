package harness

import (
	"cmp"
	"encoding"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// field is one editable field of a setup, and where the proof is found that it
// is live.
type field struct {
	set func(*Setup, string) error
	// get is the field's value in the form in which Live has it. "": the setup asks
	// for nothing that could be proven.
	get   func(Setup) string
	proof proof
	// builtin: it is a behaviour of the built-in application.
	builtin bool
}

// proof is where a field's live value is read.
type proof int

const (
	onPods     proof = iota // LivePod.Settings of every pod
	onSettings              // Live.Settings
	inEvents                // the scenario's own events, afterwards: see gates
)

var fields = map[string]field{
	"cluster.kubeProxyMode": {proof: onSettings,
		set: oneOf(func(s *Setup) *string { return &s.Cluster.KubeProxyMode }, KubeProxyIPTables, KubeProxyNFTables),
		get: func(s Setup) string { return s.Cluster.KubeProxyMode },
	},
	"cluster.kubeProxyMinSyncPeriod": {proof: onSettings,
		set: text(func(s *Setup) encoding.TextUnmarshaler { return &s.Cluster.KubeProxyMinSyncPeriod }),
		get: func(s Setup) string { return positive(s.Cluster.KubeProxyMinSyncPeriod) },
	},
	"workload.preStopSleep": {
		set: text(func(s *Setup) encoding.TextUnmarshaler { return &s.Workload.PreStopSleep }),
		get: func(s Setup) string {
			if s.Workload.App != nil {
				return positive(s.Workload.PreStopSleep) // its manifests may have a hook of their own
			}
			return s.Workload.PreStopSleep.String()
		},
	},
	"workload.preStopBy": {
		set: oneOf(func(s *Setup) *PreStopBy { return &s.Workload.PreStopBy }, PreStopExec, PreStopSleep, PreStopHTTP),
		get: func(s Setup) string {
			if s.Workload.PreStopSleep.Duration == 0 {
				return ""
			}
			return string(cmp.Or(s.Workload.PreStopBy, PreStopExec))
		},
	},
	"workload.onSigterm": {builtin: true,
		set: oneOf(func(s *Setup) *OnSIGTERM { return &s.Workload.OnSIGTERM }, SIGTERMExit, SIGTERMDrain, SIGTERMWait, SIGTERMIgnore),
		get: func(s Setup) string { return string(s.Workload.OnSIGTERM) },
	},
	"workload.sigtermWait": {builtin: true,
		set: text(func(s *Setup) encoding.TextUnmarshaler { return &s.Workload.SIGTERMWait }),
		get: func(s Setup) string { return s.Workload.SIGTERMWait.String() },
	},
	"workload.closeWhileDraining": {builtin: true,
		set: yesNo(func(s *Setup) *bool { return &s.Workload.CloseWhileDraining }),
		get: func(s Setup) string { return strconv.FormatBool(s.Workload.CloseWhileDraining) },
	},
	"workload.failReadiness": {builtin: true,
		set: yesNo(func(s *Setup) *bool { return &s.Workload.FailReadiness }),
		get: func(s Setup) string { return strconv.FormatBool(s.Workload.FailReadiness) },
	},
	"workload.keepAlive": {builtin: true,
		set: text(func(s *Setup) encoding.TextUnmarshaler { return &s.Workload.KeepAlive }),
		get: func(s Setup) string { return s.Workload.KeepAlive.String() },
	},
	"workload.gracePeriod": {
		set: text(func(s *Setup) encoding.TextUnmarshaler { return &s.Workload.GracePeriod }),
		get: func(s Setup) string { return positive(s.Workload.GracePeriod) },
	},
	"workload.maxSurge": {proof: onSettings,
		set: text(func(s *Setup) encoding.TextUnmarshaler { return (*podsOrPercent)(&s.Workload.MaxSurge) }),
		get: func(s Setup) string { return s.Workload.MaxSurge },
	},
	"workload.maxUnavailable": {proof: onSettings,
		set: text(func(s *Setup) encoding.TextUnmarshaler { return (*podsOrPercent)(&s.Workload.MaxUnavailable) }),
		get: func(s Setup) string { return s.Workload.MaxUnavailable },
	},
	"workload.minReadySeconds": {proof: onSettings,
		set: number(func(s *Setup) *int { return &s.Workload.MinReadySeconds }),
		get: func(s Setup) string { return aboveZero(s.Workload.MinReadySeconds) },
	},
	"workload.podDisruptionBudget": {proof: onSettings,
		set: text(func(s *Setup) encoding.TextUnmarshaler { return (*podsOrPercent)(&s.Workload.PodDisruptionBudget) }),
		get: func(s Setup) string { return s.Workload.PodDisruptionBudget },
	},
	"workload.hpa.pods": {proof: onSettings,
		set: number(func(s *Setup) *int { return &s.Workload.HPA.Pods }),
		get: func(s Setup) string { return aboveZero(s.Workload.HPA.Pods) },
	},
	"workload.hpa.period": {proof: onSettings,
		set: text(func(s *Setup) encoding.TextUnmarshaler { return &s.Workload.HPA.Period }),
		get: func(s Setup) string { return positive(s.Workload.HPA.Period) },
	},
	"workload.hpa.stabilization": {proof: onSettings,
		set: text(func(s *Setup) encoding.TextUnmarshaler { return &s.Workload.HPA.Stabilization }),
		get: func(s Setup) string { return positive(s.Workload.HPA.Stabilization) },
	},
	"loadBalancer.targetType": {proof: onSettings,
		set: oneOf(func(s *Setup) *TargetType { return &s.LoadBalancer.TargetType }, TargetInstance, TargetIP),
		get: func(s Setup) string { return string(s.LoadBalancer.TargetType) },
	},
	"loadBalancer.idleTimeout": {proof: onSettings,
		set: text(func(s *Setup) encoding.TextUnmarshaler { return &s.LoadBalancer.IdleTimeout }),
		get: func(s Setup) string { return s.LoadBalancer.IdleTimeout.String() },
	},
	"loadBalancer.deregistrationDelay": {proof: onSettings,
		set: text(func(s *Setup) encoding.TextUnmarshaler { return &s.LoadBalancer.DeregistrationDelay }),
		get: func(s Setup) string { return s.LoadBalancer.DeregistrationDelay.String() },
	},
	"loadBalancer.readinessGate": {
		set: yesNo(func(s *Setup) *bool { return &s.LoadBalancer.ReadinessGate }),
		get: func(s Setup) string { return strconv.FormatBool(s.LoadBalancer.ReadinessGate) },
	},
	"loadBalancer.externalTrafficPolicy": {proof: onSettings,
		set: oneOf(func(s *Setup) *TrafficPolicy { return &s.LoadBalancer.ExternalTrafficPolicy }, TrafficCluster, TrafficLocal),
		get: func(s Setup) string { return string(s.LoadBalancer.ExternalTrafficPolicy) },
	},
	"scenario.keepOld": {proof: inEvents,
		set: text(func(s *Setup) encoding.TextUnmarshaler { return &s.Scenario.KeepOld }),
		get: func(s Setup) string { return positive(s.Scenario.KeepOld) },
	},
	"scenario.holdNode": {proof: inEvents,
		set: text(func(s *Setup) encoding.TextUnmarshaler { return &s.Scenario.HoldNode }),
		get: func(s Setup) string { return positive(s.Scenario.HoldNode) },
	},
}

// EditableFields are the names that an Edit can set, sorted.
func EditableFields() []string { return slices.Sorted(maps.Keys(fields)) }

// Setting is the value of an editable field in the form in which Live has it,
// "" when the setup asks for nothing that could be proven.
func Setting(s Setup, name string) string { return fields[name].get(s) }

// CheckLive compares what runs with what the setup asks for, in every editable
// field that can be read before the scenario. It returns one sentence per
// difference.
func CheckLive(s Setup, live Live) []string {
	var diffs []string
	for _, name := range EditableFields() {
		f := fields[name]
		want := f.get(s)
		if want == "" || (f.builtin && s.Workload.App != nil) {
			continue
		}
		differs := func(object, got string) {
			if got != want {
				diffs = append(diffs, fmt.Sprintf("%s%s is %s, want %s", object, name, cmp.Or(got, "not known"), want))
			}
		}
		switch f.proof {
		case onSettings:
			differs("", live.Settings[name])
		case onPods:
			for _, p := range live.Pods {
				differs("pod "+p.Name+": ", p.Settings[name])
			}
		}
	}
	return diffs
}

// text sets a field that reads itself.
func text(of func(*Setup) encoding.TextUnmarshaler) func(*Setup, string) error {
	return func(s *Setup, to string) error { return of(s).UnmarshalText([]byte(to)) }
}

// oneOf sets a field that has a few values.
func oneOf[T ~string](of func(*Setup) *T, values ...T) func(*Setup, string) error {
	return func(s *Setup, to string) error {
		if !slices.Contains(values, T(to)) {
			return fmt.Errorf("%q: want one of %v", to, values)
		}
		*of(s) = T(to)
		return nil
	}
}

func yesNo(of func(*Setup) *bool) func(*Setup, string) error {
	return func(s *Setup, to string) error {
		if to != "true" && to != "false" {
			return fmt.Errorf("%q: want true or false", to)
		}
		*of(s) = to == "true"
		return nil
	}
}

func number(of func(*Setup) *int) func(*Setup, string) error {
	return func(s *Setup, to string) error {
		n, err := strconv.Atoi(to)
		if err != nil || n < 0 {
			return fmt.Errorf("%q: want a whole number of 0 or more", to)
		}
		*of(s) = n
		return nil
	}
}

// podsOrPercent reads a number of pods or a percentage, as apps/v1 and policy/v1
// write it (intstr.IntOrString).
type podsOrPercent string

func (p *podsOrPercent) UnmarshalText(text []byte) error {
	if err := checkPodsOrPercent(string(text)); err != nil {
		return err
	}
	*p = podsOrPercent(text)
	return nil
}

func checkPodsOrPercent(text string) error {
	number, isPercent := text, false
	if n := len(text); n > 0 && text[n-1] == '%' {
		number, isPercent = text[:n-1], true
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 || (isPercent && n > 100) {
		return fmt.Errorf("%q: want a number of pods or a percentage, like 1 or 25%%", text)
	}
	return nil
}

// positive is a duration as text, "" if it is not set.
func positive(d Duration) string {
	if d.Duration <= 0 {
		return ""
	}
	return d.String()
}

func aboveZero(n int) string {
	if n <= 0 {
		return ""
	}
	return strconv.Itoa(n)
}
