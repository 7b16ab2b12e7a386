// Command build turns Go modules into the binaries of an embedded cluster: Kubernetes, etcd, metrics-server,
// containerd, the CNI plugins, runc and the pause program.
//
//	go run ./clusters/embedded/build [--out bin/embedded] [--cache DIR]
//
// Each component is built once per content of its module, its flags and its toolchain, into a cache shared by all
// checkouts; the output directory holds links into it. It uses the standard library only, and nothing of lameduck, so
// that it starts at once and needs no module but its own.
//
// The pipeline, a file each: components.go says what there is, key.go names its content, store.go finds or keeps it,
// compile.go runs the go command under the eye of progress.go, links.go publishes it. builder.go puts them in order.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal ends the build in order; giving signals back their usual meaning lets the second end it at once.
	context.AfterFunc(ctx, stop)
	err := run(ctx, os.Args[1:], os.Stderr)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		os.Exit(2)
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "stopped: components that were finished stay in the cache, nothing else was kept")
		os.Exit(130)
	default:
		fmt.Fprintf(os.Stderr, "build of the embedded cluster failed: %v\n", err)
		os.Exit(1)
	}
}

// errUsage marks an error that the flag package has already explained.
var errUsage = errors.New("wrong usage")

func run(ctx context.Context, args []string, stderr io.Writer) error {
	flags := flag.NewFlagSet("build", flag.ContinueOnError)
	flags.SetOutput(stderr)
	out := flags.String("out", "", "`directory` for links to the binaries (default bin/embedded of this checkout)")
	cache := flags.String("cache", "", "`directory` to keep what was built (default $LAMEDUCK_CACHE or ~/.cache/lameduck)")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return errUsage
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(stderr, "build takes no arguments, only flags: %q\n", flags.Args())
		return errUsage
	}
	root, err := findRoot()
	if err != nil {
		return err
	}
	if *out == "" {
		*out = filepath.Join(root, "bin", "embedded")
	}
	if *cache == "" {
		if *cache, err = defaultCache(); err != nil {
			return err
		}
	}
	// Links into the cache and commands run in other directories need a path that does not depend on where we are.
	if *cache, err = filepath.Abs(*cache); err != nil {
		return fmt.Errorf("resolve cache directory: %w", err)
	}
	b := &builder{
		components: components,
		source:     filepath.Join(root, "clusters", "embedded", "build"),
		store:      store{dir: filepath.Join(*cache, "embedded")},
		out:        *out,
		stderr:     stderr,
		inPlace:    isTerminal(stderr),
	}
	return b.run(ctx)
}

// findRoot returns the directory of lameduck's own go.mod, from any directory of the checkout.
func findRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find checkout: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(text), "module lameduck\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is not inside a checkout of lameduck: run this from one", start)
		}
	}
}

func defaultCache() (string, error) {
	if dir := os.Getenv("LAMEDUCK_CACHE"); dir != "" {
		return dir, nil
	}
	dir := os.Getenv("XDG_CACHE_HOME")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("find cache directory: %w; set LAMEDUCK_CACHE", err)
		}
		dir = filepath.Join(home, ".cache")
	}
	return filepath.Join(dir, "lameduck"), nil
}

// isTerminal takes any character device for a terminal: the only other common one is the null device, which reads nothing.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
