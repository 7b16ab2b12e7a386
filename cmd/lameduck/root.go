package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"lameduck/clusters/kube"
)

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "lameduck",
		Short: "Reproduce, measure and explain the errors clients get while pods go away",
		Long: `lameduck deploys an application behind a load balancer on a real Kubernetes
cluster, sends it a steady load, takes pods away, and counts what the clients
got: for the setup as it is and for each mitigation.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError(fmt.Errorf("%w; see %s --help", err, cmd.CommandPath()))
	})
	root.AddCommand(
		runCommand(), planCommand(kube.Describe), initCommand(), listCommand(), schemaCommand(),
		reportCommand(), clusterCommand(), versionCommand(),
		albCommand(), workerCommand(), embeddedHostCommand(), externalMetricsCommand(),
	)
	// A command that only groups others says what it has instead of nothing.
	for _, c := range append(root.Commands(), root) {
		if c.HasSubCommands() && c.RunE == nil {
			c.RunE, c.Args = needsSubcommand, cobra.ArbitraryArgs
		}
	}
	return root
}

func needsSubcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	return usageError(fmt.Errorf("unknown command %q; see %s --help", args[0], cmd.CommandPath()))
}

// noArgs and exactArgs are cobra's checks with our exit code.
func noArgs(cmd *cobra.Command, args []string) error { return exactArgs(0)(cmd, args) }

func exactArgs(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := cobra.ExactArgs(n)(cmd, args); err != nil {
			return usageError(fmt.Errorf("%w; usage: %s", err, cmd.UseLine()))
		}
		return nil
	}
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version of lameduck", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "lameduck %s\n", version)
			return err
		},
	}
}
