package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// link fills the output directory with links to the binaries of items. Links that are right already are left alone.
func (b *builder) link(items []item) error {
	for _, it := range items {
		for _, t := range it.packages {
			if err := replaceLink(filepath.Join(b.store.path(it), t.file), filepath.Join(b.out, t.link)); err != nil {
				return err
			}
			for _, alias := range aliases[t.link] {
				// Relative, so that all names of kube change with one link.
				if err := replaceLink(t.link, filepath.Join(b.out, alias)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// replaceLink makes path a link to target in one step: whoever starts path meanwhile gets the old one or the new one.
func replaceLink(target, path string) error {
	if now, err := os.Readlink(path); err == nil && now == target {
		return nil
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("create output directory: %w", err)
	}
	// A link cannot be created over another, only renamed over it, and two builds must not share the name in between.
	temp, err := os.MkdirTemp(dir, ".link-")
	if err != nil {
		return fmt.Errorf("create link: %w", err)
	}
	defer os.RemoveAll(temp)
	next := filepath.Join(temp, filepath.Base(path))
	if err := os.Symlink(target, next); err != nil {
		return fmt.Errorf("create link: %w", err)
	}
	if err := os.Rename(next, path); err != nil {
		return fmt.Errorf("replace link: %w", err)
	}
	return nil
}
