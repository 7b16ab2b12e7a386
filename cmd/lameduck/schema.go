package main

import (
	"github.com/spf13/cobra"

	"lameduck/experiments"
	"lameduck/experiments/form"
)

func schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON schema of experiment files, for editors", Args: noArgs,
		Example: "  lameduck schema > lameduck.schema.json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			schema, err := form.Schema(experiments.Words())
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(schema)
			return err
		},
	}
}
