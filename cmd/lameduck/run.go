package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lameduck/clusters"
	"lameduck/clusters/kube"
	"lameduck/experiments"
	"lameduck/harness"
	"lameduck/harness/record"
	"lameduck/reports"
)

// maxTotalRate is how many requests per second all trials together may send:
// load, load balancer, nodes and application cost about 1 ms of CPU per request
// in all, and two cores must not saturate.
const maxTotalRate = 600

// maxParallel bounds --parallel; a node runs 110 pods, and a trial needs some.
const maxParallel = 16

// closeLimit bounds waiting for the last namespaces to go.
const closeLimit = time.Minute

type runFlags struct {
	cluster     clusterFlags
	use         bool
	keep        bool
	clean       bool
	out         string
	repeats     int
	rate        int
	parallel    int
	mitigations []string
	connections []string
	targets     []string
}

func runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run EXPERIMENT",
		Short: "Run an experiment and print its table",
		Long: fmt.Sprintf(`Run an experiment: make a cluster, run every trial, print the table, write
report.md beside the record, remove the cluster.

Experiments: %s`, strings.Join(experiments.Names(), ", ")),
		Example: `  lameduck run scale-in
  lameduck run scale-in --mitigations none,prestop-sleep-5s --repeats 5
  lameduck cluster up && lameduck run scale-in --use-cluster   # on a cluster that stays`,
		Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range []string{"mitigations", "connections", "out"} {
				if flag := cmd.Flags().Lookup(name); flag.Changed && (flag.Value.String() == "[]" || flag.Value.String() == "") {
					return usageError(fmt.Errorf("--%s is empty: leave it out for the default", name))
				}
			}
			for _, name := range []string{"repeats", "rate", "parallel"} {
				if flag := cmd.Flags().Lookup(name); flag.Changed && flag.Value.String() == "0" {
					return usageError(fmt.Errorf("--%s is 0: want a number above 0", name))
				}
			}
			if err := f.checkCluster(cmd.Flags().Changed); err != nil {
				return usageError(err)
			}
			e, err := f.experiment(args[0])
			if err != nil {
				return usageError(err)
			}
			return runExperiment(cmd.Context(), f, e, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.cluster.register(cmd)
	f.cluster.registerOptions(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&f.use, "use-cluster", false, "run on the running cluster called --name and leave it there")
	flags.BoolVar(&f.clean, "clean-cluster", false, "with --use-cluster: first remove what interrupted runs left on the cluster")
	flags.BoolVar(&f.keep, "keep-cluster", false, "leave the cluster running at the end")
	flags.StringVar(&f.out, "out", "runs", "directory for run directories")
	flags.IntVar(&f.repeats, "repeats", 0, "trials per cell (default: the experiment's)")
	flags.IntVar(&f.rate, "rate", 0, "requests per second of each trial (default: the experiment's)")
	flags.IntVar(&f.parallel, "parallel", 0, fmt.Sprintf("trials at a time (default: by cores, with at most %d requests per second in all)", maxTotalRate))
	flags.StringSliceVar(&f.mitigations, "mitigations", nil, "only these mitigations, comma-separated (default: the experiment's)")
	flags.StringSliceVar(&f.targets, "targets", nil, "instance, ip or both, comma-separated: what the load balancer registers (default: the experiment's)")
	flags.StringSliceVar(&f.connections, "connections", nil, "pooled, new or both, comma-separated (default: the experiment's)")
	return cmd
}

// checkCluster refuses flags that would have no effect. changed says whether a
// flag was given.
func (f runFlags) checkCluster(changed func(flag string) bool) error {
	if !f.use {
		if f.clean {
			return errors.New("--clean-cluster goes with --use-cluster: a new cluster is clean")
		}
		return nil
	}
	for _, flag := range []string{"nodes", "dead-address", "keep-cluster"} {
		if changed(flag) {
			return fmt.Errorf("--%s concerns a new cluster: leave it out with --use-cluster", flag)
		}
	}
	return nil
}

// experiment is the named experiment with the flags' changes.
func (f runFlags) experiment(name string) (harness.Experiment, error) {
	e, err := experiments.Builtin(name)
	if err != nil {
		return e, err
	}
	if f.repeats < 0 || f.rate < 0 || f.parallel < 0 || f.parallel > maxParallel {
		return e, fmt.Errorf("--repeats, --rate and --parallel: want a number above 0, and at most %d trials in parallel", maxParallel)
	}
	if f.repeats > 0 {
		e.Repeats = f.repeats
	}
	if f.rate > 0 {
		e.Base.Load.Rate = f.rate
	}
	if len(f.targets) > 0 {
		e.TargetTypes = nil
		for _, t := range f.targets {
			e.TargetTypes = append(e.TargetTypes, harness.TargetType(t))
		}
	}
	if len(f.mitigations) > 0 {
		e.Exclude = nil // it is about the experiment's own list
	}
	if len(f.connections) > 0 {
		e.Connections = nil
		for _, c := range f.connections {
			e.Connections = append(e.Connections, harness.Connections(c))
		}
	}
	if len(f.mitigations) > 0 {
		e.Mitigations = nil
		for _, m := range f.mitigations {
			mitigation, err := experiments.Mitigation(m)
			if err != nil {
				return e, fmt.Errorf("--mitigations: %w", err)
			}
			e.Mitigations = append(e.Mitigations, mitigation)
		}
	}
	return e.DropUnmatched(), nil
}

// parallelTrials chooses how many trials run at a time.
func (f runFlags) parallelTrials(rate int) int {
	if f.parallel > 0 {
		return f.parallel
	}
	return max(1, min(runtime.NumCPU(), maxTotalRate/rate))
}

func runExperiment(ctx context.Context, f runFlags, e harness.Experiment, out, errOut io.Writer) (err error) {
	started := time.Now().UTC()
	runID := started.Format("0102150405")
	plan, err := harness.Expand(e, runID)
	if err != nil {
		return usageError(err)
	}
	runner := harness.Runner{Scenarios: experiments.Scenarios(), CPU: harness.ReadCPU, Parallel: f.parallelTrials(e.Base.Load.Rate)}
	if err := runner.Check(plan); err != nil {
		return usageError(err)
	}
	provider, err := newProvider(f.cluster.provider)
	if err != nil {
		return err
	}
	if err := record.Preflight(f.out); err != nil {
		return usageError(fmt.Errorf("--out: %w", err))
	}
	if _, err := targetBinary(); err != nil {
		return err
	}

	log := newProgress(errOut, len(plan.Trials))
	cluster, remove, err := f.makeCluster(ctx, provider, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	if r, ok := cluster.(clusters.Reservable); ok {
		release, err := r.Reserve()
		if err != nil {
			return usageError(err)
		}
		defer release()
	}
	if f.use {
		if err := f.prepareUsed(ctx, provider, cluster, log); err != nil {
			return err
		}
	}

	image, err := loadTarget(ctx, cluster)
	if err != nil {
		return err
	}
	world, err := newWorld(provider, cluster, image)
	if err != nil {
		return err
	}
	runner.World = world
	if runner.Attacker, err = newAttacker(cluster); err != nil {
		return err
	}
	environment, err := runner.World.Environment(ctx)
	if err != nil {
		return err
	}
	store, err := record.Create(f.out, harness.Run{
		Schema: harness.SchemaVersion, Tool: version, ID: runID, Experiment: e, Plan: plan,
		Environment: environment, Started: started.Format(time.RFC3339),
		Command: strings.Join(append([]string{"lameduck"}, os.Args[1:]...), " "),
	})
	if err != nil {
		return err
	}
	runner.Store, runner.Progress = store, log.trial
	log.printf("%s: %d trials, %d at a time, record in %s", e.Name, len(plan.Trials), runner.Parallel, store.Dir())

	_, runErr := runner.Run(ctx, e, plan)
	if f.use || f.keep {
		// A cluster that stays must not keep our namespaces.
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
		runErr = errors.Join(runErr, world.Close(closing))
		cancel()
	}
	end := harness.RunEnd{Ended: time.Now().UTC().Format(time.RFC3339), Complete: runErr == nil}
	if runErr != nil {
		end.Reason = runErr.Error()
	}
	if err := store.Finish(end); err != nil {
		return errors.Join(runErr, err)
	}
	verdict, err := printReport(store.Dir(), out)
	if err != nil || runErr != nil {
		return errors.Join(runErr, err)
	}
	return verdict
}

// makeCluster creates, or with --use-cluster finds, the cluster. remove undoes
// what was created.
func (f runFlags) makeCluster(ctx context.Context, p clusters.Provider, log *progress) (clusters.Cluster, func() error, error) {
	name := f.cluster.options.Name
	if f.use {
		c, err := p.Open(ctx, name)
		if err != nil {
			return nil, nil, usageError(fmt.Errorf("--use-cluster: %w", err))
		}
		return c, func() error { return nil }, nil
	}
	// Up's lines have the time since its start, which is about ours.
	c, err := p.Up(ctx, f.cluster.options, log.out)
	if err != nil {
		return nil, nil, err
	}
	if f.keep {
		return c, func() error {
			log.printf("cluster %s stays; kubeconfig %s; remove it with: lameduck cluster down --name %s", name, c.Kubeconfig(), name)
			return nil
		}, nil
	}
	return c, func() error { return p.Clean(context.WithoutCancel(ctx), name, log) }, nil
}

// prepareUsed makes sure that a cluster that was there before is whole and has
// no other run on it: its load and its listeners would be in the way of ours.
func (f runFlags) prepareUsed(ctx context.Context, p clusters.Provider, c clusters.Cluster, log *progress) error {
	status, err := p.Status(ctx, c.Name())
	if err != nil {
		return err
	}
	for _, part := range status.Parts {
		if !part.Running {
			return usageError(fmt.Errorf("cluster %s is not whole: %s on %s has stopped (log: %s); make it anew: lameduck cluster down --name %[1]s, then up",
				c.Name(), part.Name, part.Host, part.Log))
		}
	}
	rest, err := c.REST()
	if err != nil {
		return err
	}
	if f.clean {
		return kube.Clean(ctx, rest, "", log)
	}
	left, err := kube.Leftovers(ctx, rest)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return usageError(fmt.Errorf("cluster %s has namespaces of another run: %s: if it is still going on, wait for its end; if it was interrupted, remove them with --clean-cluster",
			c.Name(), strings.Join(left, ", ")))
	}
	return nil
}

// printReport prints the table and writes report.md. The verdict is the run's
// exit code; the table already gives its reasons.
func printReport(dir string, out io.Writer) (verdict, err error) {
	report, err := reports.Read(dir)
	if err != nil {
		return nil, err
	}
	if err := reports.Render(out, report, reports.FormatTable, terminalWidth()); err != nil {
		return nil, err
	}
	path, err := writeMarkdown(dir, report)
	if err != nil {
		return nil, fmt.Errorf("write report: %w", err)
	}
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	fmt.Fprintf(out, "report: %s\n", path)
	if result := reports.Judge(report); result.Code != reports.CodeAsExpected {
		return exitCode{code: result.Code}, nil
	}
	return nil, nil
}
