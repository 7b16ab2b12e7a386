package load

import (
	"context"
	"fmt"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	what := os.Getenv(helperVariable)
	if what == "" {
		os.Exit(m.Run())
	}
	if err := beHelper(what); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// beHelper is what this binary does when it is another program.
func beHelper(what string) error {
	switch what {
	case "worker":
		return Worker(context.Background(), os.Stdin, os.Stdout)
	case "server":
		return serveTrivially()
	default:
		return fmt.Errorf("%s=%s", helperVariable, what)
	}
}
