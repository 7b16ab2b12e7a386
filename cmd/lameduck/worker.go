package main

import (
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"lameduck/clusters/alb"
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

func albCommand() *cobra.Command {
	var o alb.Options
	cmd := &cobra.Command{
		Use:   "alb",
		Short: "Answer Ingresses of class alb as the AWS Load Balancer Controller and an ALB would",
		Long: `Watch the Ingresses of class alb of a cluster and serve them on --address, one
listener for each port in alb.ingress.kubernetes.io/listen-ports. A stand-in
for clusters without AWS: on the embedded cluster it is started by itself.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Log = cmd.ErrOrStderr()
			return alb.Run(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig of the cluster")
	cmd.Flags().StringVar(&o.Address, "address", "127.0.0.1", "address to listen on")
	cmd.Flags().StringVar(&o.HealthzAddr, "healthz-address", "", "host:port that serves /healthz (default: none)")
	cmd.Flags().StringVar(&o.LogDir, "log-dir", "", "directory for <namespace>/<ingress>.jsonl, a line per request")
	return cmd
}
