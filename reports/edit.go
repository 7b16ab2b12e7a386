package reports

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"lameduck/harness"
)

// editDiff shows a mitigation as a change of manifests, as a unified diff
// without hunk headers: the workload's Deployment, then what is beside it. Empty
// when it changes nothing there.
func editDiff(from harness.Setup, m harness.Mitigation) (string, error) {
	to, err := m.Apply(from)
	if err != nil {
		return "", fmt.Errorf("show the edit: %w", err)
	}
	var d diff
	was, is := from.Workload, to.Workload
	d.under(func(d *diff) { deploymentDiff(d, was, is) }, "spec:")
	d.object("HorizontalPodAutoscaler", func(d *diff) {
		d.change(scaleDownPolicy(was.HPA), scaleDownPolicy(is.HPA))
		d.change(stabilization(was.HPA), stabilization(is.HPA))
	}, "spec:", "  behavior:", "    scaleDown:")
	if was.PodDisruptionBudget != "" && is.PodDisruptionBudget != "" {
		d.object("PodDisruptionBudget", func(d *diff) { d.change(minAvailable(was), minAvailable(is)) }, "spec:")
	} else {
		d.change(budget(was), budget(is))
	}
	loadBalancerDiff(&d, from.LoadBalancer, to.LoadBalancer)
	d.object("KubeProxyConfiguration", func(d *diff) {
		d.change(kubeProxyMode(from.Cluster), kubeProxyMode(to.Cluster))
		d.change(minSyncPeriod(from.Cluster), minSyncPeriod(to.Cluster))
	})
	return d.String(), nil
}

func deploymentDiff(d *diff, was, is harness.Workload) {
	d.change(line("  minReadySeconds: ", aboveZero(was.MinReadySeconds)), line("  minReadySeconds: ", aboveZero(is.MinReadySeconds)))
	d.under(func(d *diff) {
		d.change(line("      maxSurge: ", was.MaxSurge), line("      maxSurge: ", is.MaxSurge))
		d.change(line("      maxUnavailable: ", was.MaxUnavailable), line("      maxUnavailable: ", is.MaxUnavailable))
	}, "  strategy:", "    rollingUpdate:")
	d.under(func(d *diff) {
		const grace = "      terminationGracePeriodSeconds: "
		d.change(grace+seconds(was.GracePeriod), grace+seconds(is.GracePeriod))
		d.under(func(d *diff) {
			d.change(sigtermArg(was), sigtermArg(is))
			if was.PreStopSleep.Duration > 0 && is.PreStopSleep.Duration > 0 {
				d.under(func(d *diff) { d.change(preStopAction(was), preStopAction(is)) }, "          lifecycle:", "            preStop:")
			} else {
				d.change(preStop(was), preStop(is))
			}
		}, "      containers:", "        - "+containerName(was))
	}, "  template:", "    spec:")
}

// containerName is what tells the reader which container is meant. The names in
// manifests of the user's own are not read here.
func containerName(w harness.Workload) string {
	if w.App != nil {
		return "# your container, the one that answers the requests"
	}
	return "name: app"
}

// loadBalancerDiff has the annotations and labels of the AWS Load Balancer
// Controller (its guide, Ingress annotations and Pod readiness gate).
func loadBalancerDiff(d *diff, was, is harness.LoadBalancer) {
	d.object("Ingress", func(d *diff) {
		const prefix = "    alb.ingress.kubernetes.io/"
		// The controller's default is instance.
		d.change(prefix+"target-type: "+string(cmp.Or(was.TargetType, harness.TargetInstance)),
			prefix+"target-type: "+string(cmp.Or(is.TargetType, harness.TargetInstance)))
		const idle = prefix + "load-balancer-attributes: idle_timeout.timeout_seconds="
		d.change(idle+seconds(was.IdleTimeout), idle+seconds(is.IdleTimeout))
		const delay = prefix + "target-group-attributes: deregistration_delay.timeout_seconds="
		d.change(delay+seconds(was.DeregistrationDelay), delay+seconds(is.DeregistrationDelay))
	}, "metadata:", "  annotations:")
	d.object("Service", func(d *diff) {
		const policy = "  externalTrafficPolicy: "
		d.change(line(policy, string(was.ExternalTrafficPolicy)), line(policy, string(is.ExternalTrafficPolicy)))
	}, "spec:")
	d.object("Namespace", func(d *diff) {
		d.change(gateLabel(was), gateLabel(is))
	}, "metadata:", "  labels:")
}

// line is a line of a manifest, none without a value.
func line(key, value string) string {
	if value == "" {
		return ""
	}
	return key + value
}

func aboveZero(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// sigtermArg is an argument of the built-in application.
func sigtermArg(w harness.Workload) string {
	if w.App != nil {
		return ""
	}
	arg := string(w.OnSIGTERM)
	if w.OnSIGTERM == harness.SIGTERMWait {
		arg += "=" + w.SIGTERMWait.String()
	}
	return `          args: ["--on-sigterm=` + arg + `"]`
}

// preStopAction is the sleep action for a command that sleeps too: it says the
// same, and needs no program in the image.
func preStopAction(w harness.Workload) string {
	if w.PreStopBy == harness.PreStopHTTP {
		return "              httpGet: {path: /prestop, port: http}"
	}
	return "              sleep: {seconds: " + seconds(w.PreStopSleep) + "}"
}

func preStop(w harness.Workload) string {
	if w.PreStopSleep.Duration == 0 {
		return ""
	}
	return "          lifecycle:\n            preStop:\n" + preStopAction(w)
}

func scaleDownPolicy(h harness.HPABehavior) string {
	if h.Pods == 0 {
		return ""
	}
	return fmt.Sprintf("      policies: [{type: Pods, value: %d, periodSeconds: %s}]", h.Pods, seconds(h.Period))
}

func stabilization(h harness.HPABehavior) string {
	if h.Stabilization.Duration == 0 {
		return ""
	}
	return "      stabilizationWindowSeconds: " + seconds(h.Stabilization)
}

func minAvailable(w harness.Workload) string { return "  minAvailable: " + w.PodDisruptionBudget }

func budget(w harness.Workload) string {
	if w.PodDisruptionBudget == "" {
		return ""
	}
	return "kind: PodDisruptionBudget\nspec:\n" + minAvailable(w) + "\n  selector: {matchLabels: {app.kubernetes.io/name: app}}"
}

func gateLabel(lb harness.LoadBalancer) string {
	if !lb.ReadinessGate {
		return ""
	}
	return "    elbv2.k8s.aws/pod-readiness-gate-inject: enabled"
}

func kubeProxyMode(c harness.ClusterSettings) string { return line("mode: ", c.KubeProxyMode) }

func minSyncPeriod(c harness.ClusterSettings) string {
	if c.KubeProxyMinSyncPeriod.Duration == 0 {
		return ""
	}
	return fmt.Sprintf("%s:\n  minSyncPeriod: %s", cmp.Or(c.KubeProxyMode, harness.KubeProxyIPTables), c.KubeProxyMinSyncPeriod)
}

// seconds is a duration as manifests have it: whole seconds, rounded up.
func seconds(d harness.Duration) string {
	return fmt.Sprint(int(math.Ceil(d.Duration.Seconds() - float64(time.Nanosecond)/float64(time.Second))))
}

// diff collects lines that are the same, gone or new.
type diff struct {
	strings.Builder
	changed bool
}

func (d *diff) same(lines ...string) {
	for _, line := range lines {
		d.WriteString(" " + line + "\n")
	}
}

// object is under for the manifest of another object than the Deployment.
func (d *diff) object(kind string, fill func(*diff), lines ...string) {
	d.under(fill, append([]string{"kind: " + kind}, lines...)...)
}

// under puts what fill changes below lines that are the same. Where it changes
// nothing, they are left out too.
func (d *diff) under(fill func(*diff), lines ...string) {
	var inner diff
	if fill(&inner); !inner.changed {
		return
	}
	d.changed = true
	d.same(lines...)
	d.WriteString(inner.String())
}

// change takes texts of no, one or several lines, and shows nothing when they
// are the same.
func (d *diff) change(from, to string) {
	if from == to {
		return
	}
	d.changed = true
	d.marked("-", from)
	d.marked("+", to)
}

func (d *diff) marked(mark, text string) {
	if text == "" {
		return
	}
	for line := range strings.Lines(text + "\n") {
		d.WriteString(mark + line)
	}
}
