package reports

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestGolden(t *testing.T) {
	runs := map[string]Report{"run": read(t, aRun(t)), "cut": read(t, aCutRun(t)), "matrix": read(t, aMatrixRun(t))}
	for _, c := range []struct {
		golden string
		run    string
		format Format
		width  int
	}{
		{"run.txt", "run", FormatTable, 0},
		{"run-80.txt", "run", FormatTable, 80},
		{"run.md", "run", FormatMarkdown, 0},
		{"run.json", "run", FormatJSON, 0},
		{"cut.txt", "cut", FormatTable, 100},
		{"cut.md", "cut", FormatMarkdown, 0},
		{"matrix.txt", "matrix", FormatTable, 0},
		{"matrix-80.txt", "matrix", FormatTable, 80},
		{"matrix.md", "matrix", FormatMarkdown, 0},
		{"matrix.json", "matrix", FormatJSON, 0},
		{"cut.json", "cut", FormatJSON, 0},
	} {
		t.Run(c.golden, func(t *testing.T) {
			var out bytes.Buffer
			if err := Render(&out, runs[c.run], c.format, c.width); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", c.golden)
			if *update {
				if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(out.Bytes(), want) {
				t.Errorf("differs from %s (go test ./reports -run Golden -update writes it anew); got:\n%s", path, out.Bytes())
			}
			for line := range strings.Lines(out.String()) {
				if c.format == FormatTable && strings.HasSuffix(line, " \n") {
					t.Errorf("trailing space: %q", line)
				}
				if strings.Contains(line, "100 %") || strings.Contains(line, "100%") {
					t.Errorf("claims 100 %%: %s", line)
				}
			}
		})
	}
}
