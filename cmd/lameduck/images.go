package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"lameduck/clusters"
	"lameduck/clusters/images"
	"lameduck/harness"
)

// imageSources are the images that the jobs' own applications need, each once.
func imageSources(jobs []*job) []harness.ImageSource {
	var all []harness.ImageSource
	for _, j := range jobs {
		if app := j.experiment.Base.Workload.App; app != nil {
			for _, source := range app.Images {
				if !slices.Contains(all, source) {
					all = append(all, source)
				}
			}
		}
	}
	return all
}

// checkImages says, before there is a cluster, whether the files are there and
// no name stands for two of them.
func checkImages(sources []harness.ImageSource) error {
	files := make(map[string]string) // by image
	for _, s := range sources {
		file := s.Archive + s.Binary
		if s.Name == "" || (s.Archive == "") == (s.Binary == "") {
			return fmt.Errorf("image %q: want a name, and either an archive or a binary", s.Name)
		}
		if other, twice := files[s.Name]; twice {
			return fmt.Errorf("image %s is %s and %s: give each a name of its own", s.Name, other, file)
		}
		files[s.Name] = file
		info, err := os.Stat(file)
		if err != nil {
			return fmt.Errorf("image %s: %w", s.Name, err)
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("image %s: %s is no file", s.Name, file)
		}
	}
	return nil
}

// loadImages puts images on every node of a cluster.
func loadImages(ctx context.Context, c clusters.Cluster, sources []harness.ImageSource) error {
	if len(sources) == 0 {
		return nil
	}
	loader, ok := c.(clusters.ImageLoader)
	if !ok {
		return fmt.Errorf("cluster %s takes no images from files", c.Name())
	}
	for _, s := range sources {
		if err := loader.LoadImage(ctx, func(archive string) error { return writeImage(archive, s) }); err != nil {
			return fmt.Errorf("image %s: %w", s.Name, err)
		}
	}
	return nil
}

// writeImage makes an image's archive.
func writeImage(archive string, s harness.ImageSource) error {
	if s.Archive != "" {
		return copyFile(archive, s.Archive)
	}
	inside := "/" + filepath.Base(s.Binary)
	return images.Write(archive, fullName(s.Name), map[string]string{inside: s.Binary}, []string{inside})
}

// fullName is an image's name with registry and tag, as container runtimes
// complete it (distribution/reference, ParseDockerRef).
func fullName(name string) string {
	first, _, hasSlash := strings.Cut(name, "/")
	switch {
	case !hasSlash:
		name = "docker.io/library/" + name
	case !strings.ContainsAny(first, ".:") && first != "localhost":
		name = "docker.io/" + name
	}
	if !strings.Contains(path.Base(name), ":") {
		name += ":latest"
	}
	return name
}

func copyFile(to, from string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
