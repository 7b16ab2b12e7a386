package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"lameduck/experiments/form"
)

const starterFile = "experiment.yaml"

func initCommand() *cobra.Command {
	return &cobra.Command{
		Use: "init [FILE]", Short: "Write a commented experiment file to begin with",
		Long: "Write a commented experiment file, by default " + starterFile + ". A file that is there already is not overwritten.",
		Args: func(cmd *cobra.Command, args []string) error {
			return exactArgs(min(1, len(args)))(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			path := starterFile
			if len(args) > 0 {
				path = args[0]
			}
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
			if errors.Is(err, fs.ErrExist) {
				return usageError(fmt.Errorf("%s is there already: name another file, or remove it", path))
			}
			if err != nil {
				return usageError(err)
			}
			if _, err = f.Write(form.Starter()); err != nil {
				return errors.Join(fmt.Errorf("write %s: %w", path, err), f.Close())
			}
			if err := f.Close(); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s written; next: lameduck plan %[1]s, then lameduck run %[1]s\n", path)
			return err
		},
	}
}
