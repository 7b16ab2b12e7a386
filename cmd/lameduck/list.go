package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"lameduck/experiments"
	"lameduck/experiments/form"
)

func listCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the built-in experiments, and what experiment files can name", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return writeList(cmd.OutOrStdout()) },
	}
}

func writeList(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "experiments (lameduck run NAME):")
	for _, name := range experiments.Names() {
		e, err := experiments.Builtin(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "  %s\t%s\n", name, e.About)
	}
	fmt.Fprintln(w, "\nscenarios (spec.scenario):")
	scenarios := experiments.Scenarios()
	for _, name := range slices.Sorted(maps.Keys(scenarios)) {
		fmt.Fprintf(w, "  %s\t%s\n", name, scenarios[name].About())
	}
	fmt.Fprintln(w, "\nmitigations (spec.vary.mitigation; D is a duration such as 10s, N a number):")
	for _, m := range experiments.MitigationForms() {
		fmt.Fprintf(w, "  %s\t%s\n", m.Form, m.About)
	}
	fmt.Fprintln(w, "\nfaults (spec.faults, spec.vary.faults):")
	for _, f := range form.Faults() {
		fmt.Fprintf(w, "  %s\t%s\n", f.Name, f.About)
	}
	return w.Flush()
}
