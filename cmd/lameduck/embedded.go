package main

import (
	"github.com/spf13/cobra"

	"lameduck/clusters/embedded"
)

// The command in this file is a long-running process of an embedded cluster
// that is lameduck itself. Package clusters/embedded starts it.

func embeddedHostCommand() *cobra.Command {
	var spec string
	cmd := &cobra.Command{
		Use: "embedded-host", Short: "Supervise the processes of one simulated machine", Args: noArgs, Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return embedded.RunHost(cmd.Context(), spec) },
	}
	cmd.Flags().StringVar(&spec, "spec", "", "description of the machine, a JSON file")
	return cmd
}
