package kube

import (
	"context"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Clean removes the namespaces that a killed run has left, of the run runID or,
// if that is "", of all runs, and makes nodes that it was draining usable again.
// It finds them by their labels, waits until the namespaces are gone, and writes
// a line for each to log. None left is no error. What the run has broken has to
// be mended first (clusters.Breaker, MendAll), or pods could not go.
func Clean(ctx context.Context, cfg *rest.Config, runID string, log io.Writer) error {
	client, err := newClient(cfg)
	if err != nil {
		return err
	}
	return clean(ctx, client, runID, log)
}

func clean(ctx context.Context, client kubernetes.Interface, runID string, log io.Writer) error {
	namespaces, err := ownNamespaces(ctx, client, runID)
	if err != nil {
		return err
	}
	errs := []error{untaintAll(ctx, client, ownedBy(runID))}
	var going []string
	for _, ns := range namespaces {
		if err := teardownWithin(ctx, client, ns); err != nil {
			errs = append(errs, err)
			continue // it is there for as long as what could not be removed
		}
		going = append(going, ns)
	}
	// All at once: each takes some seconds, in which nothing is to be done.
	ctx, cancel := withinGoneLimit(ctx)
	defer cancel()
	for _, ns := range going {
		err := waitGone(ctx, client, ns)
		if err == nil {
			fmt.Fprintf(log, "removed namespace %s\n", ns)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// teardownWithin bounds teardown: a pod or an Ingress with a finalizer that nobody
// serves stays for ever.
func teardownWithin(ctx context.Context, client kubernetes.Interface, namespace string) error {
	ctx, cancel := withinGoneLimit(ctx)
	defer cancel()
	return teardown(ctx, client, namespace)
}

// Leftovers are the namespaces and the drained nodes that Clean would set right,
// of all runs: those of killed ones, and of any that is going on.
func Leftovers(ctx context.Context, cfg *rest.Config) ([]string, error) {
	client, err := newClient(cfg)
	if err != nil {
		return nil, err
	}
	return leftovers(ctx, client)
}

func leftovers(ctx context.Context, client kubernetes.Interface) (all []string, err error) {
	namespaces, err := ownNamespaces(ctx, client, "")
	if err != nil {
		return nil, err
	}
	nodes, err := tainted(ctx, client, ownedBy(""))
	if err != nil {
		return nil, err
	}
	for _, ns := range namespaces {
		all = append(all, "namespace "+ns)
	}
	for _, n := range nodes {
		all = append(all, "node "+n+" (drained)")
	}
	return all, nil
}

func ownNamespaces(ctx context.Context, client kubernetes.Interface, runID string) ([]string, error) {
	selector := managedByLabel + "=" + managedBy + "," + ownedBy(runID)
	namespaces, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("list namespaces of earlier runs: %w", err)
	}
	var names []string
	for _, ns := range namespaces.Items {
		names = append(names, ns.Name)
	}
	return names, nil
}

// ownedBy selects what a run, or with "" any run, has marked as its own.
func ownedBy(runID string) string {
	if runID == "" {
		return runLabel
	}
	return runLabel + "=" + runID
}
