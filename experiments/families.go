package experiments

import (
	"slices"

	"lameduck/harness"
)

// Where proofs are found.
const (
	onPod        = "the running pods' specs"
	onApp        = "the running pods' specs and the application's own word"
	onDeployment = "the Deployment as the API server has it"
	onHPA        = "the HorizontalPodAutoscaler as the API server has it"
	onService    = "the Service as the API server has it"
	onGroup      = "the target group's attributes"
	onBalancer   = "the load balancer's attributes"
	onKubeProxy  = "the running kube-proxies' configuration and rules"
	inRecord     = "the recorded events: the time between the two steps"
)

// families are all mitigations that have a name. Others are lists of edits in
// an experiment file.
var families = slices.Concat(
	[]family{{MitigationForm{"none", "nothing: what the others are compared with", "nothing to prove"}, nil}},
	andGrace("prestop-sleep-D", "a preStop hook sleeps for D, by a command in the container", onPod,
		set("workload.preStopSleep", "$1"), set("workload.preStopBy", string(harness.PreStopExec))),
	andGrace("prestop-native-sleep-D", "a preStop hook sleeps for D, by the kubelet's sleep action (Kubernetes 1.30); D up to the grace period", onPod,
		set("workload.preStopSleep", "$1"), set("workload.preStopBy", string(harness.PreStopSleep))),
	andGrace("prestop-http-D", "a preStop hook asks the application by httpGet, which answers after D", onPod,
		set("workload.preStopSleep", "$1"), set("workload.preStopBy", string(harness.PreStopHTTP))),
	andGrace("prestop-http-D-fail-readiness", "the same, and readiness fails meanwhile", onApp,
		set("workload.preStopSleep", "$1"), set("workload.preStopBy", string(harness.PreStopHTTP)), set("workload.failReadiness", "true")),
	andGrace("sigterm-wait-D", "the application serves on for D after SIGTERM, and stops then", onApp, sigtermWait...),
	andGrace("sigterm-wait-D-close", "the same, and answers say Connection: close meanwhile", onApp,
		with(sigtermWait, set("workload.closeWhileDraining", "true"))...),
	andGrace("sigterm-wait-D-fail-readiness", "the same as sigterm-wait-D, and readiness fails meanwhile", onApp,
		with(sigtermWait, set("workload.failReadiness", "true"))...),
	one("close-while-draining", "answers say Connection: close from SIGTERM on", onApp, set("workload.closeWhileDraining", "true")),
	one("grace-D", "terminationGracePeriodSeconds is D", onPod, set("workload.gracePeriod", "$1")),
	one("deregistration-delay-D", "the load balancer lets requests to a deregistered target go on for D", onGroup,
		set("loadBalancer.deregistrationDelay", "$1")),
	one("ip-targets", "the load balancer sends to pods instead of nodes", onGroup, set("loadBalancer.targetType", string(harness.TargetIP))),
	one("readiness-gate", "a pod is ready when its target is healthy; IP targets only", onPod, set("loadBalancer.readinessGate", "true")),
	one("local-traffic-policy", "a node sends to its own pods only (externalTrafficPolicy Local); instance targets only", onService,
		set("loadBalancer.externalTrafficPolicy", string(harness.TrafficLocal))),
	one("idle-timeout-D", "the load balancer closes connections that were idle for D", onBalancer, set("loadBalancer.idleTimeout", "$1")),
	one("keep-alive-D", "the application closes connections that were idle for D", onApp, set("workload.keepAlive", "$1")),
	one("hpa-one-pod-per-D", "the HPA removes one pod in each D", onHPA, set("workload.hpa.pods", "1"), set("workload.hpa.period", "$1")),
	one("hpa-stabilization-D", "the HPA looks back for D before it scales in", onHPA, set("workload.hpa.stabilization", "$1")),
	one("max-unavailable-0", "a rolling update removes a pod only when its successor is available", onDeployment, maxUnavailable...),
	one("min-ready-D", "a pod is available when it has been ready for D", onDeployment, set("workload.minReadySeconds", "seconds($1)")),
	one("max-unavailable-0-min-ready-D", "both of these", onDeployment, with(maxUnavailable, set("workload.minReadySeconds", "seconds($1)"))...),
	one("keep-old-D", "blue-green deletes Blue D after the cutover", inRecord, set("scenario.keepOld", "$1")),
	one("hold-node-D", "node-scale-in removes the node D after its last pod", inRecord, set("scenario.holdNode", "$1")),
	one("kube-proxy-nftables", "kube-proxy writes nftables rules (a setting of the cluster)", onKubeProxy,
		set("cluster.kubeProxyMode", harness.KubeProxyNFTables)),
	one("min-sync-period-D", "kube-proxy writes its rules once in D at most (a setting of the cluster)", onKubeProxy,
		set("cluster.kubeProxyMinSyncPeriod", "$1")),
	one("pod-disruption-budget-N", "evictions leave N pods available", "the PodDisruptionBudget as the API server has it",
		set("workload.podDisruptionBudget", "$1")),
)

var (
	sigtermWait = []harness.Edit{set("workload.onSigterm", string(harness.SIGTERMWait)), set("workload.sigtermWait", "$1")}
	// Both at zero are refused by the API server; 25 % is the default of maxSurge.
	maxUnavailable = []harness.Edit{set("workload.maxUnavailable", "0"), set("workload.maxSurge", "25%")}
)

func set(field, to string) harness.Edit { return harness.Edit{Field: field, To: to} }

func with(edits []harness.Edit, more ...harness.Edit) []harness.Edit {
	return slices.Concat(edits, more)
}

func one(form, about, proof string, edits ...harness.Edit) []family {
	return []family{{MitigationForm{form, about, proof}, edits}}
}

// andGrace makes two families: as given, and with a grace period besides.
func andGrace(form, about, proof string, edits ...harness.Edit) []family {
	return slices.Concat(one(form, about, proof, edits...),
		one(form+"-grace-D", form+" with a grace period of the second D", proof, with(edits, set("workload.gracePeriod", "$2"))...))
}
