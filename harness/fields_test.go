package harness

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// fieldCases have for each editable field a value that it takes and how it is
// read back, and one that it does not take with the reason.
var fieldCases = map[string]struct{ to, live, wrong, reason string }{
	"cluster.kubeProxyMode":              {"nftables", "nftables", "ipvs", `"ipvs": want one of [iptables nftables]`},
	"cluster.kubeProxyMinSyncPeriod":     {"10s", "10s", "10", `duration "10": want a number with a unit`},
	"workload.preStopSleep":              {"1m", "1m0s", "x", `duration "x": want`},
	"workload.preStopBy":                 {"http", "http", "tcp", `"tcp": want one of [exec sleep http]`},
	"workload.onSigterm":                 {"ignore", "ignore", "stop", `"stop": want one of [exit drain wait ignore]`},
	"workload.sigtermWait":               {"10s", "10s", "", `duration "": want`},
	"workload.closeWhileDraining":        {"true", "true", "yes", `"yes": want true or false`},
	"workload.failReadiness":             {"true", "true", "1", `"1": want true or false`},
	"workload.keepAlive":                 {"5s", "5s", "x", `duration "x": want`},
	"workload.gracePeriod":               {"60s", "1m0s", "x", `duration "x": want`},
	"workload.maxSurge":                  {"2", "2", "-1", `"-1": want a number of pods or a percentage`},
	"workload.maxUnavailable":            {"50%", "50%", "101%", `"101%": want a number of pods or a percentage`},
	"workload.minReadySeconds":           {"10", "10", "10s", `"10s": want a whole number of 0 or more`},
	"workload.podDisruptionBudget":       {"4", "4", "", `"": want a number of pods or a percentage`},
	"workload.hpa.pods":                  {"1", "1", "-1", `"-1": want a whole number of 0 or more`},
	"workload.hpa.period":                {"15s", "15s", "x", `duration "x": want`},
	"workload.hpa.stabilization":         {"5m", "5m0s", "x", `duration "x": want`},
	"loadBalancer.targetType":            {"ip", "ip", "pod", `"pod": want one of [instance ip]`},
	"loadBalancer.idleTimeout":           {"30s", "30s", "x", `duration "x": want`},
	"loadBalancer.deregistrationDelay":   {"5s", "5s", "x", `duration "x": want`},
	"loadBalancer.readinessGate":         {"true", "true", "on", `"on": want true or false`},
	"loadBalancer.externalTrafficPolicy": {"Local", "Local", "local", `"local": want one of [Cluster Local]`},
	"scenario.keepOld":                   {"10s", "10s", "x", `duration "x": want`},
	"scenario.holdNode":                  {"10s", "10s", "x", `duration "x": want`},
}

func TestEveryFieldIsSetAndReadBack(t *testing.T) {
	if got := slices.Sorted(maps.Keys(fieldCases)); !slices.Equal(got, EditableFields()) {
		t.Fatalf("cases of %q, fields are %q", got, EditableFields())
	}
	for name, c := range fieldCases {
		s := testSetup()
		s.Workload.PreStopSleep = Dur(time.Second) // without it there is no hook whose kind could be read
		edited, err := Mitigation{"m", []Edit{{name, c.to}}}.Apply(s)
		if err != nil || Setting(edited, name) != c.live {
			t.Errorf("%s: %q reads back as %q, error %v; want %q", name, c.to, Setting(edited, name), err, c.live)
		}
		// Each is compared with what runs, but for what only the scenario shows.
		if err == nil && fields[name].proof != inEvents {
			live := asAsked(edited)
			if fields[name].proof == onSettings {
				live.Settings[name] = "other"
			} else {
				live.Pods[0].Settings[name] = "other"
			}
			if diffs := CheckLive(edited, live); len(diffs) != 1 || !strings.Contains(diffs[0], name+" is other, want "+c.live) {
				t.Errorf("%s: another value runs, and the differences are %q", name, diffs)
			}
		}
		if _, err := (Mitigation{"m", []Edit{{name, c.wrong}}}).Apply(s); err == nil || !strings.HasPrefix(err.Error(), "mitigation m: "+name+": "+c.reason) {
			t.Errorf("%s: %q gives %v, want %s", name, c.wrong, err, c.reason)
		}
	}
}

// The behaviour of an application of the user's own is neither set nor compared.
func TestFieldsOfTheBuiltinApplication(t *testing.T) {
	s := testSetup()
	s.Workload.App = &App{Image: "shop", Port: 8080, Path: "/"}
	builtin := []string{"workload.onSigterm", "workload.sigtermWait", "workload.closeWhileDraining", "workload.failReadiness", "workload.keepAlive"}
	for name, c := range fieldCases {
		_, err := Mitigation{"m", []Edit{{name, c.to}}}.Apply(s)
		if want := slices.Contains(builtin, name); want != (err != nil) {
			t.Errorf("%s with an own application: error %v", name, err)
		} else if want && !strings.Contains(err.Error(), name+" is of the built-in application: your own has to do it by itself") {
			t.Errorf("%s: %v", name, err)
		}
	}
	live := asAsked(s)
	for _, name := range builtin {
		delete(live.Pods[0].Settings, name)
	}
	if diffs := CheckLive(s, live); len(diffs) != 0 {
		t.Errorf("an own application differs in %q", diffs)
	}
	clone := s.Clone()
	if clone.Workload.App.Path = "/changed"; s.Workload.App.Path != "/" {
		t.Error("a change of a clone reached the setup")
	}
}

func TestSetupsThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*Setup)
		want string
	}{
		"hook by the kubelet": {func(s *Setup) { s.Workload.PreStopSleep, s.Workload.PreStopBy = Dur(40*time.Second), PreStopSleep },
			"workload.preStopSleep is 40s by the sleep action: want at most workload.gracePeriod (30s)"},
		"kind of no hook": {func(s *Setup) { s.Workload.PreStopBy = PreStopHTTP }, "workload.preStopBy is http without workload.preStopSleep: want both"},
		"hook of another": {func(s *Setup) {
			s.Workload.App, s.Workload.PreStopSleep, s.Workload.PreStopBy = &App{Image: "shop"}, Dur(time.Second), PreStopHTTP
		}, "workload.preStopBy is http: it is answered by the built-in application only"},
		"stuck update": {func(s *Setup) { s.Workload.MaxSurge, s.Workload.MaxUnavailable = "0%", "0" },
			"workload.maxUnavailable is 0 with maxSurge 0%: want one of them above 0"},
		"half a policy": {func(s *Setup) { s.Workload.HPA.Pods = 1 }, "workload.hpa: pods is 1 and period is 0s: want both or neither"},
		"long period": {func(s *Setup) { s.Workload.HPA = HPABehavior{Pods: 1, Period: Dur(time.Hour)} },
			"workload.hpa.period is 1h0m0s: want whole seconds, at most 30m"},
		"gate of nodes": {func(s *Setup) { s.LoadBalancer.ReadinessGate = true }, "loadBalancer.readinessGate: want targetType ip"},
		"policy of pods": {func(s *Setup) {
			s.LoadBalancer.TargetType, s.LoadBalancer.ExternalTrafficPolicy = TargetIP, TrafficLocal
		}, "loadBalancer.externalTrafficPolicy is Local: want targetType instance"},
		"kube-proxy": {func(s *Setup) { s.Cluster.KubeProxyMode = "ipvs" }, `cluster.kubeProxyMode is "ipvs": want iptables or nftables`},
		"long-lived": {func(s *Setup) { s.Load.Connections = ConnectionsLongLived }, "load.longLived is 0: want 1..1000 connections with connections long-lived"},
		"own grace":  {func(s *Setup) { s.Workload.GracePeriod = Duration{} }, "workload.gracePeriod is 0s: want whole seconds, at least 1s"},
	} {
		s := testSetup()
		c.edit(&s)
		if err := s.validate(); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
	own := testSetup()
	own.Workload.App, own.Workload.GracePeriod = &App{Manifests: "..."}, Duration{}
	if err := own.validate(); err != nil {
		t.Errorf("a grace period that the manifests have: %v", err)
	}
}
