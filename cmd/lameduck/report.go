package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"lameduck/reports"
)

func reportCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "report RUN",
		Short: "Print the report of a run from its directory",
		Long: `Print the report of a run. RUN is a run directory (runs/<time>-<experiment>);
everything is computed anew from the record, no cluster is needed.`,
		Example: "  lameduck report runs/20300101T000000Z-scale-in --format md",
		Args:    exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := reports.ParseFormat(format)
			if err != nil {
				return usageError(fmt.Errorf("--format: %w", err))
			}
			report, err := reports.Read(args[0])
			if err != nil {
				return usageError(err)
			}
			return reports.Render(cmd.OutOrStdout(), report, f, terminalWidth())
		},
	}
	cmd.Flags().StringVar(&format, "format", "table", "table, md or json")
	return cmd
}

// terminalWidth is the width of stdout in columns, 0 where it is no terminal.
func terminalWidth() int {
	width, _, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// writeMarkdown writes report.md into the run's directory and returns its path.
func writeMarkdown(dir string, report reports.Report) (string, error) {
	path := filepath.Join(dir, "report.md")
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	if err := reports.Render(f, report, reports.FormatMarkdown, 0); err != nil {
		f.Close()
		return "", err
	}
	return path, f.Close()
}
