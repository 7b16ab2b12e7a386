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
// if that is "", of all runs. It finds them by their labels, waits until they
// are gone, and writes a line for each to log. None left is no error.
func Clean(ctx context.Context, cfg *rest.Config, runID string, log io.Writer) error {
	client, err := newClient(cfg)
	if err != nil {
		return err
	}
	return clean(ctx, client, runID, log)
}

func clean(ctx context.Context, client kubernetes.Interface, runID string, log io.Writer) error {
	namespaces, err := leftovers(ctx, client, runID)
	if err != nil {
		return err
	}
	var errs []error
	for _, ns := range namespaces {
		errs = append(errs, teardown(ctx, client, ns))
	}
	// All at once: each takes some seconds, in which nothing is to be done.
	for _, ns := range namespaces {
		err := waitGone(ctx, client, ns)
		if err == nil {
			fmt.Fprintf(log, "removed namespace %s\n", ns)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Leftovers are the namespaces that Clean would remove, of all runs: those of
// killed ones, and of any that is going on.
func Leftovers(ctx context.Context, cfg *rest.Config) ([]string, error) {
	client, err := newClient(cfg)
	if err != nil {
		return nil, err
	}
	return leftovers(ctx, client, "")
}

func leftovers(ctx context.Context, client kubernetes.Interface, runID string) ([]string, error) {
	selector := managedByLabel + "=" + managedBy + "," + runLabel
	if runID != "" {
		selector += "=" + runID
	}
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
