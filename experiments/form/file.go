package form

import (
	"github.com/invopop/jsonschema"

	"lameduck/harness"
)

// The tags of the types below: json is the field's name, with omitempty unless
// it is required; jsonschema has its default, limits and values;
// jsonschema_description is what editors and the reference show.

type file struct {
	APIVersion string   `json:"apiVersion" jsonschema:"enum=lameduck/v1" jsonschema_description:"Version of the form."`
	Kind       string   `json:"kind" jsonschema:"enum=Experiment" jsonschema_description:"What the file is."`
	Metadata   metadata `json:"metadata,omitempty" jsonschema_description:"What the experiment is called."`
	Spec       spec     `json:"spec" jsonschema_description:"What is measured."`
}

type metadata struct {
	Name name `json:"name,omitempty" jsonschema_description:"Name in reports and run directories; by default that of the file. Up to 63 letters, digits, . _ and -."`
}

type spec struct {
	About        line          `json:"about,omitempty" jsonschema_description:"One line for the report, of up to 200 characters."`
	Cluster      cluster       `json:"cluster,omitempty" jsonschema_description:"The cluster to make; flags of lameduck run override it."`
	Workload     workload      `json:"workload,omitempty" jsonschema_description:"The application under test: builtin (the default), image or manifests."`
	LoadBalancer loadBalancer  `json:"loadBalancer,omitempty" jsonschema_description:"The load balancer in front of it."`
	Load         load          `json:"load,omitempty" jsonschema_description:"What the clients send: an open loop at a constant rate."`
	Scenario     scenario      `json:"scenario" jsonschema_description:"What is done under load: one key, the scenario's name, with its parameters."`
	Faults       []fault       `json:"faults,omitempty" jsonschema_description:"What is broken in every trial while the scenario runs. Not together with vary.faults."`
	Vary         vary          `json:"vary,omitempty" jsonschema_description:"What is varied: each combination is a cell of the result."`
	Repeats      int           `json:"repeats,omitempty" jsonschema:"minimum=1,maximum=1000,default=3" jsonschema_description:"Trials of each cell."`
	Expect       []expectation `json:"expect,omitempty" jsonschema_description:"What cells should show. The first that matches a cell counts; the run fails when one is not met."`
}

type cluster struct {
	Provider    string    `json:"provider,omitempty" jsonschema:"enum=embedded" jsonschema_description:"Kind of cluster."`
	Nodes       int       `json:"nodes,omitempty" jsonschema:"minimum=1,maximum=100" jsonschema_description:"Number of worker nodes; by default 2."`
	DeadAddress string    `json:"deadAddress,omitempty" jsonschema:"enum=drop,enum=unreachable,enum=reset" jsonschema_description:"What answers at the address of a pod that is gone: drop (silence, as in a cloud VPC; the default), unreachable (ICMP) or reset (TCP RST)."`
	KubeProxy   kubeProxy `json:"kubeProxy,omitempty" jsonschema_description:"Settings of kube-proxy; by default as the cluster has them."`
}

type kubeProxy struct {
	Mode          string           `json:"mode,omitempty" jsonschema:"enum=iptables,enum=nftables" jsonschema_description:"How kube-proxy writes its rules."`
	MinSyncPeriod harness.Duration `json:"minSyncPeriod,omitempty" jsonschema_description:"Least time between two changes of a node's rules, up to 1m."`
}

type workload struct {
	Builtin *builtin `json:"builtin,omitempty" jsonschema_description:"The application that comes with lameduck, and how it behaves."`

	Image         *image        `json:"image,omitempty" jsonschema_description:"An image of your own, in a Deployment that lameduck makes. Needs port."`
	Manifests     string        `json:"manifests,omitempty" jsonschema_description:"Kubernetes objects of your own: a file, a directory of files, or a directory with kustomization.yaml; relative to the experiment file. Needs service and port."`
	Images        []imageSource `json:"images,omitempty" jsonschema_description:"Images of the manifests that come from files and are put on the nodes first."`
	Service       string        `json:"service,omitempty" jsonschema_description:"The Service of the manifests that the load balancer sends to."`
	Port          int           `json:"port,omitempty" jsonschema:"minimum=1,maximum=65535" jsonschema_description:"With manifests the port of the Service, with image that of the container."`
	Path          string        `json:"path,omitempty" jsonschema:"pattern=^/" jsonschema_description:"Path of the requests, with image or manifests; by default /."`
	ReadinessPath string        `json:"readinessPath,omitempty" jsonschema:"pattern=^/" jsonschema_description:"Path of the load balancer's health checks, with image or manifests; by default path."`

	Replicas            int              `json:"replicas,omitempty" jsonschema:"minimum=1,maximum=500,default=6" jsonschema_description:"Pods at the beginning."`
	GracePeriod         harness.Duration `json:"gracePeriod,omitempty" jsonschema_description:"terminationGracePeriodSeconds, in whole seconds; by default 30s, with manifests as they have it."`
	PreStop             preStop          `json:"preStop,omitempty" jsonschema_description:"A preStop hook; by default none of lameduck's."`
	CPU                 quantity         `json:"cpu,omitempty" jsonschema_description:"CPU request of a pod, such as 50m, which is the default; with manifests as they have it."`
	MaxSurge            podsOrPercent    `json:"maxSurge,omitempty" jsonschema_description:"The Deployment's maxSurge: pods or a percentage."`
	MaxUnavailable      podsOrPercent    `json:"maxUnavailable,omitempty" jsonschema_description:"The Deployment's maxUnavailable: pods or a percentage."`
	MinReadySeconds     int              `json:"minReadySeconds,omitempty" jsonschema:"minimum=0,maximum=600" jsonschema_description:"The Deployment's minReadySeconds."`
	PodDisruptionBudget podsOrPercent    `json:"podDisruptionBudget,omitempty" jsonschema_description:"minAvailable of a PodDisruptionBudget: pods or a percentage; by default there is none."`
	HPA                 hpa              `json:"hpa,omitempty" jsonschema_description:"How the HorizontalPodAutoscaler scales down (autoscaling/v2, behavior.scaleDown)."`
}

type builtin struct {
	OnSIGTERM          onSIGTERM        `json:"onSigterm,omitempty" jsonschema_description:"exit (stop at once), drain (finish requests; the default), ignore (serve on until SIGKILL), or {wait: 10s} (serve on for so long, then drain)."`
	ResponseTime       responseTime     `json:"responseTime,omitempty" jsonschema_description:"How long answers take: log-normal through two percentiles, and a share of slow ones."`
	StartDelay         harness.Duration `json:"startDelay,omitempty" jsonschema_description:"From the start of the process to its listening."`
	KeepAlive          harness.Duration `json:"keepAlive,omitempty" jsonschema:"default=75s" jsonschema_description:"Idle connections are closed after this time; longer than the load balancer's idle timeout, or requests get lost."`
	CloseWhileDraining bool             `json:"closeWhileDraining,omitempty" jsonschema_description:"Answers say Connection: close from SIGTERM on."`
	FailReadiness      bool             `json:"failReadiness,omitempty" jsonschema_description:"The readiness path answers 503 from SIGTERM on."`
}

type responseTime struct {
	P50       harness.Duration `json:"p50,omitempty" jsonschema:"default=20ms" jsonschema_description:"The median."`
	P99       harness.Duration `json:"p99,omitempty" jsonschema:"default=80ms" jsonschema_description:"The 99th percentile."`
	SlowShare float64          `json:"slowShare,omitempty" jsonschema:"minimum=0,maximum=1,default=0.01" jsonschema_description:"Share of requests that take the time slow."`
	Slow      harness.Duration `json:"slow,omitempty" jsonschema:"default=4s" jsonschema_description:"What those take. Only one above 2s can show what SIGKILL cuts: the kubelet grants so much after a hook that used up the grace period."`
}

type image struct {
	Name    string   `json:"name" jsonschema_description:"Name of the image."`
	Args    []string `json:"args,omitempty" jsonschema_description:"Arguments of its entrypoint."`
	Archive string   `json:"archive,omitempty" jsonschema_description:"File that docker save wrote; relative to the experiment file."`
	Binary  string   `json:"binary,omitempty" jsonschema_description:"Static binary that becomes the image's only file and its entrypoint; relative to the experiment file."`
}

type imageSource struct {
	Name    string `json:"name" jsonschema_description:"Name of the image, as the manifests have it."`
	Archive string `json:"archive,omitempty" jsonschema_description:"File that docker save wrote; relative to the experiment file."`
	Binary  string `json:"binary,omitempty" jsonschema_description:"Static binary that becomes the image's only file and its entrypoint; relative to the experiment file."`
}

type preStop struct {
	Sleep harness.Duration `json:"sleep,omitempty" jsonschema_description:"How long the hook takes."`
	By    string           `json:"by,omitempty" jsonschema:"enum=exec,enum=sleep,enum=http" jsonschema_description:"exec (a command in the container sleeps; the default), sleep (the kubelet does) or http (httpGet to the built-in application, which answers after the time)."`
}

type hpa struct {
	Pods          int              `json:"pods,omitempty" jsonschema:"minimum=1" jsonschema_description:"Pods that are removed at most in each period."`
	Period        harness.Duration `json:"period,omitempty" jsonschema_description:"That period, up to 30m."`
	Stabilization harness.Duration `json:"stabilization,omitempty" jsonschema_description:"stabilizationWindowSeconds, up to 1h."`
}

type loadBalancer struct {
	TargetType            string     `json:"targetType,omitempty" jsonschema:"enum=instance,enum=ip,default=instance" jsonschema_description:"What is registered as targets: instance (nodes, by node port) or ip (pods)."`
	Attributes            attributes `json:"attributes,omitempty" jsonschema_description:"Attributes of load balancer and target group, by their AWS names."`
	Lag                   lag        `json:"lag,omitempty" jsonschema_description:"How late nodes of the load balancer hear of changes. The stand-in draws it from the range; of a real one it is an estimate."`
	ReadinessGate         bool       `json:"readinessGate,omitempty" jsonschema_description:"Pods get the controller's readiness gate; targetType ip only."`
	ExternalTrafficPolicy string     `json:"externalTrafficPolicy,omitempty" jsonschema:"enum=Cluster,enum=Local" jsonschema_description:"Of the Service; targetType instance only."`
}

type attributes struct {
	DeregistrationDelay int `json:"deregistration_delay.timeout_seconds,omitempty" jsonschema:"minimum=0,maximum=3600,default=30" jsonschema_description:"How long requests to a deregistered target may go on."`
	IdleTimeout         int `json:"idle_timeout.timeout_seconds,omitempty" jsonschema:"minimum=1,maximum=4000,default=60" jsonschema_description:"After how long idle connections are closed."`
}

type lag struct {
	Deregister harness.DurationRange `json:"deregister,omitempty" jsonschema:"default=5s..20s" jsonschema_description:"For how long a deregistered target still gets new requests."`
	Register   harness.DurationRange `json:"register,omitempty" jsonschema:"default=1s" jsonschema_description:"How long a new target waits for its first."`
	Weight     harness.DurationRange `json:"weight,omitempty" jsonschema_description:"How long a change of weights takes."`
}

type load struct {
	Rate        rate             `json:"rate,omitempty" jsonschema:"default=100" jsonschema_description:"Requests per second, such as 100 or 100/s; 1 to 5000."`
	Connections connections      `json:"connections,omitempty" jsonschema_description:"pooled (keep-alive; the default), new (one connection per request) or long-lived (a fixed number, for the whole trial); a list varies it."`
	LongLived   int              `json:"longLived,omitempty" jsonschema:"minimum=1,maximum=1000" jsonschema_description:"Number of connections of long-lived; by default 50."`
	Timeout     harness.Duration `json:"timeout,omitempty" jsonschema:"default=15s" jsonschema_description:"Of one request, at the client. Longer than 10s, or the load balancer's 504 is not seen."`
	Baseline    harness.Duration `json:"baseline,omitempty" jsonschema:"default=4s" jsonschema_description:"Undisturbed load before the scenario."`
	Settle      harness.Duration `json:"settle,omitempty" jsonschema:"default=3s" jsonschema_description:"Load after the scenario's last pod is gone."`
	ControlRate int              `json:"controlRate,omitempty" jsonschema:"minimum=1,maximum=5000,default=10" jsonschema_description:"Requests per second to a target that nothing happens to."`
	BodySize    int              `json:"bodySize,omitempty" jsonschema:"minimum=0,maximum=1048576" jsonschema_description:"Bytes that each request sends; by default it is a GET without a body."`
	HTTP2       bool             `json:"http2,omitempty" jsonschema_description:"HTTP/2 to the load balancer, over TLS."`
	Streams     int              `json:"streams,omitempty" jsonschema:"minimum=0,maximum=100" jsonschema_description:"Answers besides that go on for as long as the load does."`
}

type vary struct {
	TargetType  []string     `json:"targetType,omitempty" jsonschema:"enum=instance,enum=ip" jsonschema_description:"instance, ip; by default loadBalancer.targetType alone."`
	Connections []string     `json:"connections,omitempty" jsonschema:"enum=pooled,enum=new,enum=long-lived" jsonschema_description:"pooled, new, long-lived; by default load.connections."`
	Mitigation  []mitigation `json:"mitigation,omitempty" jsonschema_description:"none, a form of lameduck list such as {prestop-sleep: 15s} or prestop-sleep-15s, or edits of your own: {name: my-own, edits: {workload.gracePeriod: 60s}}; by default none alone."`
	Faults      []faultSet   `json:"faults,omitempty" jsonschema_description:"none, or a list of faults with a name: {name: lost-fin, faults: [{drop-fin: {}}]}."`
	Exclude     []selector   `json:"exclude,omitempty" jsonschema_description:"Combinations to leave out. A field that is not given matches all."`
}

type selector struct {
	TargetType  string         `json:"targetType,omitempty" jsonschema:"enum=instance,enum=ip" jsonschema_description:"Only cells of this target type."`
	Mitigation  mitigationName `json:"mitigation,omitempty" jsonschema_description:"Only cells of this mitigation, by its name: prestop-sleep-15s for {prestop-sleep: 15s}, which can be written too."`
	Connections string         `json:"connections,omitempty" jsonschema:"enum=pooled,enum=new,enum=long-lived" jsonschema_description:"Only cells of this kind of connections."`
	Faults      string         `json:"faults,omitempty" jsonschema_description:"Only cells with the faults of this name."`
}

type expectation struct {
	selector
	Failed failed `json:"failed" jsonschema_description:"Failed requests: none, some (in most trials), {atMost: 5} or {atMostRate: 0.1%} (in each trial)."`
}

type scenario struct {
	HPAScaleIn    *hpaScaleIn    `json:"hpa-scale-in,omitempty" jsonschema_description:"The HorizontalPodAutoscaler removes pods."`
	BlueGreen     *blueGreen     `json:"blue-green,omitempty" jsonschema_description:"The traffic moves to a second set of pods, and the first is deleted."`
	RollingUpdate *rollingUpdate `json:"rolling-update,omitempty" jsonschema_description:"The Deployment replaces its pods."`
	NodeScaleIn   *nodeScaleIn   `json:"node-scale-in,omitempty" jsonschema_description:"A node is emptied and removed as the Cluster Autoscaler does it."`
	NodeLoss      *nodeLoss      `json:"node-loss,omitempty" jsonschema_description:"A node's machine ends without warning."`
	PodKill       *podKill       `json:"pod-kill,omitempty" jsonschema_description:"Pods are deleted without a grace period."`
	Baseline      *baseline      `json:"baseline,omitempty" jsonschema_description:"Nothing happens: the negative control."`
}

// bound is the parameter that all scenarios have.
type bound struct {
	Limit harness.Duration `json:"limit,omitempty" longest:"6h" jsonschema_description:"It is an error when the scenario takes longer; by default 2m (5m driven by CPU) and the times that it is told to wait."`
}

type hpaScaleIn struct {
	To    int    `json:"to,omitempty" jsonschema:"minimum=1,maximum=499,default=2" jsonschema_description:"Replicas that are left."`
	Drive string `json:"drive,omitempty" jsonschema:"enum=bounds,enum=metric,enum=cpu,default=bounds" jsonschema_description:"bounds (maxReplicas is lowered), metric (a metric that lameduck sets falls, and the controller follows it as workload.hpa says) or cpu (load on the CPU ends, and the controller follows the CPU metric)."`
	bound
}

type blueGreen struct {
	Shift   string           `json:"shift,omitempty" jsonschema:"enum=selector,enum=weights,default=selector" jsonschema_description:"selector (of the Service is changed) or weights (of two target groups)."`
	KeepOld harness.Duration `json:"keepOld,omitempty" jsonschema_description:"For how long the old pods are kept after the cutover."`
	bound
}

type rollingUpdate struct{ bound }

type nodeScaleIn struct {
	HoldNode harness.Duration `json:"holdNode,omitempty" jsonschema_description:"For how long the empty node is kept."`
	bound
}

type nodeLoss struct {
	Length harness.Duration `json:"length,omitempty" jsonschema:"default=1m" jsonschema_description:"How long the load goes on after the loss."`
	bound
}

type podKill struct {
	Pods int `json:"pods,omitempty" jsonschema:"minimum=1,maximum=500,default=1" jsonschema_description:"How many pods are killed."`
	bound
}

type baseline struct {
	Length harness.Duration `json:"length,omitempty" jsonschema:"default=10s" jsonschema_description:"How long it lasts."`
	bound
}

type fault struct {
	DropFIN            *lasting   `json:"drop-fin,omitempty" jsonschema_description:"FIN and RST of the workload's pods do not get beyond their node."`
	PacketLoss         *share     `json:"packet-loss,omitempty" jsonschema_description:"A share of the packets on one node's link is lost."`
	LinkDown           *lasting   `json:"link-down,omitempty" jsonschema_description:"One node's link is down."`
	LateDeregistration *late      `json:"late-deregistration,omitempty" jsonschema_description:"Load balancer nodes hear of deregistrations late."`
	LostDeregistration *struct{}  `json:"lost-deregistration,omitempty" jsonschema_description:"They never hear of them."`
	ThrottledAPI       *throttled `json:"throttled-api,omitempty" jsonschema_description:"Calls that register or deregister targets are throttled."`
	SlowAPIServer      *share     `json:"slow-api-server,omitempty" jsonschema_description:"The API server does not run for a share of the time."`
	PausedAPIServer    *lasting   `json:"paused-api-server,omitempty" jsonschema_description:"The API server is stopped (SIGSTOP)."`
	PausedKubelet      *lasting   `json:"paused-kubelet,omitempty" jsonschema_description:"One node's kubelet is stopped."`
	PausedKubeProxy    *lasting   `json:"paused-kube-proxy,omitempty" jsonschema_description:"One node's kube-proxy is stopped."`
}

type lasting struct {
	For harness.Duration `json:"for,omitempty" jsonschema_description:"How long it lasts; by default until the load ends."`
}

type share struct {
	Share float64 `json:"share" jsonschema:"exclusiveMinimum=0,exclusiveMaximum=1" jsonschema_description:"Above 0, below 1."`
	lasting
}

type late struct {
	Lag harness.DurationRange `json:"lag" jsonschema_description:"How late, such as 30s..60s; up to 1h."`
}

type throttled struct {
	Every harness.Duration `json:"every" jsonschema_description:"One call in each such time goes through; 1s to 1h."`
}

// JSONSchemaExtend says that there is one key.
func (scenario) JSONSchemaExtend(s *jsonschema.Schema) { oneKey(s) }

// JSONSchemaExtend says that there is one key.
func (fault) JSONSchemaExtend(s *jsonschema.Schema) { oneKey(s) }

// JSONSchemaExtend says that there is one application, and what it needs.
func (workload) JSONSchemaExtend(s *jsonschema.Schema) {
	for _, pair := range [][]string{{"builtin", "image"}, {"builtin", "manifests"}, {"image", "manifests"}} {
		s.AllOf = append(s.AllOf, &jsonschema.Schema{Not: &jsonschema.Schema{Required: pair}})
	}
	own := []*jsonschema.Schema{{Required: []string{"image"}}, {Required: []string{"manifests"}}}
	for _, field := range []string{"port", "path", "readinessPath"} {
		s.AllOf = append(s.AllOf, &jsonschema.Schema{If: &jsonschema.Schema{Required: []string{field}}, Then: &jsonschema.Schema{AnyOf: own}})
	}
	s.DependentRequired = map[string][]string{
		"image": {"port"}, "manifests": {"service", "port"}, "service": {"manifests"}, "images": {"manifests"},
	}
}

// JSONSchemaExtend says that there is one source.
func (imageSource) JSONSchemaExtend(s *jsonschema.Schema) {
	s.OneOf = []*jsonschema.Schema{{Required: []string{"archive"}}, {Required: []string{"binary"}}}
}

// JSONSchemaExtend says that there is at most one source.
func (image) JSONSchemaExtend(s *jsonschema.Schema) {
	s.Not = &jsonschema.Schema{Required: []string{"archive", "binary"}}
}

func oneKey(s *jsonschema.Schema) {
	one := uint64(1)
	s.MinProperties, s.MaxProperties = &one, &one
}
