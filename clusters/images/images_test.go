package images

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

func writeFile(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

type image struct {
	ref        string
	files      map[string]string
	entrypoint []string
}

func (i image) write(path string) error { return Write(path, i.ref, i.files, i.entrypoint) }

func testImage(t *testing.T) image {
	t.Helper()
	dir := t.TempDir()
	a, b := writeFile(t, filepath.Join(dir, "a"), "program a"), writeFile(t, filepath.Join(dir, "b"), "program b")
	ref, err := Ref("target", a, b)
	if err != nil {
		t.Fatal(err)
	}
	return image{
		ref:        ref,
		files:      map[string]string{"/target": a, "/usr/bin/b": b},
		entrypoint: []string{"/target", "--flag"},
	}
}

func TestWriteReadsBack(t *testing.T) {
	want := testImage(t)
	path := filepath.Join(t.TempDir(), "image.tar")
	if err := want.write(path); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(want.ref)
	if err != nil {
		t.Fatal(err)
	}
	// Reading by tag fails when the archive does not hold this name.
	img, err := tarball.ImageFromPath(path, &tag)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(img); err != nil {
		t.Error(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.OS != "linux" || config.Architecture != runtime.GOARCH {
		t.Errorf("platform is %s/%s, want linux/%s", config.OS, config.Architecture, runtime.GOARCH)
	}
	if !reflect.DeepEqual(config.Config.Entrypoint, want.entrypoint) {
		t.Errorf("entrypoint is %q, want %q", config.Config.Entrypoint, want.entrypoint)
	}
	if !config.Created.IsZero() {
		t.Errorf("created %s, want no time", config.Created)
	}
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v: want 1", len(layers), err)
	}
	r, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	type entry struct {
		name, content string
		mode          int64
	}
	var got []entry
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.ModTime.After(time.Unix(0, 0)) {
			t.Errorf("%s: uid %d, gid %d, time %s: want none of them", h.Name, h.Uid, h.Gid, h.ModTime)
		}
		got = append(got, entry{h.Name, string(content), h.Mode})
	}
	wantEntries := []entry{{"target", "program a", 0o755}, {"usr/", "", 0o755}, {"usr/bin/", "", 0o755}, {"usr/bin/b", "program b", 0o755}}
	if !reflect.DeepEqual(got, wantEntries) {
		t.Errorf("layer holds %v, want %v", got, wantEntries)
	}
}

func TestWriteIsReproducible(t *testing.T) {
	img := testImage(t)
	dir := t.TempDir()
	var archives [2][]byte
	for i := range archives {
		path := filepath.Join(dir, "image.tar")
		if err := img.write(path); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		archives[i] = b
		for _, host := range img.files {
			if err := os.Chtimes(host, time.Now(), time.Unix(1, 0)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("the same image gave two archives")
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("%d files in the directory, want only the archive", len(left))
	}
}

func TestRef(t *testing.T) {
	dir := t.TempDir()
	a, a2, b := writeFile(t, filepath.Join(dir, "a"), "one"), writeFile(t, filepath.Join(dir, "a2"), "one"), writeFile(t, filepath.Join(dir, "b"), "two")
	ref := func(files ...string) string {
		t.Helper()
		r, err := Ref("target", files...)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if got := ref(a); !strings.HasPrefix(got, "lameduck.local/target:") || len(got) != len("lameduck.local/target:")+12 {
		t.Errorf("Ref = %s, want lameduck.local/target: and 12 hex digits", got)
	}
	if ref(a) != ref(a2) {
		t.Error("the same content has two names")
	}
	if ref(a) == ref(b) || ref(a, b) == ref(a) || ref(a, b) == ref(b, a) {
		t.Error("different content has the same name")
	}
}

func TestErrorsNameTheFile(t *testing.T) {
	good := testImage(t)
	missing := filepath.Join(t.TempDir(), "missing")
	out := filepath.Join(t.TempDir(), "image.tar")
	cases := map[string]struct {
		edit func(*image)
		path string
		want string
	}{
		"host file missing":       {func(i *image) { i.files = map[string]string{"/target": missing} }, out, missing},
		"directory missing":       {func(*image) {}, filepath.Join(missing, "image.tar"), missing},
		"relative path":           {func(i *image) { i.files = map[string]string{"/target": good.files["/target"], "x": missing} }, out, `"x"`},
		"entrypoint not in it":    {func(i *image) { i.entrypoint = []string{"/other"} }, out, "/other"},
		"no entrypoint":           {func(i *image) { i.entrypoint = nil }, out, "entrypoint"},
		"reference without a tag": {func(i *image) { i.ref = "lameduck.local/Target" }, out, "lameduck.local/Target"},
	}
	for what, c := range cases {
		img := good
		c.edit(&img)
		err := img.write(c.path)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error is %v, want it to name %s", what, err, c.want)
		}
	}
	if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a failed write left %s", out)
	}
	if _, err := Ref("target", missing); err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("Ref: error is %v, want it to name %s", err, missing)
	}
}
