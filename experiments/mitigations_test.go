package experiments

import (
	"strings"
	"testing"
	"time"

	"lameduck/harness"
)

// mitigationCases are one name of each form, and what it edits.
var mitigationCases = map[string]string{
	"none":                             "",
	"prestop-sleep-10s":                "workload.preStopSleep=10s workload.preStopBy=exec",
	"prestop-sleep-40s-grace-30s":      "workload.preStopSleep=40s workload.preStopBy=exec workload.gracePeriod=30s",
	"prestop-native-sleep-1m30s":       "workload.preStopSleep=1m30s workload.preStopBy=sleep",
	"prestop-native-sleep-5s-grace-1m": "workload.preStopSleep=5s workload.preStopBy=sleep workload.gracePeriod=1m",
	"prestop-http-10s":                 "workload.preStopSleep=10s workload.preStopBy=http",
	"prestop-http-10s-grace-40s":       "workload.preStopSleep=10s workload.preStopBy=http workload.gracePeriod=40s",
	"prestop-http-10s-fail-readiness":  "workload.preStopSleep=10s workload.preStopBy=http workload.failReadiness=true",
	"prestop-http-10s-fail-readiness-grace-40s": "workload.preStopSleep=10s workload.preStopBy=http workload.failReadiness=true " +
		"workload.gracePeriod=40s",
	"sigterm-wait-10s":                          "workload.onSigterm=wait workload.sigtermWait=10s",
	"sigterm-wait-10s-grace-40s":                "workload.onSigterm=wait workload.sigtermWait=10s workload.gracePeriod=40s",
	"sigterm-wait-10s-close":                    "workload.onSigterm=wait workload.sigtermWait=10s workload.closeWhileDraining=true",
	"sigterm-wait-10s-close-grace-40s":          "workload.onSigterm=wait workload.sigtermWait=10s workload.closeWhileDraining=true workload.gracePeriod=40s",
	"sigterm-wait-10s-fail-readiness":           "workload.onSigterm=wait workload.sigtermWait=10s workload.failReadiness=true",
	"sigterm-wait-10s-fail-readiness-grace-40s": "workload.onSigterm=wait workload.sigtermWait=10s workload.failReadiness=true workload.gracePeriod=40s",
	"close-while-draining":                      "workload.closeWhileDraining=true",
	"grace-1m":                                  "workload.gracePeriod=1m",
	"deregistration-delay-5s":                   "loadBalancer.deregistrationDelay=5s",
	"ip-targets":                                "loadBalancer.targetType=ip",
	"readiness-gate":                            "loadBalancer.readinessGate=true",
	"local-traffic-policy":                      "loadBalancer.externalTrafficPolicy=Local",
	"idle-timeout-30s":                          "loadBalancer.idleTimeout=30s",
	"keep-alive-5s":                             "workload.keepAlive=5s",
	"hpa-one-pod-per-15s":                       "workload.hpa.pods=1 workload.hpa.period=15s",
	"hpa-stabilization-5m":                      "workload.hpa.stabilization=5m",
	"max-unavailable-0":                         "workload.maxUnavailable=0 workload.maxSurge=25%",
	"min-ready-1m30s":                           "workload.minReadySeconds=90",
	"max-unavailable-0-min-ready-10s":           "workload.maxUnavailable=0 workload.maxSurge=25% workload.minReadySeconds=10",
	"keep-old-30s":                              "scenario.keepOld=30s",
	"hold-node-30s":                             "scenario.holdNode=30s",
	"kube-proxy-nftables":                       "cluster.kubeProxyMode=nftables",
	"min-sync-period-10s":                       "cluster.kubeProxyMinSyncPeriod=10s",
	"pod-disruption-budget-4":                   "workload.podDisruptionBudget=4",
}

func TestMitigation(t *testing.T) {
	for name, want := range mitigationCases {
		m, err := Mitigation(name)
		var got []string
		for _, e := range m.Edits {
			got = append(got, e.Field+"="+e.To)
		}
		if err != nil || m.Name != name || strings.Join(got, " ") != want {
			t.Errorf("%s: got %s %q, error %v\nwant %s", name, m.Name, got, err, want)
		}
	}
}

// No two forms take the same name, each has its case above, and each is told
// about.
func TestEveryFormHasItsNames(t *testing.T) {
	for _, f := range families {
		var fits []string
		for name := range mitigationCases {
			if _, ok := f.match(name); ok {
				fits = append(fits, name)
			}
		}
		if len(fits) != 1 {
			t.Errorf("%s: fits %q, want one of the cases", f.Form, fits)
		}
		if f.About == "" || f.Proof == "" || strings.Contains(f.About+f.Proof, "\n") {
			t.Errorf("%s: about %q, proof %q: want a line each", f.Form, f.About, f.Proof)
		}
	}
	if len(families) != len(mitigationCases) {
		t.Errorf("%d forms, %d cases: want one for each", len(families), len(mitigationCases))
	}
}

// Every mitigation can be live in some setup: it applies, and gives one that the
// harness accepts.
func TestEveryMitigationGivesASetupThatIsAccepted(t *testing.T) {
	for name := range mitigationCases {
		e, err := Builtin("scale-in")
		if err != nil {
			t.Fatal(err)
		}
		m, err := Mitigation(name)
		if err != nil {
			t.Fatal(err)
		}
		e.Exclude, e.Expect = nil, nil
		e.Mitigations, e.TargetTypes = []harness.Mitigation{m}, []harness.TargetType{harness.TargetInstance}
		if name == "readiness-gate" {
			e.TargetTypes = []harness.TargetType{harness.TargetIP}
		}
		e.Base.Workload.GracePeriod = harness.Dur(45 * time.Second)
		if _, err := harness.Expand(e, "test"); name != "prestop-native-sleep-1m30s" && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWrongMitigations(t *testing.T) {
	const forms = `want one of none, prestop-sleep-D, prestop-sleep-D-grace-D, prestop-native-sleep-D, `
	const duration = `want a number with a unit, like 500ms, 10s or 2m`
	for _, c := range []struct{ name, want string }{
		{"", `mitigation "": ` + forms},
		{"nothing", `mitigation "nothing": ` + forms},
		{"prestop-sleep", `mitigation "prestop-sleep": ` + forms},
		{"prestop-sleep-", `mitigation "prestop-sleep-": ` + forms},
		{"prestop-sleep--5s", `mitigation "prestop-sleep--5s": ` + forms},
		{"none-10s", `mitigation "none-10s": ` + forms},
		{"ip-targets-grace-30s", `mitigation "ip-targets-grace-30s": ` + forms},
		{"prestop-sleep-10", `mitigation "prestop-sleep-10": duration "10": ` + duration},
		{"prestop-sleep-40s-grace-x", `mitigation "prestop-sleep-40s-grace-x": duration "x": ` + duration},
		{"sigterm-wait-0s", `mitigation "sigterm-wait-0s": duration is 0s: want more than 0s`},
		{"min-ready-10", `mitigation "min-ready-10": duration "10": ` + duration},
		{"pod-disruption-budget-0", `mitigation "pod-disruption-budget-0": number is "0": want a whole number of 1 or more`},
		{"pod-disruption-budget-50%", `mitigation "pod-disruption-budget-50%": number is "50%": want a whole number of 1 or more`},
	} {
		_, err := Mitigation(c.name)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%q: got %v\nwant %s", c.name, err, c.want)
		}
		if err != nil && strings.Contains(c.want, forms) && !strings.HasSuffix(err.Error(), ", pod-disruption-budget-N, where D is a duration such as 10s and N a number") {
			t.Errorf("%q: %v does not list every form", c.name, err)
		}
	}
}
