package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// checkMachine tells at once what no build could get around.
func checkMachine() error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("the embedded cluster runs on Linux only, and this is %s: use a cluster of another kind", runtime.GOOS)
	}
	if _, err := exec.LookPath("go"); err != nil {
		return errors.New("there is no go command in PATH: install Go (see the go line in go.mod for the version)")
	}
	return nil
}

const packagesForC = `run "apt-get install gcc libc6-dev libseccomp-dev pkg-config", or what your distribution calls them`

// checkC tries what runc's C part needs, with the tools that cgo will use: a compiler, pkg-config and the headers.
func checkC(ctx context.Context) error {
	compiler := toolFromEnv("CC", "gcc")
	if _, err := exec.LookPath(compiler[0]); err != nil {
		return fmt.Errorf("building runc needs a C compiler, and there is no %s: %s", compiler[0], packagesForC)
	}
	pkgConfig := toolFromEnv("PKG_CONFIG", "pkg-config")
	if _, err := exec.LookPath(pkgConfig[0]); err != nil {
		return fmt.Errorf("building runc needs %s, and it is not installed: %s", pkgConfig[0], packagesForC)
	}
	flags, err := exec.CommandContext(ctx, pkgConfig[0], append(pkgConfig[1:], "--cflags", "libseccomp")...).Output()
	if err != nil {
		return missingHeader(ctx)
	}
	args := append(compiler[1:], strings.Fields(string(flags))...)
	try := exec.CommandContext(ctx, compiler[0], append(args, "-fsyntax-only", "-x", "c", "-")...)
	try.Stdin = strings.NewReader("#include <stdlib.h>\n#include <seccomp.h>\n")
	if try.Run() != nil {
		return missingHeader(ctx)
	}
	return nil
}

func missingHeader(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("building runc needs the C headers of libseccomp, and they are not installed: %s", packagesForC)
}

// toolFromEnv returns the command that cgo will use, which the environment may name, with arguments.
func toolFromEnv(variable, otherwise string) []string {
	if words := strings.Fields(os.Getenv(variable)); len(words) > 0 {
		return words
	}
	return []string{otherwise}
}
