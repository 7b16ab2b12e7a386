package main

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lameduck/experiments"
	"lameduck/experiments/form"
	"lameduck/harness"
)

// maxTotalRate is how many requests per second all trials together may send:
// load, load balancer, nodes and application cost about 1 ms of CPU per request
// in all, and two cores must not saturate.
const maxTotalRate = 600

// trialsPerCore is how many trials run at a time where their rate allows more:
// most of a trial is waiting, for pods to start and to go. A scenario that starts
// pods under load (harness.PodStarter) gets half of them.
const trialsPerCore = 2

// maxParallel bounds --parallel; a node runs 110 pods, and a trial needs some.
const maxParallel = 16

type runFlags struct {
	cluster     clusterFlags
	use         bool
	keep        bool
	clean       bool
	out         string
	resume      string
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
		Use:   "run EXPERIMENT...",
		Short: "Run experiments and print their tables",
		Long: fmt.Sprintf(`Run experiments, one after the other: make a cluster, run every trial, print
the table, write report.md beside the record, remove the cluster. Flags that
narrow an experiment apply to each.

An interrupted run is completed with --resume and its directory: trials that
have ended are kept, the others run as they were planned.

Experiments: %s`, strings.Join(experiments.Names(), ", ")),
		Example: `  lameduck run scale-in
  lameduck run scale-in --mitigations none,prestop-sleep-5s --repeats 5
  lameduck run --resume runs/20300101T000000Z-scale-in
  lameduck cluster up && lameduck run scale-in --use-cluster   # on a cluster that stays`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			jobs, err := f.jobs(cmd, args)
			if err != nil {
				return usageError(err)
			}
			return runJobs(cmd.Context(), f, jobs, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.cluster.register(cmd)
	f.cluster.registerOptions(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&f.use, "use-cluster", false, "run on the running cluster called --name and leave it there")
	flags.BoolVar(&f.clean, "clean-cluster", false, "with --use-cluster: first mend and remove what interrupted runs left on the cluster")
	flags.BoolVar(&f.keep, "keep-cluster", false, "leave the cluster running at the end")
	flags.StringVar(&f.resume, "resume", "", "complete the interrupted run in this directory")
	flags.StringVar(&f.out, "out", "runs", "directory for run directories")
	flags.IntVar(&f.repeats, "repeats", 0, "trials per cell (default: the experiment's)")
	flags.IntVar(&f.rate, "rate", 0, "requests per second of each trial (default: the experiment's)")
	flags.IntVar(&f.parallel, "parallel", 0, fmt.Sprintf("trials at a time (default: %d per core, half of that if many pods start under load, and at most %d requests per second in all)", trialsPerCore, maxTotalRate))
	flags.StringSliceVar(&f.mitigations, "mitigations", nil, "only these mitigations, the experiment's own or of the catalogue, comma-separated (default: the experiment's)")
	flags.StringSliceVar(&f.targets, "targets", nil, "instance, ip or both, comma-separated: what the load balancer registers (default: the experiment's)")
	flags.StringSliceVar(&f.connections, "connections", nil, "pooled, new, long-lived or several, comma-separated (default: the experiment's)")
	return cmd
}

// jobs are the runs that the command line asks for. Everything about them that
// can be wrong before there is a cluster is checked.
func (f *runFlags) jobs(cmd *cobra.Command, args []string) ([]*job, error) {
	changed := cmd.Flags().Changed
	for _, name := range []string{"mitigations", "targets", "connections", "out", "resume"} {
		if flag := cmd.Flags().Lookup(name); flag.Changed && (flag.Value.String() == "[]" || flag.Value.String() == "") {
			return nil, fmt.Errorf("--%s is empty: leave it out for the default", name)
		}
	}
	for _, name := range []string{"repeats", "rate", "parallel"} {
		if flag := cmd.Flags().Lookup(name); flag.Changed && flag.Value.String() == "0" {
			return nil, fmt.Errorf("--%s is 0: want a number above 0", name)
		}
	}
	if f.repeats < 0 || f.rate < 0 || f.parallel < 0 || f.parallel > maxParallel {
		return nil, fmt.Errorf("--repeats, --rate and --parallel: want a number above 0, and at most %d trials in parallel", maxParallel)
	}
	if err := f.checkCluster(changed); err != nil {
		return nil, err
	}
	if f.resume != "" {
		j, err := f.resumed(changed, args)
		return []*job{j}, err
	}
	if len(args) == 0 {
		return nil, fmt.Errorf("no experiment; usage: %s", cmd.UseLine())
	}
	var jobs []*job
	var wishes []wish
	for _, arg := range args {
		e, options, err := loadExperiment(arg)
		if err == nil {
			wishes = append(wishes, wish{arg, options})
			e, err = f.narrow(e)
		}
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, &job{experiment: e, source: arg, parallel: f.parallelTrials(e), command: commandLine(cmd.Flags(), arg)})
	}
	if err := mergeOptions(&f.cluster.options, wishes, changed); err != nil || f.use {
		return jobs, err
	}
	for _, j := range jobs {
		if err := checkNodes(j.experiment, f.cluster.options.Nodes); err != nil {
			return nil, fmt.Errorf("%s: %w", j.source, err)
		}
	}
	return jobs, nil
}

// commandLine is the command that runs one experiment with the flags given.
func commandLine(flags *pflag.FlagSet, arg string) string {
	parts := []string{"lameduck run", arg}
	flags.Visit(func(flag *pflag.Flag) {
		value := flag.Value.String()
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			value = strings.Join(list.GetSlice(), ",")
		}
		if flag.Value.Type() == "bool" {
			parts = append(parts, "--"+flag.Name+"="+value)
		} else {
			parts = append(parts, "--"+flag.Name, value)
		}
	})
	return strings.Join(parts, " ")
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

// narrow is an experiment with the flags' changes.
func (f runFlags) narrow(e harness.Experiment) (harness.Experiment, error) {
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
	if len(f.connections) > 0 {
		e.Connections = nil
		for _, c := range f.connections {
			e.Connections = append(e.Connections, harness.Connections(c))
		}
		if slices.Contains(e.Connections, harness.ConnectionsLongLived) {
			e.Base.Load.LongLived = cmp.Or(e.Base.Load.LongLived, form.DefaultLongLived)
		}
	}
	if len(f.mitigations) > 0 {
		var err error
		if e.Mitigations, err = mitigationsOf(e, f.mitigations); err != nil {
			return e, fmt.Errorf("--mitigations: %w", err)
		}
		// Those that name a mitigation are about the experiment's own list.
		e.Exclude = slices.DeleteFunc(slices.Clone(e.Exclude), func(x harness.Selector) bool { return x.Mitigation != "" })
	}
	return e.DropUnmatched(), nil
}

// mitigationsOf are those of the names, the experiment's own first.
func mitigationsOf(e harness.Experiment, names []string) ([]harness.Mitigation, error) {
	var all []harness.Mitigation
	for _, name := range names {
		if i := slices.IndexFunc(e.Mitigations, func(m harness.Mitigation) bool { return m.Name == name }); i >= 0 {
			all = append(all, e.Mitigations[i])
			continue
		}
		m, err := experiments.Mitigation(name)
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// parallelTrials chooses how many trials run at a time.
func (f runFlags) parallelTrials(e harness.Experiment) int {
	if f.parallel > 0 {
		return f.parallel
	}
	perCore := trialsPerCore
	if s, ok := experiments.Scenarios()[e.Base.Scenario.Name].(harness.PodStarter); ok && s.StartsPods() {
		perCore = 1
	}
	return max(1, min(maxParallel, perCore*runtime.NumCPU(), maxTotalRate/max(1, e.Base.Load.Rate)))
}
