package reports

import (
	"strings"
	"testing"

	"lameduck/harness"
)

// edit is a mitigation that sets fields to values.
func edit(fieldsAndValues ...string) harness.Mitigation {
	m := harness.Mitigation{Name: "m"}
	for i := 0; i < len(fieldsAndValues); i += 2 {
		m.Edits = append(m.Edits, harness.Edit{Field: fieldsAndValues[i], To: fieldsAndValues[i+1]})
	}
	return m
}

func TestEditDiff(t *testing.T) {
	e := anExperiment()
	withBudget, own, withSleep := e.Base, e.Base, e.Base
	withBudget.Workload.PodDisruptionBudget = "4"
	own.Workload.App = &harness.App{Image: "shop"}
	withSleep.Workload.PreStopSleep = e.Base.LoadBalancer.DeregistrationDelay // 30s
	for _, c := range []struct {
		name string
		base harness.Setup
		edit harness.Mitigation
		want string
	}{
		{"sigterm", e.Base, edit("workload.onSigterm", "wait", "workload.sigtermWait", "1m30s"), `
 spec:
   template:
     spec:
       containers:
         - name: app
-          args: ["--on-sigterm=drain"]
+          args: ["--on-sigterm=wait=1m30s"]
`},
		{"sleep and grace", e.Base, edit("workload.preStopSleep", "39.5s", "workload.gracePeriod", "1m0s"), `
 spec:
   template:
     spec:
-      terminationGracePeriodSeconds: 30
+      terminationGracePeriodSeconds: 60
       containers:
         - name: app
+          lifecycle:
+            preStop:
+              sleep: {seconds: 40}
`},
		{"another sleep", withSleep, edit("workload.preStopSleep", "5s"), `
 spec:
   template:
     spec:
       containers:
         - name: app
           lifecycle:
             preStop:
-              sleep: {seconds: 30}
+              sleep: {seconds: 5}
`},
		{"no sleep", withSleep, edit("workload.preStopSleep", "0s"), `
 spec:
   template:
     spec:
       containers:
         - name: app
-          lifecycle:
-            preStop:
-              sleep: {seconds: 30}
`},
		{"nothing", e.Base, edit(), "\n"},
		{"hook by http", e.Base, edit("workload.preStopSleep", "10s", "workload.preStopBy", "http"), `
 spec:
   template:
     spec:
       containers:
         - name: app
+          lifecycle:
+            preStop:
+              httpGet: {path: /prestop, port: http}
`},
		{"another kind of hook", withSleep, edit("workload.preStopBy", "http"), `
 spec:
   template:
     spec:
       containers:
         - name: app
           lifecycle:
             preStop:
-              sleep: {seconds: 30}
+              httpGet: {path: /prestop, port: http}
`},
		{"rolling update", e.Base, edit("workload.maxUnavailable", "0", "workload.maxSurge", "25%", "workload.minReadySeconds", "10"), `
 spec:
+  minReadySeconds: 10
   strategy:
     rollingUpdate:
+      maxSurge: 25%
+      maxUnavailable: 0
`},
		{"HPA", e.Base, edit("workload.hpa.pods", "1", "workload.hpa.period", "15s", "workload.hpa.stabilization", "5m"), `
 kind: HorizontalPodAutoscaler
 spec:
   behavior:
     scaleDown:
+      policies: [{type: Pods, value: 1, periodSeconds: 15}]
+      stabilizationWindowSeconds: 300
`},
		{"budget", e.Base, edit("workload.podDisruptionBudget", "4"), `
+kind: PodDisruptionBudget
+spec:
+  minAvailable: 4
+  selector: {matchLabels: {app.kubernetes.io/name: app}}
`},
		{"another budget", withBudget, edit("workload.podDisruptionBudget", "50%"), `
 kind: PodDisruptionBudget
 spec:
-  minAvailable: 4
+  minAvailable: 50%
`},
		{"load balancer", e.Base, edit("loadBalancer.targetType", "ip", "loadBalancer.idleTimeout", "30s", "loadBalancer.deregistrationDelay", "5s"), `
 kind: Ingress
 metadata:
   annotations:
-    alb.ingress.kubernetes.io/target-type: instance
+    alb.ingress.kubernetes.io/target-type: ip
-    alb.ingress.kubernetes.io/load-balancer-attributes: idle_timeout.timeout_seconds=60
+    alb.ingress.kubernetes.io/load-balancer-attributes: idle_timeout.timeout_seconds=30
-    alb.ingress.kubernetes.io/target-group-attributes: deregistration_delay.timeout_seconds=30
+    alb.ingress.kubernetes.io/target-group-attributes: deregistration_delay.timeout_seconds=5
`},
		{"traffic policy", e.Base, edit("loadBalancer.externalTrafficPolicy", "Local"), `
 kind: Service
 spec:
+  externalTrafficPolicy: Local
`},
		{"readiness gate", e.Base, edit("loadBalancer.readinessGate", "true", "workload.gracePeriod", "60s"), `
 spec:
   template:
     spec:
-      terminationGracePeriodSeconds: 30
+      terminationGracePeriodSeconds: 60
 kind: Namespace
 metadata:
   labels:
+    elbv2.k8s.aws/pod-readiness-gate-inject: enabled
`},
		{"kube-proxy", e.Base, edit("cluster.kubeProxyMode", "nftables", "cluster.kubeProxyMinSyncPeriod", "10s"), `
 kind: KubeProxyConfiguration
+mode: nftables
+nftables:
+  minSyncPeriod: 10s
`},
		{"an application's own behaviour", e.Base, edit("workload.closeWhileDraining", "true"), "\n"},
		{"own application", own, edit("workload.gracePeriod", "60s", "workload.preStopSleep", "10s"), `
 spec:
   template:
     spec:
-      terminationGracePeriodSeconds: 30
+      terminationGracePeriodSeconds: 60
       containers:
         - # your container, the one that answers the requests
+          lifecycle:
+            preStop:
+              sleep: {seconds: 10}
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := editDiff(c.base, c.edit)
			if err != nil || "\n"+got != c.want {
				t.Errorf("%v, got\n%s\nwant%s", err, got, c.want)
			}
		})
	}
	if _, err := editDiff(e.Base, edit("workload.color", "red")); err == nil || !strings.HasPrefix(err.Error(), "show the edit: ") {
		t.Errorf("got %v", err)
	}
}

func TestEditAdvice(t *testing.T) {
	e := anExperiment()
	for i, want := range []string{
		"",
		"20s of it are left",
		"goes on serving, new connections too, for 10s,",
		"The grace period (30s) ends before the waiting (40s) does",
	} {
		got := strings.Join(editAdvice(e.Base, e.Mitigations[i]), "\n")
		if !strings.Contains(got, want) || (want == "") != (got == "") {
			t.Errorf("%s: got %q, want %q in it", e.Mitigations[i].Name, got, want)
		}
	}
}

// What no manifest shows is told in words, once.
func TestEditAdviceBesidesTheDiff(t *testing.T) {
	e := anExperiment()
	for _, c := range []struct {
		edit harness.Mitigation
		want []string
	}{
		{edit(), nil},
		{edit("workload.gracePeriod", "60s"), nil},
		{edit("workload.preStopSleep", "10s", "workload.preStopBy", "sleep"), []string{
			"The `sleep` action needs Kubernetes 1.30, and can not be longer", "20s of it are left"}},
		{edit("workload.preStopSleep", "10s", "workload.preStopBy", "http", "workload.failReadiness", "true", "workload.closeWhileDraining", "true"), []string{
			"serve the path of the hook, and answer it only after 10s.",
			"say `Connection: close` in every answer from the call of the preStop hook on.",
			"answer 503 from the call of the preStop hook on.", "20s of it are left"}},
		{edit("workload.closeWhileDraining", "true"), []string{"In your own application, say `Connection: close` in every answer from SIGTERM on."}},
		{edit("workload.failReadiness", "true"), []string{"let the path of the readiness probe answer 503 from SIGTERM on."}},
		{edit("workload.keepAlive", "5s"), []string{"kept for 5s, which is not longer than the load balancer's 1m0s"}},
		{edit("workload.keepAlive", "90s"), []string{"keep idle connections longer than the load balancer does (1m0s); here it was 1m30s."}},
		{edit("loadBalancer.targetType", "ip"), []string{"IP targets need pod addresses"}},
		{edit("loadBalancer.readinessGate", "true"), []string{"replace the pods once the namespace has the label"}},
		{edit("loadBalancer.externalTrafficPolicy", "Local"), []string{"spread the pods over the nodes"}},
		{edit("cluster.kubeProxyMode", "nftables"), []string{"kube-proxy's configuration is the whole cluster's"}},
		{edit("scenario.keepOld", "30s"), []string{"keep the old pods for 30s after the cutover"}},
		{edit("scenario.holdNode", "30s"), []string{"Let a node's machine go on for 30s"}},
	} {
		got := editAdvice(e.Base, c.edit)
		if len(got) != len(c.want) {
			t.Errorf("%v: got %q, want %q", c.edit.Edits, got, c.want)
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(got[i], want) {
				t.Errorf("%v: got %q, want %q in it", c.edit.Edits, got[i], want)
			}
		}
	}
}
