package form_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"lameduck/experiments"
	"lameduck/experiments/form"
)

var update = flag.Bool("update", false, "write the reference anew")

const (
	docsFile = "../../docs/experiment-file.md"
	marker   = "<!-- fields -->\n"
)

func docs(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The table of fields is that of the types.
func TestReferenceIsCurrent(t *testing.T) {
	before, got, ok := strings.Cut(docs(t), marker)
	if !ok {
		t.Fatalf("%s lacks %q", docsFile, marker)
	}
	want := form.Reference()
	if *update {
		if err := os.WriteFile(docsFile, []byte(before+marker+want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got != want {
		t.Errorf("%s is not current: go test ./experiments/form -run Reference -update", docsFile)
	}
	for _, field := range []string{"`spec.load.rate` | `100`", "`spec.scenario.blue-green.keepOld`", "`spec.faults[].packet-loss.share` | required"} {
		if !strings.Contains(want, field) {
			t.Errorf("the reference lacks %s", field)
		}
	}
}

// The examples are experiments, the worked one with its manifests.
func TestExamplesOfTheReference(t *testing.T) {
	dir := t.TempDir()
	blocks := regexp.MustCompile("(?s)```yaml\n(?:# (\\S+)\n)?(.*?)```").FindAllStringSubmatch(docs(t), -1)
	if len(blocks) != 3 {
		t.Fatalf("%d examples, want 3", len(blocks))
	}
	files := map[string]string{"shop": "\x7fELF"}
	for _, b := range blocks {
		if b[1] == "" {
			b[1] = "short.yaml"
		}
		files[b[1]] = b[2]
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"short.yaml", "shop.yaml"} {
		if _, err := form.Read(filepath.Join(dir, name), experiments.Words()); err != nil {
			t.Error(err)
		}
	}
}
