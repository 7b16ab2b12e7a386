package main

import (
	"github.com/spf13/cobra"

	"lameduck/clusters/metrics"
)

func externalMetricsCommand() *cobra.Command {
	var o metrics.Options
	cmd := &cobra.Command{
		Use: "external-metrics", Short: "Serve external.metrics.k8s.io from ConfigMaps, to the API server", Args: noArgs, Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return metrics.Run(cmd.Context(), o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig of the cluster")
	f.StringVar(&o.Address, "address", "", "ip:port to listen on")
	f.StringVar(&o.Cert, "tls-cert", "", "file of the server's certificate")
	f.StringVar(&o.Key, "tls-key", "", "file of its key")
	f.StringVar(&o.ClientCA, "client-ca", "", "file of the CA of the API server's front proxy")
	for _, name := range []string{"kubeconfig", "address", "tls-cert", "tls-key", "client-ca"} {
		cmd.MarkFlagRequired(name)
	}
	return cmd
}
