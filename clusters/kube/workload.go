package kube

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"lameduck/harness"
)

// current is the colour that has the traffic, "" in a trial without colours.
func (d *deployment) current() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.trial.Setup.Scenario.Name != blueGreen:
		return ""
	case d.colour == "":
		return blue
	}
	return d.colour
}

func (d *deployment) setColour(colour string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.colour = colour
}

// currentName is the name of the Deployment that has the traffic.
func (d *deployment) currentName() string {
	if d.current() == green {
		return d.names.Deployment + greenSuffix
	}
	return d.names.Deployment
}

// pods are the workload's pods that have the traffic, also those that terminate.
func (d *deployment) pods() []*corev1.Pod { return d.podsIn(d.current()) }

func (d *deployment) podsIn(colour string) []*corev1.Pod {
	return slices.DeleteFunc(d.view.podsOf(appName), func(p *corev1.Pod) bool { return p.Labels[colourLabel] != colour })
}

// event records something that was done to the deployment.
func (d *deployment) event(kind harness.EventKind, object string) {
	d.rec.Event(harness.Event{At: d.clock.Now(), Kind: kind, Object: object})
}
