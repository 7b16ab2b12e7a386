package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"lameduck/clusters"
)

// clusterFlags choose a cluster.
type clusterFlags struct {
	provider string
	options  clusters.Options
}

func (f *clusterFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.provider, "cluster", "embedded", "kind of cluster: embedded")
	cmd.Flags().StringVar(&f.options.Name, "name", defaultCluster, "name of the cluster")
}

func (f *clusterFlags) registerOptions(cmd *cobra.Command) {
	cmd.Flags().IntVar(&f.options.Nodes, "nodes", defaultNodes, "number of worker nodes")
	cmd.Flags().StringVar(&f.options.DeadAddress, "dead-address", "drop", "what answers where a pod was: drop (silence, as in a cloud VPC), unreachable (ICMP) or reset (TCP)")
}

func clusterCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "cluster", Short: "Make, look at and remove the cluster that experiments run on"}
	cmd.AddCommand(clusterUp(), clusterDown(), clusterStatus(), clusterClean())
	return cmd
}

func clusterUp() *cobra.Command {
	var f clusterFlags
	cmd := &cobra.Command{
		Use: "up", Short: "Create a cluster and leave it running", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := newProvider(f.provider)
			if err != nil {
				return err
			}
			if _, err := p.Up(cmd.Context(), f.options, cmd.ErrOrStderr()); err != nil {
				return err
			}
			return printStatus(cmd.Context(), cmd.OutOrStdout(), p, f.options.Name, false)
		},
	}
	f.register(cmd)
	f.registerOptions(cmd)
	return cmd
}

func clusterDown() *cobra.Command {
	var f clusterFlags
	cmd := &cobra.Command{
		Use: "down", Short: "Remove a cluster", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := newProvider(f.provider)
			if err != nil {
				return err
			}
			// Down and clean are one thing: a cluster that is half gone must go too.
			if _, err := p.Status(cmd.Context(), f.options.Name); err != nil {
				return usageError(err)
			}
			return p.Clean(cmd.Context(), f.options.Name, cmd.ErrOrStderr())
		},
	}
	f.register(cmd)
	return cmd
}

func clusterStatus() *cobra.Command {
	var f clusterFlags
	cmd := &cobra.Command{
		Use: "status", Short: "Show a cluster's addresses and the state of its processes", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := newProvider(f.provider)
			if err != nil {
				return err
			}
			return printStatus(cmd.Context(), cmd.OutOrStdout(), p, f.options.Name, true)
		},
	}
	f.register(cmd)
	return cmd
}

func clusterClean() *cobra.Command {
	var f clusterFlags
	cmd := &cobra.Command{
		Use: "clean", Short: "Remove whatever is left of clusters, in any state", Args: noArgs,
		Long: `Remove every process, namespace, mount, cgroup and file of lameduck's clusters,
also those that a killed run left behind. With --name only of that cluster.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("name") && f.options.Name == "" {
				return usageError(errors.New("--name is empty: name a cluster, or leave the flag out to clean all"))
			}
			p, err := newProvider(f.provider)
			if err != nil {
				return err
			}
			return p.Clean(cmd.Context(), f.options.Name, cmd.ErrOrStderr())
		},
	}
	f.register(cmd)
	cmd.Flags().Lookup("name").DefValue = ""
	f.options.Name = ""
	return cmd
}

// printStatus writes what a user needs to reach the cluster. A part that has
// stopped makes it an error.
func printStatus(ctx context.Context, out io.Writer, p clusters.Provider, name string, parts bool) error {
	s, err := p.Status(ctx, name)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "cluster     %s (Kubernetes %s)\nkubeconfig  %s\n", s.Name, s.Kubernetes, s.Kubeconfig)
	for _, what := range slices.Sorted(maps.Keys(s.Published)) {
		fmt.Fprintf(out, "%-11s %s\n", what, s.Published[what])
	}
	if !parts {
		return nil
	}
	stopped := 0
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nHOST\tPROCESS\tPID\tSTATE\tLOG")
	for _, part := range s.Parts {
		state := "running"
		if !part.Running {
			state = "stopped"
			stopped++
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\n", part.Host, part.Name, part.PID, state, part.Log)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if stopped > 0 {
		return fmt.Errorf("%d of %d processes have stopped; see their logs, or: lameduck cluster clean --name %s", stopped, len(s.Parts), name)
	}
	return nil
}
