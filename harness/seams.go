package harness

import (
	"context"
	"encoding/json"
	"time"
)

// World is a cluster with a load balancer, on which setups can be deployed.
type World interface {
	// Deploy applies the trial's setup in a namespace of its own and returns
	// when every pod is ready, the Ingress has an address and its path answers.
	// On error nothing is left behind. Events that the deployment's watchers
	// see go to rec from the first object on, until Remove.
	Deploy(ctx context.Context, t Trial, clock Clock, rec Recorder) (Deployment, error)
	// Environment tells what the figures were measured on.
	Environment(ctx context.Context) (Environment, error)
}

// Parts is a World that knows the processes of its cluster. A trial during which
// one of them stops proves nothing.
type Parts interface {
	// Parts are those that run, by name. The value is another one when a process
	// has been started anew. nil: they are not known.
	Parts(ctx context.Context) (map[string]string, error)
}

// Configurable is a World whose cluster's settings can be changed. It is called
// while no trial is under way.
type Configurable interface {
	// Configure returns when the settings are in force on every node. Zero fields
	// are set back to what the cluster had at first.
	Configure(ctx context.Context, c ClusterSettings) error
}

// Deployment is one deployed setup. What a scenario can do to it is found by
// type assertion: HPABounds, MetricDriver, CPUBurn, Colours, Rollout, PodKiller,
// Nodes.
type Deployment interface {
	// Target is where the load goes.
	Target() Target
	// Observe reads the settings back from what runs.
	Observe(ctx context.Context) (Live, error)
	// WaitPods waits until exactly n pods of the workload exist, all of them
	// ready and none terminating.
	WaitPods(ctx context.Context, n int) error
	// Remove deletes all that Deploy created, mends what was broken, brings back
	// nodes that were taken away, waits until all that is done, and stops the
	// watchers. What the record still lacks (logs) is written first.
	Remove(ctx context.Context) error
}

// Faulty is a Deployment in which things can be broken on purpose.
type Faulty interface {
	// Break does what f names, unless it was deployed (Fault.Deployed). mend
	// undoes it; Remove does so too.
	Break(ctx context.Context, f Fault) (mend func(context.Context) error, err error)
}

// HPABounds is a Deployment whose HorizontalPodAutoscaler can be driven by its
// bounds.
type HPABounds interface {
	SetHPABounds(ctx context.Context, minReplicas, maxReplicas int) error
}

// MetricDriver is a Deployment whose HorizontalPodAutoscaler follows a metric
// that can be set; at first it is Setup.MetricBefore.
type MetricDriver interface {
	SetMetric(ctx context.Context, value int) error
	// WaitMetric returns when the HPA has seen this value and wants as many pods as
	// there are.
	WaitMetric(ctx context.Context, value int) error
}

// Colours is a Deployment that can have a second set of pods, Green, beside the
// first, Blue. The cutover and the deletion are recorded as EventCutover and
// EventOldDeleted.
type Colours interface {
	// AddGreen returns when Green's pods are ready and, with ShiftWeights, its
	// targets healthy. It gets no traffic yet.
	AddGreen(ctx context.Context) error
	// Cutover moves the traffic by spec.shift and returns when the cluster
	// confirms: only Green in the Service's endpoints, or the weights taken over.
	Cutover(ctx context.Context) error
	// DeleteBlue returns how many pods Blue had when the last of them is gone.
	DeleteBlue(ctx context.Context) (pods int, err error)
}

// Rollout is a Deployment whose pods can be replaced by a rolling update.
type Rollout interface {
	// Rollout changes the pod template and returns how many pods were replaced
	// when the last old one is gone and the new ones are ready.
	Rollout(ctx context.Context) (pods int, err error)
}

// PodKiller is a Deployment whose pods can be killed.
type PodKiller interface {
	// KillPods deletes n pods without a grace period, as chaos tools do, and
	// returns when as many as before are ready again.
	KillPods(ctx context.Context, n int) error
}

// Nodes is a Deployment on nodes that can be taken away. Each method concerns
// the node that Remove brings back: one with pods of the workload, but without
// the control target.
type Nodes interface {
	// DrainNode does what the Cluster Autoscaler does to a node that it removes:
	// taint, then evict, respecting disruption budgets. It returns how many pods
	// of the workload went when the last of them is gone.
	DrainNode(ctx context.Context) (pods int, err error)
	// RemoveNode ends the drained node's machine and deletes its Node. It is
	// recorded as EventNodeRemoved.
	RemoveNode(ctx context.Context) error
	// LoseNode ends a node's machine without warning, and returns how many ready
	// pods of the workload were on it. It is recorded as EventNodeLost.
	LoseNode(ctx context.Context) (pods int, err error)
}

// CPUBurn is a Deployment whose pods can be made to use CPU, so that an HPA
// has something to follow.
type CPUBurn interface {
	// BurnCPU makes each pod use about millicores until stop is called.
	BurnCPU(ctx context.Context, millicores int) (stop func(context.Context) error, err error)
}

// Target is the load's destination.
type Target struct {
	URL string `json:"url"` // the application, through the load balancer
	// Nodes are the addresses (host:port) of the load balancer's nodes. Each new
	// connection goes to the next one, as with a name that resolves to all of
	// them. None: URL's host is looked up.
	Nodes []string `json:"nodes,omitempty"`
	// ReadyURL is the application's readiness path through the load balancer:
	// what it answers at once, for the warm-up.
	ReadyURL   string `json:"readyUrl"`
	ControlURL string `json:"controlUrl"` // the control target, through the same listener
	// StreamURL answers without an end, for Load.Streams.
	StreamURL string `json:"streamUrl,omitempty"`
}

// Live is what runs, read from the API server, the load balancer and the
// application, not from what was asked for.
type Live struct {
	Pods []LivePod `json:"pods"`
	// Settings are those that are not a pod's, by the names of EditableFields.
	Settings map[string]string `json:"settings,omitempty"`
}

// UnmarshalJSON also reads format 1 of the record, where the settings had no
// names: of that only the pods are kept, whose gates have been judged already.
func (l *Live) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '[' {
		return json.Unmarshal(b, &l.Pods)
	}
	type plain Live
	return json.Unmarshal(b, (*plain)(l))
}

// LivePod is what one running pod says of itself: settings by the names of
// EditableFields, in the form in which Setting gives them.
type LivePod struct {
	Name     string            `json:"name"`
	Ready    bool              `json:"ready"`
	Settings map[string]string `json:"settings"`
}

// Environment is what the figures depend on.
type Environment struct {
	Provider   string            `json:"provider"`   // embedded, kind, eks, kubeconfig
	Kubernetes string            `json:"kubernetes"` // server version, e.g. v1.37.2
	Nodes      int               `json:"nodes"`      // workers
	Kernel     string            `json:"kernel"`
	Cores      int               `json:"cores"`
	OS         string            `json:"os"` // of the machine that ran lameduck
	Details    map[string]string `json:"details,omitempty"`
}

// Scenario is what is done to a deployment under load. It must end when its
// context ends, and return only when nothing more will change by itself.
type Scenario interface {
	// About is one line for lists.
	About() string
	// Check says, before anything is created, whether the setup makes sense.
	Check(s Setup) error
	// Run returns what it did, for the gate that compares it with what was seen.
	Run(ctx context.Context, s Setup, d Deployment) (Disruption, error)
}

// Disruption is what a scenario did. A trial in which something else is seen
// proves nothing.
type Disruption struct {
	// Deleted is how many pods of the workload were asked to go.
	Deleted int `json:"deleted"`
	// Lost is how many went without being asked, with their node.
	Lost int `json:"lost,omitempty"`
}

// Exclusive is a Scenario that disturbs other trials on the same cluster.
type Exclusive interface{ Exclusive() bool }

// PodStarter is a Scenario in which many pods start while there is load. That
// costs so much CPU that fewer such trials can run side by side.
type PodStarter interface{ StartsPods() bool }

// Preparer is a Scenario that has something to set up before the attack.
type Preparer interface {
	Prepare(ctx context.Context, s Setup, d Deployment) error
}

// Attacker sends an open-loop load.
type Attacker interface {
	// Attack sends until ctx ends or spec.Limit is over, then waits for the
	// requests in flight. Every request is given to each, from one goroutine.
	// An ended ctx is not an error.
	Attack(ctx context.Context, spec AttackSpec, each func(Request)) (AttackStats, error)
}

// AttackSpec is what an Attacker needs to know; it travels to worker
// processes as JSON.
type AttackSpec struct {
	Target Target   `json:"target"`
	Load   Load     `json:"load"`
	Anchor Anchor   `json:"anchor"` // of the trial's clock
	Limit  Duration `json:"limit"`  // hard bound on sending
	// IDPrefix starts every Request.ID, so that the ids of several attacks on
	// one deployment (warm-up, attack) differ.
	IDPrefix string `json:"idPrefix"`
}

// AttackStats tells how well the generator kept its promise. Lateness is from
// planned to actual send time, over all requests at the constant rate.
type AttackStats struct {
	Sent int `json:"sent"`
	// Streams is how many requests Load.Streams made; they are in no other figure.
	Streams      int           `json:"streams,omitempty"`
	Elapsed      time.Duration `json:"elapsed"` // of sending
	AchievedRate float64       `json:"achievedRate"`
	LatenessP50  time.Duration `json:"latenessP50"`
	LatenessP99  time.Duration `json:"latenessP99"`
	LatenessMax  time.Duration `json:"latenessMax"`
}

// Recorder takes what a trial produces, as it happens. Its methods may be
// called from any goroutine; a failure to write is kept and returned by
// TrialRecord.Err.
type Recorder interface {
	Request(Request)
	Event(Event)
	// Log appends one line to a log of another program: one of the Log constants.
	Log(log string, line []byte)
}

// The logs that are kept beside requests and events.
const (
	LogLoadBalancer = "lb"      // the load balancer's requests
	LogTargets      = "targets" // the changes of its targets' states
	LogApp          = "app"
)

// Store keeps a run on disk.
type Store interface {
	// Create opens the record of one trial.
	Create(t Trial) (TrialRecord, error)
	// Finish marks the whole run as complete, or says why it is not.
	Finish(end RunEnd) error
}

// TrialRecord is one open trial.
type TrialRecord interface {
	Recorder
	// Err is the first failure to write, or nil.
	Err() error
	// Finish flushes everything and writes the result last; a trial without
	// one is incomplete.
	Finish(TrialResult) error
	// Abandon closes the files of a trial that will have no result.
	Abandon() error
}
