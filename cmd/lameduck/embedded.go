package main

import (
	"github.com/spf13/cobra"

	"lameduck/clusters/embedded"
)

// The two commands in this file are the long-running processes of an embedded
// cluster that are lameduck itself. Package clusters/embedded starts them.

func embeddedHostCommand() *cobra.Command {
	var spec string
	cmd := &cobra.Command{
		Use: "embedded-host", Short: "Supervise the processes of one simulated machine", Args: noArgs, Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return embedded.RunHost(cmd.Context(), spec) },
	}
	cmd.Flags().StringVar(&spec, "spec", "", "description of the machine, a JSON file")
	return cmd
}

func embeddedForwardCommand() *cobra.Command {
	var spec string
	cmd := &cobra.Command{
		Use: "embedded-forward", Short: "Publish addresses of an embedded cluster on loopback", Args: noArgs, Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return embedded.RunForward(cmd.Context(), spec) },
	}
	cmd.Flags().StringVar(&spec, "spec", "", "description of what to forward, a JSON file")
	return cmd
}
