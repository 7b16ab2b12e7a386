package kube

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
)

func isTCP(p corev1.Protocol) bool { return p == "" || p == corev1.ProtocolTCP }

// checkPort: a targetPort by a name that no container has makes endpoints without
// a port, and the pods get no request.
func (o *own) checkPort() error {
	name := o.port.TargetPort.StrVal
	if name == "" {
		return nil // a number: containers need not list their ports
	}
	var names []string
	for _, c := range o.deployment.Spec.Template.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name == name && isTCP(p.Protocol) {
				return nil
			}
			if p.Name != "" && isTCP(p.Protocol) {
				names = append(names, p.Name)
			}
		}
	}
	return fmt.Errorf("workload.app.port: port %d of Service %s has targetPort %s: want the name of a TCP port of a container of Deployment %s, which has: %s",
		o.port.Port, o.service.Name, name, o.deployment.Name, cmp.Or(strings.Join(names, ", "), "none"))
}

// podTemplates are where the kinds that make pods have the labels of these.
var podTemplates = [][]string{
	{"spec", "template", "metadata", "labels"},                        // DaemonSet, StatefulSet, ReplicaSet, Job ...
	{"spec", "jobTemplate", "spec", "template", "metadata", "labels"}, // CronJob
}

// checkOthers refuses other pods behind the Service: they would get a part of
// the load, and nothing happens to them.
func (o *own) checkOthers() error {
	selector := labels.SelectorFromSet(o.service.Spec.Selector)
	var errs []error
	for _, other := range o.others {
		if slices.ContainsFunc(podLabels(other), func(of labels.Set) bool { return selector.Matches(of) }) {
			errs = append(errs, fmt.Errorf("workload.app.service: Service %s selects pods of %s too: want those of Deployment %s only",
				o.service.Name, identity(other), o.deployment.Name))
		}
	}
	return errors.Join(errs...)
}

// podLabels are those of the pods that an object is or makes.
func podLabels(u *unstructured.Unstructured) (all []labels.Set) {
	if u.GetKind() == "Pod" {
		return []labels.Set{u.GetLabels()}
	}
	for _, path := range podTemplates {
		if of, found, err := unstructured.NestedStringMap(u.Object, path...); found && err == nil {
			all = append(all, of)
		}
	}
	return all
}

// checkSleep refuses a sleep action that is longer than the grace period, as the
// API server does (KEP-3960; validateSleepAction in
// pkg/apis/core/validation). Either may be the manifests' own.
func checkSleep(d *appsv1.Deployment) error {
	template := d.Spec.Template.Spec
	grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if s := template.TerminationGracePeriodSeconds; s != nil {
		grace = *s
	}
	var errs []error
	for _, c := range template.Containers {
		if c.Lifecycle == nil || c.Lifecycle.PreStop == nil || c.Lifecycle.PreStop.Sleep == nil {
			continue
		}
		if sleep := c.Lifecycle.PreStop.Sleep.Seconds; sleep > grace {
			errs = append(errs, fmt.Errorf("preStop hook of container %s in Deployment %s: is a sleep action of %s, the grace period is %s: "+
				"the API server refuses it; want workload.gracePeriod of at least %[3]s, or a shorter workload.preStopSleep",
				c.Name, d.Name, time.Duration(sleep)*time.Second, time.Duration(grace)*time.Second))
		}
	}
	return errors.Join(errs...)
}
