package harness

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Duration is a time.Duration that reads and writes as "10s" in JSON and YAML.
type Duration struct{ time.Duration }

// Dur wraps a time.Duration.
func Dur(d time.Duration) Duration { return Duration{d} }

// MarshalText writes the duration as time.Duration.String does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what time.ParseDuration accepts.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("duration %q: want a number with a unit, like 500ms, 10s or 2m", text)
	}
	d.Duration = parsed
	return nil
}

// DurationRange is a time between two bounds, both included. It reads and writes
// as "5s..20s", or as one duration if the bounds are the same.
type DurationRange struct{ Min, Max time.Duration }

// String is the range as MarshalText writes it.
func (r DurationRange) String() string {
	if r.Min == r.Max {
		return r.Min.String()
	}
	return r.Min.String() + ".." + r.Max.String()
}

// MarshalText writes the range.
func (r DurationRange) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads a range, or a duration that stands for both bounds.
func (r *DurationRange) UnmarshalText(text []byte) error {
	from, to, isRange := strings.Cut(string(text), "..")
	if !isRange {
		to = from
	}
	low, errLow := time.ParseDuration(from)
	high, errHigh := time.ParseDuration(to)
	if errLow != nil || errHigh != nil || low < 0 || low > high {
		return fmt.Errorf("range %q: want a duration or two, the lower first, like 17s or 5s..20s", text)
	}
	*r = DurationRange{low, high}
	return nil
}

// TargetType is what the load balancer registers as targets, named as the
// annotation alb.ingress.kubernetes.io/target-type names it.
type TargetType string

// The target types of an Application Load Balancer that Kubernetes can use.
const (
	TargetInstance TargetType = "instance" // every node, on the Service's nodePort
	TargetIP       TargetType = "ip"       // every pod, on its own address
)

// Connections is the kind of client connection a load uses.
type Connections string

// The connection kinds.
const (
	ConnectionsPooled Connections = "pooled" // keep-alive, shared and reused
	ConnectionsNew    Connections = "new"    // one connection per request
	// ConnectionsLongLived is a fixed number of connections, opened before the
	// baseline and used in turn for the whole trial. One that breaks is opened anew
	// at its turn. When all are busy a request gets one more for itself: the loop
	// stays open, so that the number should exceed the rate times the response time.
	ConnectionsLongLived Connections = "long-lived"
)

// OnSIGTERM is what the application does when the kubelet asks it to stop.
type OnSIGTERM string

// What the built-in application can do on SIGTERM (see cmd/target).
const (
	SIGTERMExit   OnSIGTERM = "exit"   // stop at once
	SIGTERMDrain  OnSIGTERM = "drain"  // close the listener, finish requests, exit
	SIGTERMWait   OnSIGTERM = "wait"   // serve on for SIGTERMWait, then drain
	SIGTERMIgnore OnSIGTERM = "ignore" // serve on until SIGKILL
)

// PreStopBy is the kind of handler that a preStop hook uses.
type PreStopBy string

// The handlers of a preStop hook (Kubernetes API reference, LifecycleHandler).
const (
	PreStopExec  PreStopBy = "exec"  // a command in the container sleeps
	PreStopSleep PreStopBy = "sleep" // the kubelet sleeps (GA in Kubernetes 1.34)
	PreStopHTTP  PreStopBy = "http"  // httpGet to the application, which answers after the time
)

// TrafficPolicy is a Service's spec.externalTrafficPolicy.
type TrafficPolicy string

// The policies.
const (
	TrafficCluster TrafficPolicy = "Cluster"
	TrafficLocal   TrafficPolicy = "Local"
)

// Setup is one trial's world, fully resolved: what runs, what is in front of
// it, what load it gets, what is done to it and what is broken. A Mitigation is
// an edit of it.
type Setup struct {
	Cluster      ClusterSettings `json:"cluster"`
	Workload     Workload        `json:"workload"`
	LoadBalancer LoadBalancer    `json:"loadBalancer"`
	Load         Load            `json:"load"`
	Scenario     ScenarioSpec    `json:"scenario"`
	// Faults begin with the scenario and end, at the latest, with the load.
	Faults []Fault `json:"faults,omitempty"`
}

// ClusterSettings are settings of a whole cluster that results depend on. Zero
// fields: as the cluster has them.
type ClusterSettings struct {
	// KubeProxyMode is kube-proxy's mode: iptables or nftables.
	KubeProxyMode string `json:"kubeProxyMode,omitempty"`
	// KubeProxyMinSyncPeriod is the least time between two changes of a node's
	// rules (KubeProxyConfiguration, iptables.minSyncPeriod and nftables.minSyncPeriod).
	KubeProxyMinSyncPeriod Duration `json:"kubeProxyMinSyncPeriod,omitzero"`
}

// The modes of kube-proxy that can be chosen.
const (
	KubeProxyIPTables = "iptables"
	KubeProxyNFTables = "nftables"
)

// Workload describes the application under test.
type Workload struct {
	// App is an application of the user's own; nil: the built-in one.
	App *App `json:"app,omitempty"`

	Replicas int `json:"replicas"`
	// The behaviour of the built-in application; meaningless with App.
	OnSIGTERM   OnSIGTERM `json:"onSigterm"`
	SIGTERMWait Duration  `json:"sigtermWait"` // only with SIGTERMWait
	// CloseWhileDraining: every answer from SIGTERM (or preStop by http) on says
	// Connection: close.
	CloseWhileDraining bool `json:"closeWhileDraining,omitempty"`
	// FailReadiness: the readiness path answers 503 from SIGTERM (or preStop by
	// http) on.
	FailReadiness bool         `json:"failReadiness,omitempty"`
	ResponseTime  ResponseTime `json:"responseTime"`
	StartDelay    Duration     `json:"startDelay"` // from process start to listening
	KeepAlive     Duration     `json:"keepAlive"`  // idle keep-alive timeout of the application

	PreStopSleep Duration  `json:"preStopSleep"`        // 0: no preStop hook of ours
	PreStopBy    PreStopBy `json:"preStopBy,omitempty"` // "": exec; meaningless without PreStopSleep
	// GracePeriod is terminationGracePeriodSeconds; whole seconds. 0, with App
	// only: as in its manifests.
	GracePeriod Duration `json:"gracePeriod"`
	CPURequest  string   `json:"cpuRequest"` // Kubernetes quantity, e.g. "50m"

	// The Deployment's rolling update (apps/v1, RollingUpdateDeployment): a number
	// of pods or a percentage; "": the default of 25%.
	MaxSurge        string `json:"maxSurge,omitempty"`
	MaxUnavailable  string `json:"maxUnavailable,omitempty"`
	MinReadySeconds int    `json:"minReadySeconds,omitempty"`
	// PodDisruptionBudget is minAvailable of a budget for the pods; "": none.
	PodDisruptionBudget string `json:"podDisruptionBudget,omitempty"`

	HPA HPABehavior `json:"hpa,omitzero"`
}

// HPABehavior is how a HorizontalPodAutoscaler scales down (autoscaling/v2,
// spec.behavior.scaleDown). Zero fields: no policy of ours.
type HPABehavior struct {
	// Pods are removed at most in each Period; both or neither.
	Pods   int      `json:"pods,omitempty"`
	Period Duration `json:"period,omitzero"`
	// Stabilization is stabilizationWindowSeconds.
	Stabilization Duration `json:"stabilization,omitzero"`
}

// Takes is how long the removal of so many pods takes in the least.
func (h HPABehavior) Takes(pods int) time.Duration {
	took := h.Stabilization.Duration
	if h.Pods > 0 {
		took += time.Duration((pods-1)/h.Pods) * h.Period.Duration
	}
	return took
}

// App is an application of the user's own. Either Image or Manifests is set.
type App struct {
	// Image runs in a Deployment that lameduck makes, with Args.
	Image string   `json:"image,omitempty"`
	Args  []string `json:"args,omitempty"`
	// Manifests are Kubernetes objects as YAML documents: a Deployment, the
	// Service in front of it and whatever they need.
	Manifests string `json:"manifests,omitempty"`
	// Images are put on the cluster's nodes first.
	Images []ImageSource `json:"images,omitempty"`
	// Service and Port are what the load balancer sends to. With Image the port
	// is the container's and the Service is lameduck's.
	Service string `json:"service,omitempty"`
	Port    int    `json:"port"`
	Path    string `json:"path"`          // of the requests
	Ready   string `json:"readinessPath"` // of the load balancer's health checks and the warm-up
}

// ImageSource is a container image that comes from a file: an archive as
// docker save writes it, or a static binary that becomes the only file and the
// entrypoint of a new image.
type ImageSource struct {
	Name    string `json:"name"`
	Archive string `json:"archive,omitempty"`
	Binary  string `json:"binary,omitempty"`
}

// ResponseTime is the distribution of the application's answer times:
// log-normal through the two percentiles, and a share of slow requests.
type ResponseTime struct {
	P50       Duration `json:"p50"`
	P99       Duration `json:"p99"`
	SlowShare float64  `json:"slowShare"` // 0..1 of all requests take Slow instead
	Slow      Duration `json:"slow"`
}

// LoadBalancer is asked for through Ingress annotations; the names of the
// fields follow the ELBv2 attributes.
type LoadBalancer struct {
	TargetType          TargetType `json:"targetType"`
	IdleTimeout         Duration   `json:"idleTimeout"`         // idle_timeout.timeout_seconds
	DeregistrationDelay Duration   `json:"deregistrationDelay"` // deregistration_delay.timeout_seconds
	// DeregistrationLag is for how long after a target's deregistration nodes of
	// the load balancer may send it new requests; RegistrationLag is how long a
	// new one waits for its first. AWS documents neither. The stand-in is told to
	// draw them from these ranges; of a real load balancer they are an estimate,
	// and the load goes on until the first is over.
	DeregistrationLag DurationRange `json:"deregistrationLag"`
	RegistrationLag   DurationRange `json:"registrationLag"`
	// WeightLag is how long a change of weights takes to reach a node.
	WeightLag DurationRange `json:"weightLag,omitzero"`
	// ReadinessGate: pods get the controller's readiness gate; IP targets only.
	ReadinessGate bool `json:"readinessGate,omitempty"`
	// ExternalTrafficPolicy of the Service; "": Cluster. Instance targets only.
	ExternalTrafficPolicy TrafficPolicy `json:"externalTrafficPolicy,omitempty"`
}

// Load is an open-loop constant-rate load.
type Load struct {
	Rate        int         `json:"rate"` // requests per second
	Connections Connections `json:"connections"`
	Timeout     Duration    `json:"timeout"`  // of one request, at the client
	Baseline    Duration    `json:"baseline"` // undisturbed load before the scenario
	Settle      Duration    `json:"settle"`   // load that goes on after the scenario's last pod is gone
	ControlRate int         `json:"controlRate"`
	// LongLived is the number of connections of ConnectionsLongLived; the other
	// kinds do not look at it.
	LongLived int `json:"longLived,omitempty"`
	// BodySize is what each request sends in a POST, in bytes, also to the control
	// target; 0: a GET without a body.
	BodySize int `json:"bodySize,omitempty"`
	// HTTP2 speaks HTTP/2 to the load balancer, over TLS; the Target's URLs are
	// https. Pooled is then one connection to each of its nodes, shared by all.
	HTTP2 bool `json:"http2,omitempty"`
	// Streams are so many answers besides, of which each goes on for as long as
	// the load does; one that ends early, also in order, or is silent for Timeout is
	// a failed request and begins anew.
	Streams int `json:"streams,omitempty"`
}

// ScenarioSpec names what is done under load, and its parameters. A scenario
// refuses a parameter that it does not use.
type ScenarioSpec struct {
	Name string `json:"name"`
	// To is the number of replicas that hpa-scale-in leaves.
	To int `json:"to,omitempty"`
	// Drive is how the HPA is brought to scale in: DriveBounds, DriveMetric or
	// DriveCPU.
	Drive string `json:"drive,omitempty"`
	// Shift is how blue-green moves the traffic: ShiftSelector or ShiftWeights.
	Shift string `json:"shift,omitempty"`
	// KeepOld is for how long blue-green keeps Blue after the cutover.
	KeepOld Duration `json:"keepOld,omitzero"`
	// Pods is how many pods pod-kill kills.
	Pods int `json:"pods,omitempty"`
	// HoldNode is for how long node-scale-in keeps a node that is empty.
	HoldNode Duration `json:"holdNode,omitzero"`
	// Length is how long baseline lasts, and for how long node-loss goes on after
	// the loss.
	Length Duration `json:"length,omitzero"`
	// Limit bounds the scenario; it is an error to exceed it.
	Limit Duration `json:"limit"`
}

// How blue-green moves the traffic.
const (
	ShiftSelector = "selector" // the Service's selector is changed
	ShiftWeights  = "weights"  // two target groups, of which the weights are changed
)

// How hpa-scale-in makes the HorizontalPodAutoscaler remove pods.
const (
	// DriveBounds lowers spec.maxReplicas: the controller rescales at its next
	// sync whatever the metrics say, so the moment is known.
	DriveBounds = "bounds"
	// DriveMetric lowers a metric that lameduck sets: the controller follows it at
	// its next sync, within the HPA's behaviour.
	DriveMetric = "metric"
	// DriveCPU lets extra load on the CPU end and waits until the controller
	// follows the metric.
	DriveCPU = "cpu"
)

// MetricPerPod is the HPA's target with DriveMetric: the average value per pod
// (autoscaling/v2, type External, averageValue).
const MetricPerPod = 100

// MetricBefore is the metric's value until the scenario: twice what all pods are
// for, so that the HPA's bounds hold them. At exactly as much the controller would
// take one pod in ten that is just being made for one too many, because of its
// tolerance (--horizontal-pod-autoscaler-tolerance, 10 %).
func (s Setup) MetricBefore() int { return 2 * MetricPerPod * s.Workload.Replicas }

// MetricAfter is the value that makes the HPA scale in: half of what the pods are
// for that stay, so that the tolerance does not keep another one.
func (s Setup) MetricAfter() int { return MetricPerPod * s.Scenario.To / 2 }

// Clone copies a setup, so that an edit of the copy does not reach s.
func (s Setup) Clone() Setup {
	s.Faults = slices.Clone(s.Faults)
	if s.Workload.App != nil {
		app := *s.Workload.App
		app.Args, app.Images = slices.Clone(app.Args), slices.Clone(app.Images)
		s.Workload.App = &app
	}
	return s
}

// String is the setup as one line of JSON, for error messages.
func (s Setup) String() string {
	b, _ := json.Marshal(s)
	return string(b)
}
