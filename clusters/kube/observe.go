package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lameduck/clusters"
	"lameduck/harness"
	"lameduck/harness/evidence"
)

// gatePrefix is that of the readiness gates of the AWS Load Balancer Controller
// (its guide, Pod readiness gate).
const gatePrefix = "target-health.elbv2.k8s.aws/"

// Observe implements harness.Deployment: the objects from the API server, which
// an admission webhook may have changed, what the load balancer has in force from
// its log of settings, and the built-in application's answer to what it was told.
// Pods that terminate are left out.
func (d *deployment) Observe(ctx context.Context) (harness.Live, error) {
	list, err := d.world.client.CoreV1().Pods(d.namespace).List(ctx, metav1.ListOptions{LabelSelector: evidence.RoleLabel + "=" + evidence.RoleApp})
	if err != nil {
		return harness.Live{}, fmt.Errorf("list pods: %w", err)
	}
	live := harness.Live{Settings: make(map[string]string)}
	for _, pod := range list.Items {
		if pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning || pod.Labels[colourLabel] != d.current() {
			continue
		}
		p, err := d.observePod(ctx, &pod)
		if err != nil {
			return harness.Live{}, err
		}
		live.Pods = append(live.Pods, p)
	}
	for _, observe := range []func(context.Context, map[string]string) error{
		d.observeObjects, d.observeLoadBalancer, d.observeCluster,
	} {
		if err := observe(ctx, live.Settings); err != nil {
			return harness.Live{}, err
		}
	}
	return live, nil
}

func (d *deployment) observePod(ctx context.Context, pod *corev1.Pod) (harness.LivePod, error) {
	live := harness.LivePod{Name: pod.Name, Ready: isReady(pod), Settings: make(map[string]string)}
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		live.Settings["workload.gracePeriod"] = seconds(*s)
	}
	// A hook of the application's own manifests is of no account unless the setup
	// asks for one.
	if w := d.trial.Setup.Workload; w.App == nil || w.PreStopSleep.Duration > 0 {
		sleep, by, err := readPreStop(pod, d.names.Container)
		if err != nil {
			return live, fmt.Errorf("pod %s: %w", pod.Name, err)
		}
		live.Settings["workload.preStopSleep"], live.Settings["workload.preStopBy"] = sleep.String(), string(by)
	}
	live.Settings["loadBalancer.readinessGate"] = strconv.FormatBool(gateIsOpen(pod))
	if d.trial.Setup.Workload.App != nil {
		return live, nil // which cannot be asked
	}
	return live, d.askApplication(ctx, pod.Name, live.Settings)
}

// askApplication reads what the built-in application was told.
func (d *deployment) askApplication(ctx context.Context, pod string, settings map[string]string) error {
	body, err := d.world.http.get(ctx, d.namespace, pod, configPath)
	if err != nil {
		return err
	}
	var config struct {
		OnSIGTERM          harness.OnSIGTERM `json:"onSigterm"`
		SIGTERMWait        harness.Duration  `json:"sigtermWait"`
		KeepAlive          harness.Duration  `json:"keepAlive"`
		CloseWhileDraining *bool             `json:"closeWhileDraining"`
		FailReadiness      *bool             `json:"failReadiness"`
	}
	if err := json.Unmarshal(body, &config); err != nil {
		return fmt.Errorf("read %s of pod %s: %w", configPath, pod, err)
	}
	settings["workload.onSigterm"] = string(config.OnSIGTERM)
	settings["workload.sigtermWait"] = config.SIGTERMWait.String()
	settings["workload.keepAlive"] = config.KeepAlive.String()
	for name, value := range map[string]*bool{
		"workload.closeWhileDraining": config.CloseWhileDraining, "workload.failReadiness": config.FailReadiness,
	} {
		if value != nil {
			settings[name] = strconv.FormatBool(*value)
		}
	}
	return nil
}

// gateIsOpen says whether a pod has the controller's readiness gate, and the
// load balancer has found its target healthy.
func gateIsOpen(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.ReadinessGates, func(g corev1.PodReadinessGate) bool {
		return strings.HasPrefix(string(g.ConditionType), gatePrefix) &&
			slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == g.ConditionType && c.Status == corev1.ConditionTrue
			})
	})
}

// observeObjects reads the objects around the pods.
func (d *deployment) observeObjects(ctx context.Context, settings map[string]string) error {
	get := metav1.GetOptions{}
	deployed, err := d.world.client.AppsV1().Deployments(d.namespace).Get(ctx, d.names.Deployment, get)
	if err != nil {
		return fmt.Errorf("read Deployment: %w", err)
	}
	settings["workload.minReadySeconds"] = strconv.Itoa(int(deployed.Spec.MinReadySeconds))
	if r := deployed.Spec.Strategy.RollingUpdate; r != nil {
		settings["workload.maxSurge"], settings["workload.maxUnavailable"] = r.MaxSurge.String(), r.MaxUnavailable.String()
	}
	service, err := d.world.client.CoreV1().Services(d.namespace).Get(ctx, d.names.Service, get)
	if err != nil {
		return fmt.Errorf("read Service: %w", err)
	}
	settings["loadBalancer.externalTrafficPolicy"] = string(service.Spec.ExternalTrafficPolicy)

	budget, err := d.world.client.PolicyV1().PodDisruptionBudgets(d.namespace).Get(ctx, d.names.Budget, get)
	switch {
	case gone(err):
	case err != nil:
		return fmt.Errorf("read PodDisruptionBudget: %w", err)
	case budget.Spec.MinAvailable != nil:
		settings["workload.podDisruptionBudget"] = budget.Spec.MinAvailable.String()
	}
	return d.observeHPA(ctx, settings)
}

func (d *deployment) observeHPA(ctx context.Context, settings map[string]string) error {
	hpa, err := d.world.client.AutoscalingV2().HorizontalPodAutoscalers(d.namespace).Get(ctx, d.names.HPA, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read HorizontalPodAutoscaler: %w", err)
	}
	if hpa.Spec.Behavior == nil || hpa.Spec.Behavior.ScaleDown == nil {
		return nil
	}
	down := hpa.Spec.Behavior.ScaleDown
	if s := down.StabilizationWindowSeconds; s != nil {
		settings["workload.hpa.stabilization"] = seconds(int64(*s))
	}
	// With a second policy the first one alone would not be what is in force.
	if len(down.Policies) == 1 && down.Policies[0].Type == "Pods" {
		settings["workload.hpa.pods"] = strconv.Itoa(int(down.Policies[0].Value))
		settings["workload.hpa.period"] = seconds(int64(down.Policies[0].PeriodSeconds))
	}
	return nil
}

// settingsLine is a line of the load balancer's log of settings (see
// clusters.LogSettings).
type settingsLine struct {
	LoadBalancer string            `json:"loadBalancer"`
	Group        string            `json:"group"`
	TargetType   string            `json:"targetType"`
	Attributes   map[string]string `json:"attributes"`
}

// observeLoadBalancer reads what the load balancer has in force, not what the
// Ingress asks for. Without its log it is not known.
func (d *deployment) observeLoadBalancer(ctx context.Context, settings map[string]string) error {
	group := fmt.Sprintf("%s/%s:%d", d.namespace, d.names.Service, d.names.ServicePort)
	attribute := func(line settingsLine, name, field string) error {
		value, err := strconv.ParseInt(line.Attributes[name], 10, 64)
		if err != nil {
			return fmt.Errorf("read the load balancer's settings: %s is %q: want seconds", name, line.Attributes[name])
		}
		settings[field] = seconds(value)
		return nil
	}
	return d.eachLogLine(ctx, clusters.LogSettings, func(text []byte) error {
		var line settingsLine
		if err := json.Unmarshal(text, &line); err != nil {
			return fmt.Errorf("read the load balancer's settings: %w", err)
		}
		switch {
		case line.Attributes == nil: // about something else
		case line.Group == group:
			settings["loadBalancer.targetType"] = line.TargetType
			return attribute(line, "deregistration_delay.timeout_seconds", "loadBalancer.deregistrationDelay")
		case line.LoadBalancer != "":
			return attribute(line, "idle_timeout.timeout_seconds", "loadBalancer.idleTimeout")
		}
		return nil
	})
}

// observeCluster asks the kube-proxies, if the setup sets anything of theirs.
func (d *deployment) observeCluster(ctx context.Context, settings map[string]string) error {
	if d.trial.Setup.Cluster == (harness.ClusterSettings{}) || d.world.cfg.KubeProxies == nil {
		return nil
	}
	proxies, err := d.world.cfg.KubeProxies.KubeProxy(ctx)
	if err != nil {
		return fmt.Errorf("read the settings of kube-proxy: %w", err)
	}
	settings["cluster.kubeProxyMode"] = proxies.Mode
	settings["cluster.kubeProxyMinSyncPeriod"] = proxies.MinSyncPeriod.String()
	return nil
}

// seconds is a number of seconds as harness.Duration writes it.
func seconds(n int64) string { return (time.Duration(n) * time.Second).String() }
