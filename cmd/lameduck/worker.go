package main

import (
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"lameduck/harness/load"
)

// The commands in this file are the processes that lameduck starts itself;
// they are of use by hand only to look at one part alone.

func workerCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "worker",
		Short: "Send one attack, as told on stdin, and write its requests to stdout",
		Args:  noArgs, Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Ctrl-C reaches the whole process group; the parent decides when
			// the load ends, by closing stdin.
			signal.Ignore(syscall.SIGINT)
			return load.Worker(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}
