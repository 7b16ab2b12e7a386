package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lameduck/clusters/alb"
	"lameduck/clusters/alb/conformance"
	"lameduck/clusters/alb/controller"
	"lameduck/clusters/alb/elb"
	"lameduck/clusters/alb/proxy"
	"lameduck/clusters/images"
)

func albCommand() *cobra.Command {
	var o alb.Options
	var lags lagFlags
	cmd := &cobra.Command{
		Use:   "alb",
		Short: "Answer Ingresses of class alb as the AWS Load Balancer Controller and an ALB would",
		Long: `Watch the Ingresses of class alb of a cluster and serve them, one listener on
every --address for each port in alb.ingress.kubernetes.io/listen-ports. A
stand-in for clusters without AWS: on the embedded cluster it is started by
itself.

What AWS does not publish can be set, here for all Ingresses and by annotations
under alb.lameduck.dev/ for one. Lags are drawn anew each time, for each load
balancer node: a duration (17s), a range (5s..20s), none or nlb.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Log = cmd.ErrOrStderr()
			lags.apply(&o)
			if err := o.Check(); err != nil {
				return usageError(err)
			}
			return alb.Run(cmd.Context(), o)
		},
	}
	cmd.AddCommand(albManifest(), albConformance())
	f := cmd.Flags()
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig of the cluster (default: that of the pod this runs in)")
	f.StringSliceVar(&o.Addresses, "address", []string{"127.0.0.1"}, "addresses of the load balancer nodes, comma-separated or repeated")
	f.StringVar(&o.HealthzAddr, "healthz-address", "", "host:port that serves /healthz and /metrics (default: none)")
	f.StringVar(&o.WebhookAddr, "webhook-address", "", "address:port at which the API server reaches the webhook for readiness gates (default: none)")
	f.StringVar(&o.LogDir, "log-dir", "", "directory for <namespace>/<ingress>.log, .jsonl, .targets.jsonl and .settings.jsonl")
	s := &o.Settings
	f.Var(&lags.deregistration, "deregistration-lag", "until a node sends no new requests to a deregistered target (default 5s..20s)")
	f.Var(&lags.registration, "registration-lag", "until a node first checks a new target (default 2s..5s)")
	f.Var(&lags.weight, "weight-lag", "until a change of weights reaches a node (default 10s..20s)")
	f.Var(&lags.controller, "controller-lag", "until the controller looks at changed endpoints (default none)")
	f.BoolVar(&s.KeepIdleAtDeregistration, "keep-idle-at-deregistration", false, "keep idle connections to a deregistered target until their idle timeout")
	f.StringVar((*string)(&s.PoolOrder), "pool-order", string(proxy.PoolLIFO), "idle connection that is used next: lifo or fifo")
	f.IntVar(&s.UnusableStatus, "unusable-status", 503, "answer when only initial and draining targets are left: 502 or 503")
	f.StringVar((*string)(&o.Controller.OverQuota), "over-quota", string(controller.OverQuotaRefuse), "what the 1001st target of a group does: refuse (the call) or stale (the group takes no changes)")
	f.Float64Var(&s.Rates.Targets.PerSecond, "api-rate", 0, "calls per second that register or deregister targets; more are throttled (default 10)")
	f.IntVar(&s.Rates.Targets.Burst, "api-burst", 0, "such calls at once (default 40)")
	f.DurationVar(&s.ConnectTimeout, "connect-timeout", 0, "for a connection to a target (default 10s)")
	return cmd
}

// lagFlags are the lags, where it matters whether one was given.
type lagFlags struct {
	deregistration, registration, weight, controller rangeFlag
}

func (l lagFlags) apply(o *alb.Options) {
	o.Settings.DeregistrationLag, o.Settings.RegistrationLag, o.Settings.WeightLag = l.deregistration.r, l.registration.r, l.weight.r
	if l.controller.r != nil {
		o.Controller.ControllerLag = *l.controller.r
	}
}

// rangeFlag is a flag with a range of times; r is nil if it was not given.
type rangeFlag struct{ r *elb.Range }

var _ pflag.Value = (*rangeFlag)(nil)

func (f *rangeFlag) Set(text string) error {
	r, err := elb.ParseRange(text)
	if err != nil {
		return err
	}
	f.r = &r
	return nil
}

func (f *rangeFlag) String() string {
	if f.r == nil {
		return ""
	}
	return f.r.String()
}

func (*rangeFlag) Type() string { return "lag" }

func albManifest() *cobra.Command {
	var archive string
	cmd := &cobra.Command{
		Use:   "manifest",
		Short: "Print what runs the load balancer as a pod, and write its image",
		Long: `Print the manifest that runs the load balancer as a pod of a cluster without
AWS, and write its image, made of this binary, as a docker-format archive for
the nodes to load: there is no registry it could be pulled from.`,
		Example: `  lameduck alb manifest --image-archive alb.tar | kubectl apply -f -
  kind load image-archive alb.tar`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			self, _, err := executable()
			if err != nil {
				return err
			}
			ref, err := images.Ref("alb", self)
			if err != nil {
				return err
			}
			if archive != "" {
				if err := images.Write(archive, ref, map[string]string{alb.Binary: self}, []string{alb.Binary}); err != nil {
					return err
				}
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), alb.Manifest(ref))
			return err
		},
	}
	cmd.Flags().StringVar(&archive, "image-archive", "", "write the image to this file (default: not written)")
	return cmd
}

func albConformance() *cobra.Command {
	var filter string
	cmd := &cobra.Command{
		Use:   "conformance",
		Short: "Test that the load balancer does what is known of an ALB and its controller",
		Long: `Test each fact that is known of Application Load Balancers and the AWS Load
Balancer Controller on real sockets of this machine's loopback, and print the
table: fact, grade (D documented by AWS, S read in the controller's source, O
observed, I inferred, U unknown and a setting), source and result. Exit code 1
if one does not hold.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := conformance.Select(filter); err != nil {
				return usageError(fmt.Errorf("--facts: %w", err))
			}
			failed, err := conformance.Run(cmd.Context(), cmd.OutOrStdout(), filter)
			if err != nil {
				return err
			}
			if failed > 0 {
				return exitCode{code: exitUnexpected}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&filter, "facts", "", "only facts whose id or name matches this regular expression")
	return cmd
}
