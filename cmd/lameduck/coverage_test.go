package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lameduck/experiments"
	"lameduck/harness"
)

// TestCoverage checks docs/coverage.md: a row for all that can be named in an
// experiment file, and tests that exist.
func TestCoverage(t *testing.T) {
	var want []string
	for name := range experiments.Scenarios() {
		want = append(want, "scenario "+name)
	}
	for _, m := range experiments.MitigationForms() {
		if base, ok := strings.CutSuffix(m.Form, "-grace-D"); !ok || base == "" {
			want = append(want, "mitigation "+m.Form)
		}
	}
	for _, kind := range harness.FaultKinds() {
		want = append(want, "fault "+string(kind))
	}
	tests := e2eSources(t)
	doc, err := os.ReadFile("../../docs/coverage.md")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(doc)) {
		cells := strings.Split(line, " | ")
		kind, isRow := strings.CutPrefix(cells[0], "| ")
		if !isRow || kind == "kind" {
			continue
		}
		got = append(got, kind+" "+strings.Trim(cells[1], "`"))
		for test := range strings.SplitSeq(cells[2], ", ") {
			name, sub, _ := strings.Cut(test, "/")
			i := slices.IndexFunc(tests, func(source string) bool { return strings.Contains(source, "func "+name+"(t ") })
			if i < 0 || sub != "" && !strings.Contains(tests[i], `"`+sub+`"`) {
				t.Errorf("%s: no test %s", cells[1], test)
			}
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("docs/coverage.md has\n%v, want\n%v", got, want)
	}
}

// e2eSources are the files with end-to-end tests.
func e2eSources(t *testing.T) []string {
	t.Helper()
	var sources []string
	for _, root := range []string{"../../clusters", "."} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			if strings.HasPrefix(string(source), "//go:build e2e\n") {
				sources = append(sources, string(source))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return sources
}
