package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"lameduck/experiments"
	"lameduck/experiments/form"
	"lameduck/harness"
)

// describe says what a trial creates, a line for each object.
type describe func(harness.Trial) ([]string, error)

func planCommand(objects describe) *cobra.Command {
	var parallel int
	cmd := &cobra.Command{
		Use:   "plan FILE|NAME",
		Short: "Show what a run of an experiment would do, touching nothing",
		Long: `Read an experiment file, or a built-in experiment, and show its cells and trials,
what would be created and about how long it takes. No cluster is needed. What is
wrong with a file is listed, all at once, and ends with exit code 2.`,
		Example: "  lameduck plan my-experiment.yaml\n  lameduck plan scale-in",
		Args:    exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if parallel < 0 || parallel > maxParallel {
				return usageError(fmt.Errorf("--parallel is %d: want 1..%d", parallel, maxParallel))
			}
			e, cluster, err := experiments.Load(args[0])
			if err != nil {
				return usageError(err)
			}
			plan, err := harness.Expand(e, "plan")
			if err != nil {
				return usageError(err)
			}
			if err := checkNodes(e, cmp.Or(cluster.Nodes, defaultNodes)); err != nil {
				return usageError(fmt.Errorf("%s: %w", args[0], err))
			}
			if err := checkObjects(args[0], plan, objects); err != nil {
				return usageError(err)
			}
			return writePlan(cmd.OutOrStdout(), planned{
				experiment: e, cluster: cluster, plan: plan, objects: objects,
				parallel: (runFlags{parallel: parallel}).parallelTrials(e),
			})
		},
	}
	cmd.Flags().IntVar(&parallel, "parallel", 0, "trials at a time (default: as lameduck run has it)")
	return cmd
}

// planned is all that a plan's text is made of.
type planned struct {
	experiment harness.Experiment
	cluster    form.ClusterOptions
	plan       harness.Plan
	parallel   int
	objects    describe
}

func writePlan(out io.Writer, p planned) error {
	var b strings.Builder
	e, base := p.experiment, p.experiment.Base
	fmt.Fprintf(&b, "%s: %s\n", e.Name, cmp.Or(e.About, "no description (spec.about)"))
	fmt.Fprintf(&b, "scenario %s: %s\n", base.Scenario.Name, experiments.Scenarios()[base.Scenario.Name].About())
	fmt.Fprintf(&b, "load: %d requests/s each trial, timeout %s, %s before the scenario and %s after it\n\n",
		base.Load.Rate, base.Load.Timeout, base.Load.Baseline, base.Load.Settle)

	alones := p.writeCells(&b)
	fmt.Fprintf(&b, "\n%d cells x %d repeats = %d trials, %d at a time", len(p.plan.Cells), e.Repeats, len(p.plan.Trials), p.parallel)
	if alones > 0 {
		fmt.Fprintf(&b, "; %d of them alone, because other trials would notice", alones)
	}
	fmt.Fprintf(&b, "\nabout %s on the embedded cluster: an estimate from the times that the file asks for and what\ndeploying and removing took where it was measured; trials that are disturbed and repeated come on top\n",
		estimate(p.plan, p.parallel).Round(10*time.Second))

	c := p.cluster
	fmt.Fprintf(&b, "\ncreated, and removed at the end:\ncluster: %s, %d nodes, dead addresses %s\n",
		cmp.Or(c.Provider, "embedded"), cmp.Or(c.Nodes, defaultNodes), cmp.Or(c.DeadAddress, "drop"))
	for _, image := range p.images() {
		fmt.Fprintf(&b, "image on every node: %s\n", image)
	}
	objects, err := p.objects(p.plan.Trials[0])
	if err != nil {
		return usageError(err)
	}
	fmt.Fprintln(&b, "for each trial, here the first:")
	for _, line := range objects {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	_, err = io.WriteString(out, b.String())
	return err
}

// writeCells writes the table of cells, and says how many trials are alone.
func (p planned) writeCells(b *strings.Builder) (alones int) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "cell\ttarget\tmitigation\tconns\tfaults\texpected failures\ta trial takes about\t")
	for i, cell := range p.plan.Cells {
		t := p.plan.Trials[i] // the first repeat is in the order of the cells
		note := ""
		if alone(t.Setup) {
			note = " (alone)"
			alones += p.experiment.Repeats
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s%s\t\n", i+1, cell.TargetType, cell.Mitigation, cell.Connections,
			cmp.Or(cell.Faults, strings.Join(kindsOf(t.Setup.Faults), ","), "-"),
			cmp.Or(string(p.experiment.ExpectationFor(cell)), "-"), trialTime(t.Setup).Round(time.Second), note)
	}
	w.Flush()
	return alones
}

func (p planned) images() []string {
	app := p.experiment.Base.Workload.App
	if app == nil {
		return []string{"the built-in application"}
	}
	var images []string
	for _, i := range app.Images {
		images = append(images, fmt.Sprintf("%s from %s", i.Name, cmp.Or(i.Archive, i.Binary)))
	}
	return append(images, "the control target")
}

func kindsOf(faults []harness.Fault) []string {
	var kinds []string
	for _, f := range faults {
		kinds = append(kinds, string(f.Kind))
	}
	slices.Sort(kinds)
	return kinds
}
