package harness

import (
	"encoding/json"
	"fmt"
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

// Setup is one trial's world, fully resolved: what runs, what is in front of
// it, what load it gets and what is done to it. A Mitigation is an edit of it.
type Setup struct {
	Workload     Workload     `json:"workload"`
	LoadBalancer LoadBalancer `json:"loadBalancer"`
	Load         Load         `json:"load"`
	Scenario     ScenarioSpec `json:"scenario"`
}

// Workload describes the application under test.
type Workload struct {
	Replicas     int          `json:"replicas"`
	OnSIGTERM    OnSIGTERM    `json:"onSigterm"`
	SIGTERMWait  Duration     `json:"sigtermWait"`  // only with SIGTERMWait
	PreStopSleep Duration     `json:"preStopSleep"` // 0: no preStop hook
	GracePeriod  Duration     `json:"gracePeriod"`  // terminationGracePeriodSeconds; whole seconds
	ResponseTime ResponseTime `json:"responseTime"`
	StartDelay   Duration     `json:"startDelay"` // from process start to listening
	KeepAlive    Duration     `json:"keepAlive"`  // idle keep-alive timeout of the application
	CPURequest   string       `json:"cpuRequest"` // Kubernetes quantity, e.g. "50m"
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
}

// Load is an open-loop constant-rate load.
type Load struct {
	Rate        int         `json:"rate"` // requests per second
	Connections Connections `json:"connections"`
	Timeout     Duration    `json:"timeout"`  // of one request, at the client
	Baseline    Duration    `json:"baseline"` // undisturbed load before the scenario
	Settle      Duration    `json:"settle"`   // load that goes on after the scenario's last pod is gone
	ControlRate int         `json:"controlRate"`
}

// ScenarioSpec names what is done under load, and its parameters.
type ScenarioSpec struct {
	Name string `json:"name"`
	// To is the number of replicas that hpa-scale-in leaves.
	To int `json:"to"`
	// Drive is how the HPA is brought to scale in: DriveBounds or DriveCPU.
	Drive string `json:"drive"`
	// Limit bounds the scenario; it is an error to exceed it.
	Limit Duration `json:"limit"`
}

// How hpa-scale-in makes the HorizontalPodAutoscaler remove pods.
const (
	// DriveBounds lowers spec.maxReplicas: the controller rescales at its next
	// sync whatever the metrics say, so the moment is known.
	DriveBounds = "bounds"
	// DriveCPU lets extra load on the CPU end and waits until the controller
	// follows the metric.
	DriveCPU = "cpu"
)

// Clone copies a setup. Setup holds no pointers, so assignment is enough; the
// method exists so that callers need not know.
func (s Setup) Clone() Setup { return s }

// String is the setup as one line of JSON, for error messages.
func (s Setup) String() string {
	b, _ := json.Marshal(s)
	return string(b)
}
