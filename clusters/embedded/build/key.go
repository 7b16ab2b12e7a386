package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// keyFormat is raised when the meaning of a cache entry changes in a way that its inputs do not show.
const keyFormat = "1"

// key names the content of a component: equal keys mean the same binaries. It covers what the go command reads from us
// (module files and sources, flags, environment) and the toolchain; go.sum stands for everything downloaded.
func (b *builder) key(ctx context.Context, c component) (string, error) {
	h := sha256.New()
	field := func(values ...string) {
		for _, v := range values {
			fmt.Fprintf(h, "%d:%s;", len(v), v) // the length keeps "ab","c" apart from "a","bc"
		}
	}
	field(keyFormat, runtime.GOOS, runtime.GOARCH, c.name)
	field(c.flags...)
	field(c.env...)
	for _, t := range c.packages {
		field(t.pkg, t.file)
	}
	dir := filepath.Join(b.source, c.dir)
	// Asked in the module's directory, because its go.mod may select another toolchain than ours.
	toolchain, err := output(b.goCommand(ctx, c, "env", "GOVERSION", "GOAMD64", "GOARM64", "GOEXPERIMENT"))
	if err != nil {
		return "", err
	}
	field(toolchain)
	if err := hashSources(h, dir); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

// hashSources adds the name and content of each file below dir that a build reads, in the order of their names.
func hashSources(h hash.Hash, dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() || !isSource(entry.Name()) {
			return nil
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%d:%s;%d:", len(name), name, len(text))
		h.Write(text)
		return nil
	})
}

func isSource(name string) bool {
	switch {
	case name == "go.mod", name == "go.sum":
		return true
	case strings.HasSuffix(name, "_test.go"):
		return false
	}
	return strings.HasSuffix(name, ".go")
}
