package harness

import "time"

// Event is something that happened during a trial and that was not a request.
type Event struct {
	At     time.Duration     `json:"at"`   // when it was seen, on the trial's clock
	Kind   EventKind         `json:"kind"` // what
	Object string            `json:"obj,omitempty"`
	Detail map[string]string `json:"detail,omitempty"`
}

// EventKind names an event. Kinds are part of the record's format.
type EventKind string

// The kinds of events.
const (
	EventMark EventKind = "mark" // Object is one of the Mark names

	EventPodCreated  EventKind = "pod-created"
	EventPodReady    EventKind = "pod-ready"
	EventPodNotReady EventKind = "pod-not-ready"
	// EventPodDeletionAsked: deletionTimestamp was set. Detail: grace (seconds).
	EventPodDeletionAsked EventKind = "pod-deletion-asked"
	// EventContainerExited: Detail: exitCode, reason, finishedAt (RFC 3339).
	EventContainerExited EventKind = "container-exited"
	EventPodGone         EventKind = "pod-gone"

	// Endpoint events have the pod's name as Object, and Detail: address.
	EventEndpointReady       EventKind = "endpoint-ready"
	EventEndpointTerminating EventKind = "endpoint-terminating"
	EventEndpointRemoved     EventKind = "endpoint-removed"

	// EventKubernetes is a core/v1 Event: Object is kind/name, Detail: reason, message.
	EventKubernetes EventKind = "kubernetes-event"
	// EventLogIncomplete: the end of a pod's log (LogApp) could not be read.
	// Detail: error.
	EventLogIncomplete EventKind = "log-incomplete"
	// EventCutover: the traffic was moved to Green, and the cluster confirmed it.
	EventCutover EventKind = "cutover"
	// EventOldDeleted: the deletion of Blue was asked for.
	EventOldDeleted EventKind = "old-deleted"
	// EventNodeDrained: the last pod of a node that is to go is gone.
	EventNodeDrained EventKind = "node-drained"
	EventNodeRemoved EventKind = "node-removed" // its machine was ended after that
	EventNodeLost    EventKind = "node-lost"    // its machine was ended without warning
	// EventFault and EventFaultMended: Object is the fault's kind.
	EventFault       EventKind = "fault"
	EventFaultMended EventKind = "fault-mended"
	// EventReplicas: the HPA's or Deployment's replica count changed. Detail: from, to.
	EventReplicas EventKind = "replicas"
)

// Mark names, in the order in which a trial sets them.
const (
	MarkAttack      = "attack"       // first request sent after this
	MarkScenario    = "scenario"     // the disruption begins
	MarkScenarioEnd = "scenario-end" // its last pod is gone
	MarkAttackEnd   = "attack-end"   // last answer came before this
)
