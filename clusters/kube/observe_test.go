package kube

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"lameduck/clusters"
	"lameduck/harness"
)

// settingsLog is what a load balancer writes that was changed once: the last
// lines are in force.
func settingsLog(namespace, targetType string, idle, delay int) string {
	line := func(format string, args ...any) string {
		return `{"time":"2026-03-01T09:20:30Z",` + fmt.Sprintf(format, args...) + "}\n"
	}
	group := namespace + "/app:80"
	return line(`"loadBalancer":"%s/app","attributes":{"idle_timeout.timeout_seconds":"1"}`, namespace) +
		line(`"group":"%s","targetType":"%s","attributes":{"deregistration_delay.timeout_seconds":"1"}`, group, targetType) +
		line(`"loadBalancer":"%s/app","attributes":{"idle_timeout.timeout_seconds":"%d"}`, namespace, idle) +
		line(`"group":"%s","targetType":"%s","attributes":{"deregistration_delay.timeout_seconds":"%d"}`, group, targetType, delay) +
		line(`"loadBalancer":"%s/app","node":"198.18.0.5","applied":"rules","rules":[]`, namespace) +
		line(`"group":"%s/control:80","targetType":"ip","attributes":{"deregistration_delay.timeout_seconds":"7"}`, namespace)
}

// withSettings is a load balancer that has settings but no targets that anybody
// waits for.
func withSettings(d harness.Deployment, targetType string, idle, delay int) {
	d.(*deployment).world.cfg.LoadBalancerLog = fakeLog(func(namespace, _ string, log clusters.LogName) (string, error) {
		if log == clusters.LogSettings {
			return settingsLog(namespace, targetType, idle, delay), nil
		}
		return "", nil
	})
}

// observed is what a deployment says of itself with a load balancer of 60 s and
// 30 s.
func observed(t *testing.T, d harness.Deployment, targetType harness.TargetType) harness.Live {
	t.Helper()
	withSettings(d, string(targetType), 60, 30)
	live, err := d.Observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return live
}

// Whatever a setup asks for is read back as live.
func TestObserve(t *testing.T) {
	for name, edit := range map[string]func(*harness.Setup){
		"nothing": func(*harness.Setup) {},
		"wait and exec hook": func(s *harness.Setup) {
			s.Workload.OnSIGTERM, s.Workload.SIGTERMWait = harness.SIGTERMWait, harness.Dur(10*time.Second)
			s.Workload.PreStopSleep = harness.Dur(1500 * time.Millisecond)
		},
		"sleep action": func(s *harness.Setup) {
			s.Workload.PreStopSleep, s.Workload.PreStopBy = harness.Dur(20*time.Second), harness.PreStopSleep
		},
		"request hook": func(s *harness.Setup) {
			s.Workload.PreStopSleep, s.Workload.PreStopBy = harness.Dur(20*time.Second), harness.PreStopHTTP
			s.Workload.CloseWhileDraining, s.Workload.FailReadiness = true, true
		},
		"rolling update": func(s *harness.Setup) {
			s.Workload.MaxSurge, s.Workload.MaxUnavailable, s.Workload.MinReadySeconds = "50%", "0", 7
			s.Workload.PodDisruptionBudget = "80%"
			s.LoadBalancer.ExternalTrafficPolicy = harness.TrafficLocal
		},
		"HPA": func(s *harness.Setup) {
			s.Workload.HPA = harness.HPABehavior{Pods: 1, Period: harness.Dur(20 * time.Second), Stabilization: harness.Dur(time.Minute)}
		},
		"kube-proxy": func(s *harness.Setup) {
			s.Cluster = harness.ClusterSettings{KubeProxyMode: harness.KubeProxyNFTables, KubeProxyMinSyncPeriod: harness.Dur(time.Second)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			setup := testTrial().Setup
			edit(&setup)
			c, d := deployed(t, func(s *harness.Setup) { *s = setup })
			d.(*deployment).world.cfg.KubeProxies = fakeProxies{clusters.KubeProxySettings{Mode: "nftables", MinSyncPeriod: time.Second}}
			c.edit(t, testNamespace, "app-0", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} })
			live := observed(t, d, harness.TargetInstance)
			if pods := live.Pods; len(pods) != 5 || pods[0].Name != "app-1" || !pods[0].Ready {
				t.Errorf("observed %+v, want the 5 that do not terminate", pods)
			}
			if diffs := harness.CheckLive(setup, live); diffs != nil {
				t.Errorf("not as asked for: %v", diffs)
			}
		})
	}
}

// What was changed behind our back is seen, field by field.
func TestObserveSeesWhatIsThere(t *testing.T) {
	setup := testTrial().Setup
	setup.Workload.MaxSurge, setup.Workload.MaxUnavailable, setup.Workload.MinReadySeconds = "1", "1", 1
	setup.Workload.PodDisruptionBudget = "1"
	setup.Workload.HPA = harness.HPABehavior{Pods: 1, Period: harness.Dur(20 * time.Second), Stabilization: harness.Dur(time.Minute)}
	setup.LoadBalancer.ExternalTrafficPolicy = harness.TrafficLocal
	setup.Cluster = harness.ClusterSettings{KubeProxyMode: "iptables", KubeProxyMinSyncPeriod: harness.Dur(time.Second)}
	c, d := deployed(t, func(s *harness.Setup) { *s = setup })
	d.(*deployment).world.cfg.KubeProxies = fakeProxies{clusters.KubeProxySettings{Mode: "nftables", MinSyncPeriod: 2 * time.Second}}
	c.edit(t, testNamespace, "app-3", func(p *corev1.Pod) {
		grace := int64(5)
		p.Spec.TerminationGracePeriodSeconds = &grace
		p.Spec.Containers[0].Args = []string{"--on-sigterm=ignore", "--keep-alive=1s", "--close-while-draining", "--fail-readiness"}
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 3}}}
		p.Status.Conditions = nil
	})
	changeObjects(t, c)
	withSettings(d, "ip", 61, 31)
	live, err := d.Observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if live.Pods[3].Name != "app-3" || live.Pods[3].Ready {
		t.Errorf("observed %+v, want app-3, not ready", live.Pods[3])
	}
	want := []string{
		"cluster.kubeProxyMinSyncPeriod is 2s, want 1s",
		"cluster.kubeProxyMode is nftables, want iptables",
		"loadBalancer.deregistrationDelay is 31s, want 30s",
		"loadBalancer.externalTrafficPolicy is Cluster, want Local",
		"loadBalancer.idleTimeout is 1m1s, want 1m0s",
		"loadBalancer.targetType is ip, want instance",
		"pod app-3: workload.closeWhileDraining is true, want false",
		"pod app-3: workload.failReadiness is true, want false",
		"pod app-3: workload.gracePeriod is 5s, want 30s",
		"workload.hpa.period is not known, want 20s",
		"workload.hpa.pods is not known, want 1",
		"workload.hpa.stabilization is 5s, want 1m0s",
		"pod app-3: workload.keepAlive is 1s, want 1m15s",
		"workload.maxSurge is 25%, want 1",
		"workload.maxUnavailable is 25%, want 1",
		"workload.minReadySeconds is 0, want 1",
		"pod app-3: workload.onSigterm is ignore, want drain",
		"workload.podDisruptionBudget is 50%, want 1",
		"pod app-3: workload.preStopSleep is 3s, want 0s",
	}
	if got := harness.CheckLive(setup, live); !slices.Equal(got, want) {
		t.Errorf("differences:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if by := live.Pods[3].Settings["workload.preStopBy"]; by != "sleep" {
		t.Errorf("the hook is by %q, want sleep", by)
	}
}

// changeObjects replaces what the setup asked for by something else.
func changeObjects(t *testing.T, c *fakeCluster) {
	t.Helper()
	ctx, get, update := t.Context(), metav1.GetOptions{}, metav1.UpdateOptions{}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	deployed, err := c.AppsV1().Deployments(testNamespace).Get(ctx, "app", get)
	must(err)
	deployed.Spec.MinReadySeconds = 0
	*deployed.Spec.Strategy.RollingUpdate.MaxSurge = intstr.FromString("25%")
	*deployed.Spec.Strategy.RollingUpdate.MaxUnavailable = intstr.FromString("25%")
	_, err = c.AppsV1().Deployments(testNamespace).Update(ctx, deployed, update)
	must(err)
	service, err := c.CoreV1().Services(testNamespace).Get(ctx, "app", get)
	must(err)
	service.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
	_, err = c.CoreV1().Services(testNamespace).Update(ctx, service, update)
	must(err)
	budget, err := c.PolicyV1().PodDisruptionBudgets(testNamespace).Get(ctx, "app", get)
	must(err)
	*budget.Spec.MinAvailable = intstr.FromString("50%")
	_, err = c.PolicyV1().PodDisruptionBudgets(testNamespace).Update(ctx, budget, update)
	must(err)
	hpa, err := c.AutoscalingV2().HorizontalPodAutoscalers(testNamespace).Get(ctx, "app", get)
	must(err)
	down := hpa.Spec.Behavior.ScaleDown
	*down.StabilizationWindowSeconds = 5
	down.Policies = append(down.Policies, autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15})
	_, err = c.AutoscalingV2().HorizontalPodAutoscalers(testNamespace).Update(ctx, hpa, update)
	must(err)
}

// A gate counts only when its condition is true, and foreign gates do not count.
func TestObserveReadinessGate(t *testing.T) {
	const ours = corev1.PodConditionType(gatePrefix + "k8s-app")
	setup := testTrial().Setup
	setup.LoadBalancer.TargetType, setup.LoadBalancer.ReadinessGate = harness.TargetIP, true
	c, d := deployed(t, func(s *harness.Setup) { *s = setup })
	for pod, gate := range map[string]struct {
		kind   corev1.PodConditionType
		status corev1.ConditionStatus
	}{
		"app-0": {ours, corev1.ConditionTrue}, "app-1": {ours, corev1.ConditionFalse}, "app-2": {"example.com/gate", corev1.ConditionTrue},
		"app-3": {ours, corev1.ConditionTrue}, "app-4": {ours, corev1.ConditionTrue}, "app-5": {ours, corev1.ConditionTrue},
	} {
		c.edit(t, testNamespace, pod, func(p *corev1.Pod) {
			p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: gate.kind}}
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: gate.kind, Status: gate.status})
		})
	}
	want := []string{
		"pod app-1: loadBalancer.readinessGate is false, want true", "pod app-2: loadBalancer.readinessGate is false, want true",
	}
	if got := harness.CheckLive(setup, observed(t, d, harness.TargetIP)); !slices.Equal(got, want) {
		t.Errorf("differences %q, want %q", got, want)
	}
}

func TestObserveFails(t *testing.T) {
	preStop := func(h *corev1.LifecycleHandler) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: h} }
	}
	for name, c := range map[string]struct {
		edit func(*corev1.Pod)
		want string
	}{
		"other command":      {preStop(&corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"nginx", "-s", "quit"}}}), `preStop runs ["nginx" "-s" "quit"]`},
		"not a duration":     {preStop(&corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/target", "sleep", "40"}}}), "preStop: time: missing unit"},
		"other request":      {preStop(&corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/quit"}}), "preStop gets /quit, want /lameduck/prestop"},
		"another kind":       {preStop(&corev1.LifecycleHandler{}), "neither a command nor a sleep nor a request"},
		"no such container":  {func(p *corev1.Pod) { p.Spec.Containers[0].Name = "x" }, "has no container app"},
		"application silent": {func(p *corev1.Pod) { p.Spec.Containers[0].Args = nil }, "no --on-sigterm"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, d := deployed(t, nil)
			cluster.edit(t, testNamespace, "app-2", c.edit)
			_, err := d.Observe(t.Context())
			checkError(t, err, c.want)
		})
	}
}

// The deployed faults are on the workload's Service only: the control target must
// not feel them.
func TestDeployedFaults(t *testing.T) {
	trial := testTrial()
	trial.Setup.Faults = []harness.Fault{
		{Kind: harness.FaultLateDeregistration, Lag: harness.DurationRange{Min: 30 * time.Second, Max: time.Minute}},
		{Kind: harness.FaultLostDeregistration},
		{Kind: harness.FaultThrottledAPI, Every: harness.Dur(30 * time.Second)},
		{Kind: harness.FaultPacketLoss, Share: 0.1},
	}
	objects, err := Manifests(trial, "image", 20014)
	if err != nil {
		t.Fatal(err)
	}
	want := []map[string]string{
		{lagAnnotation: "30s..1m0s", loseAnnotation: "true", targetsIntervalAnnotation: "30s"},
		{targetTypeAnnotation: "ip"},
	}
	for i, s := range objects.Services {
		if !reflect.DeepEqual(s.Annotations, want[i]) {
			t.Errorf("Service %s has annotations %v, want %v", s.Name, s.Annotations, want[i])
		}
	}
}

// A second attempt shares neither namespace nor listener with the first, nor with
// another trial.
func TestAttempts(t *testing.T) {
	namespaces, ports := make(map[string]bool), make(map[int]bool)
	for number := 1; number <= 50; number++ {
		for attempt := 1; attempt <= 2; attempt++ {
			trial := harness.Trial{RunID: "r", Number: number, Attempt: attempt}
			namespaces[namespaceName(trial)], ports[listenPort(trial)] = true, true
		}
	}
	if len(namespaces) != 100 || len(ports) != 100 || !namespaces["lameduck-r-0007"] || !namespaces["lameduck-r-0007-2"] {
		t.Errorf("%d namespaces and %d ports of 100 attempts: %v", len(namespaces), len(ports), namespaces)
	}
}

type fakeProxies struct{ settings clusters.KubeProxySettings }

func (f fakeProxies) KubeProxy(context.Context) (clusters.KubeProxySettings, error) {
	return f.settings, nil
}
func (f fakeProxies) SetKubeProxy(context.Context, clusters.KubeProxySettings) error { return nil }
