package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"lameduck/harness"
)

const (
	// confirmPoll is how often the cluster is asked whether it has taken over what
	// was asked for, where no watch tells.
	confirmPoll = 100 * time.Millisecond
	// reconciled is the reason of the Event by which the AWS Load Balancer
	// Controller confirms an Ingress (pkg/k8s/events.go).
	reconciled = "SuccessfullyReconciled"
	// usualWeightLag is the longest that a change of weights usually takes (seen by
	// users: argo-rollouts issues 3333 and 4595), and in the stand-in unless it is
	// told otherwise.
	usualWeightLag = 20 * time.Second
)

// AddGreen implements harness.Colours.
func (d *deployment) AddGreen(ctx context.Context) error {
	deployments := d.world.client.AppsV1().Deployments(d.namespace)
	b, err := deployments.Get(ctx, d.names.Deployment, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read Deployment %s in namespace %s: %w", d.names.Deployment, d.namespace, err)
	}
	if b.Labels[colourLabel] != blue {
		return fmt.Errorf("add Green in namespace %s: scenario %q was deployed without colours, want %s", d.namespace, d.trial.Setup.Scenario.Name, blueGreen)
	}
	g := greenOf(b, d.trial.Setup.Workload.App == nil)
	_, err = deployments.Create(ctx, g, metav1.CreateOptions{})
	if err := created(g.Kind, g.Name, d.namespace, err); err != nil {
		return err
	}
	replicas := d.trial.Setup.Workload.Replicas
	err = d.view.wait(ctx, func() (bool, error) {
		pods := d.podsIn(green)
		return count(pods).settled(replicas), giveUp(pods)
	})
	if err != nil {
		return fmt.Errorf("wait for %d pods of Green in namespace %s: %w: %s", replicas, d.namespace, err, count(d.podsIn(green)))
	}
	if d.trial.Setup.Scenario.Shift != harness.ShiftWeights {
		return nil
	}
	return d.waitStates(ctx, d.missingGreen)
}

// Cutover implements harness.Colours.
func (d *deployment) Cutover(ctx context.Context) error {
	move := d.moveSelector
	if d.trial.Setup.Scenario.Shift == harness.ShiftWeights {
		move = d.moveWeights
	}
	if err := move(ctx); err != nil {
		return fmt.Errorf("cut over to Green in namespace %s: %w", d.namespace, err)
	}
	d.setColour(green)
	d.event(harness.EventCutover, d.currentName())
	return nil
}

// moveSelector lets the Service select Green and waits until its endpoints are
// Green's pods and no others.
func (d *deployment) moveSelector(ctx context.Context) error {
	service := d.names.Service
	patch := fmt.Appendf(nil, `{"spec":{"selector":{%q:%q}}}`, colourLabel, green)
	if _, err := d.world.client.CoreV1().Services(d.namespace).Patch(ctx, service, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("change selector of Service %s: %w", service, err)
	}
	missing := ""
	err := wait.PollUntilContextCancel(ctx, confirmPoll, true, func(ctx context.Context) (bool, error) {
		slices, err := d.world.client.DiscoveryV1().EndpointSlices(d.namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
		if err != nil {
			return false, err
		}
		missing = notOnly(slices.Items, d.podsIn(green))
		return missing == "", nil
	})
	if err != nil {
		return fmt.Errorf("wait until Service %s has only Green's endpoints: %w: %s", service, err, missing)
	}
	return nil
}

// notOnly says how the endpoints differ from all ready pods of pods and no
// others, "" if they do not.
func notOnly(slices []discoveryv1.EndpointSlice, pods []*corev1.Pod) string {
	serving := make(map[string]bool)
	for _, p := range pods {
		if isReady(p) && p.DeletionTimestamp == nil {
			serving[p.Name] = false
		}
	}
	if len(serving) == 0 {
		return "Green has no ready pod"
	}
	for _, slice := range slices {
		for _, e := range slice.Endpoints {
			if e.TargetRef == nil {
				continue
			}
			name := e.TargetRef.Name
			if _, ours := serving[name]; !ours {
				return fmt.Sprintf("pod %s is still an endpoint", name)
			}
			// Without a value, ready means true (API reference, EndpointConditions).
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				serving[name] = true
			}
		}
	}
	for name, there := range serving {
		if !there {
			return fmt.Sprintf("pod %s is not an endpoint yet", name)
		}
	}
	return ""
}

// moveWeights gives Green's target group all traffic. The controller confirms
// that it has told the load balancer; of its nodes nothing is known but for how
// long they may take.
func (d *deployment) moveWeights(ctx context.Context) error {
	ingresses := d.world.client.NetworkingV1().Ingresses(d.namespace)
	ing, err := ingresses.Get(ctx, appName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read Ingress %s: %w", appName, err)
	}
	action, err := shifted(ing.Annotations[weightsAnnotation])
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{weightsAnnotation: action}}})
	if err != nil {
		return fmt.Errorf("make patch: %w", err)
	}
	before, err := d.reconciliations(ctx)
	if err != nil {
		return err
	}
	if _, err := ingresses.Patch(ctx, appName, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("change weights of Ingress %s: %w", appName, err)
	}
	err = wait.PollUntilContextCancel(ctx, confirmPoll, true, func(ctx context.Context) (bool, error) {
		now, err := d.reconciliations(ctx)
		return now > before, err
	})
	if err != nil {
		return fmt.Errorf("wait for Event %s of Ingress %s: %w: last warnings: %q", reconciled, appName, err, warnings(ctx, d.world.client, d.namespace))
	}
	if err := harness.Sleep(ctx, cmp.Or(d.trial.Setup.LoadBalancer.WeightLag.Max, usualWeightLag)); err != nil {
		return fmt.Errorf("wait for the load balancer's nodes to take the weights over: %w", err)
	}
	return nil
}

// reconciliations is how often the Ingress was confirmed so far.
func (d *deployment) reconciliations(ctx context.Context) (int, error) {
	events, err := d.world.client.CoreV1().Events(d.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, fmt.Errorf("list Events: %w", err)
	}
	n := 0
	for _, e := range events.Items {
		if e.Reason == reconciled && e.InvolvedObject.Kind == "Ingress" && e.InvolvedObject.Name == appName {
			n += max(1, int(e.Count)) // one that is repeated is counted up
			if e.Series != nil {
				n += int(e.Series.Count)
			}
		}
	}
	return n, nil
}

// DeleteBlue implements harness.Colours. It deletes as kubectl delete does by
// default, which is in the background (kubectl reference, delete, --cascade).
func (d *deployment) DeleteBlue(ctx context.Context) (pods int, err error) {
	if d.current() != green {
		return 0, errors.New("delete Blue: it still has the traffic, cut over first")
	}
	c := count(d.podsIn(blue))
	pods = c.exist - c.terminating
	// First, because an HPA whose Deployment is gone complains.
	autoscalers := d.world.client.AutoscalingV2().HorizontalPodAutoscalers(d.namespace)
	list, err := autoscalers.List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, fmt.Errorf("list HPAs in namespace %s: %w", d.namespace, err)
	}
	background := metav1.DeletePropagationBackground
	options := metav1.DeleteOptions{PropagationPolicy: &background}
	for _, a := range list.Items {
		if ref := a.Spec.ScaleTargetRef; ref.Kind == "Deployment" && ref.Name == d.names.Deployment {
			if err := autoscalers.Delete(ctx, a.Name, options); err != nil && !gone(err) {
				return 0, fmt.Errorf("delete HPA of Blue: %w", err)
			}
		}
	}
	if err := d.world.client.AppsV1().Deployments(d.namespace).Delete(ctx, d.names.Deployment, options); err != nil {
		return 0, fmt.Errorf("delete Blue: %w", err)
	}
	d.event(harness.EventOldDeleted, d.names.Deployment)
	err = d.view.wait(ctx, func() (bool, error) { return len(d.podsIn(blue)) == 0, nil })
	if err != nil {
		return 0, fmt.Errorf("wait until Blue's pods in namespace %s are gone: %w: %s", d.namespace, err, count(d.podsIn(blue)))
	}
	return pods, nil
}
