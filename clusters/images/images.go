package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// host is the first part of every reference. No registry has this name, so
// that a node that lacks an image can never find another one by accident.
const host = "lameduck.local"

// Ref names an image by its content: Ref("target", files...) is
// lameduck.local/target:<first 12 hex digits of a SHA-256 over the files>. The
// order of the files counts, their names do not.
func Ref(repository string, files ...string) (string, error) {
	if len(files) == 0 {
		return "", fmt.Errorf("name image %s: want at least one file", repository)
	}
	all := sha256.New()
	for _, file := range files {
		sum, err := sumFile(file)
		if err != nil {
			return "", fmt.Errorf("name image %s: %w", repository, err)
		}
		all.Write(sum)
	}
	ref := host + "/" + repository + ":" + hex.EncodeToString(all.Sum(nil))[:12]
	if _, err := name.NewTag(ref, name.StrictValidation); err != nil {
		return "", fmt.Errorf("name image %s: %w", repository, err)
	}
	return ref, nil
}

func sumFile(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return nil, err // *fs.PathError names the file
	}
	return h.Sum(nil), nil
}

// Write writes an image as a docker-format archive (docker save, ctr images
// import), for the architecture of the running machine. ref is its name with a
// tag, usually made by Ref. files are its only content: absolute path in the
// image to path on the host; all are executable (0755) and belong to root.
// entrypoint is the command that a container runs, one of the files first.
//
// The same input gives the same bytes. The archive appears at path complete or
// not at all.
func Write(path, ref string, files map[string]string, entrypoint []string) error {
	if err := write(path, ref, files, entrypoint); err != nil {
		return fmt.Errorf("write image %s: %w", ref, err)
	}
	return nil
}

func write(path, ref string, files map[string]string, entrypoint []string) (err error) {
	tag, err := name.NewTag(ref, name.StrictValidation)
	if err != nil {
		return err
	}
	img, err := build(files, entrypoint)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if err := tarball.Write(tag, img, f); err != nil {
		return fmt.Errorf("archive %s: %w", path, err)
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func build(files map[string]string, entrypoint []string) (v1.Image, error) {
	if len(files) == 0 {
		return nil, errors.New("no files")
	}
	if len(entrypoint) == 0 {
		return nil, errors.New("no entrypoint")
	}
	if _, ok := files[entrypoint[0]]; !ok {
		return nil, fmt.Errorf("entrypoint %s is none of the image's files", entrypoint[0])
	}
	content, err := pack(files)
	if err != nil {
		return nil, err
	}
	// Every node unpacks the layer once; a better compression would cost more
	// time than it saves.
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}, tarball.WithCompressionLevel(gzip.BestSpeed), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config = v1.Config{Entrypoint: entrypoint, WorkingDir: "/"}
	return mutate.ConfigFile(img, config)
}

// pack is the files as a tar, sorted and without times or owners, so that it
// depends on nothing but names and contents.
func pack(files map[string]string) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	made := map[string]bool{}
	for _, in := range slices.Sorted(maps.Keys(files)) {
		if !path.IsAbs(in) || path.Clean(in) != in || in == "/" {
			return nil, fmt.Errorf("file %q: want a clean absolute path in the image, like /target", in)
		}
		for _, dir := range parents(in) {
			if made[dir] {
				continue
			}
			made[dir] = true
			if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}); err != nil {
				return nil, err
			}
		}
		content, err := os.ReadFile(files[in])
		if err != nil {
			return nil, err
		}
		head := &tar.Header{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(in, "/"), Mode: 0o755, Size: int64(len(content))}
		if err := w.WriteHeader(head); err != nil {
			return nil, fmt.Errorf("%s: %w", in, err)
		}
		if _, err := w.Write(content); err != nil {
			return nil, fmt.Errorf("%s: %w", in, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// parents are the directories above a path in the image, outermost first and
// without the leading slash.
func parents(in string) []string {
	var dirs []string
	for dir := path.Dir(in); dir != "/"; dir = path.Dir(dir) {
		dirs = append(dirs, strings.TrimPrefix(dir, "/"))
	}
	slices.Reverse(dirs)
	return dirs
}
