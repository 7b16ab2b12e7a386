package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

func TestKeyCoversInputs(t *testing.T) {
	tests := []struct {
		name    string
		change  func(t *testing.T, b *builder, c *component)
		differs bool
	}{
		{"nothing", func(*testing.T, *builder, *component) {}, false},
		{"source", edit("main.go", program("other")), true},
		{"new source", edit("sub/other.go", "package sub\n"), true},
		{"go.mod", edit("go.mod", "module hello\n\ngo 1.25\n"), true},
		{"go.sum", edit("go.sum", "example.org/a v1.0.0 h1:x=\n"), true},
		{"test", edit("main_test.go", "package main\n"), false},
		{"text", edit("README.md", "words\n"), false},
		{"flags", func(_ *testing.T, _ *builder, c *component) { c.flags = []string{"-tags=a"} }, true},
		{"environment", func(_ *testing.T, _ *builder, c *component) { c.env = []string{"CGO_ENABLED=0"} }, true},
		{"packages", func(_ *testing.T, _ *builder, c *component) { c.packages = nil }, true},
		{"touched", func(t *testing.T, b *builder, c *component) {
			edit("main.go", program("hello"))(t, b, c)
		}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b, _ := newBuilder(t)
			c := b.components[0]
			before := keyOf(t, b, c)
			test.change(t, b, &c)
			if after := keyOf(t, b, c); (after != before) != test.differs {
				t.Errorf("key before %s, after %s", before, after)
			}
		})
	}
}

func keyOf(t *testing.T, b *builder, c component) string {
	t.Helper()
	key, err := b.key(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func edit(name, text string) func(*testing.T, *builder, *component) {
	return func(t *testing.T, b *builder, c *component) {
		write(t, filepath.Join(b.source, c.dir, name), text)
	}
}

func TestKeyIgnoresPlace(t *testing.T) {
	b, _ := newBuilder(t)
	other, _ := newBuilder(t)
	if keyOf(t, b, b.components[0]) != keyOf(t, other, other.components[0]) {
		t.Error("two checkouts with the same content would build it twice")
	}
}

// The versions that are stamped into binaries are written down twice: here and in the module that fetches them.
func TestStampedVersionsAreTheModules(t *testing.T) {
	tests := []struct{ dir, module, version string }{
		{"kubernetes", "k8s.io/kubernetes", kubernetesVersion},
		{"containerd", "github.com/containerd/containerd/v2", containerdVersion},
		{"containerd", "github.com/containernetworking/plugins", pluginsVersion},
	}
	for _, test := range tests {
		text, err := os.ReadFile(filepath.Join(test.dir, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		line := regexp.MustCompile(`(?m)^\s+` + regexp.QuoteMeta(test.module) + ` (\S+)`).FindSubmatch(text)
		if line == nil {
			t.Errorf("%s/go.mod does not require %s", test.dir, test.module)
		} else if got := string(line[1]); got != test.version {
			t.Errorf("%s/go.mod requires %s %s, but %s is stamped", test.dir, test.module, got, test.version)
		}
	}
}
