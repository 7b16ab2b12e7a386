package main

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// mayImport says which of our packages a package may import, by the longest
// prefix of its directory that is listed. See ARCHITECTURE.md.
var mayImport = map[string][]string{
	"harness":                  {},
	"harness/load":             {"harness"},
	"harness/evidence":         {"harness"},
	"harness/record":           {"harness"},
	"experiments":              {"harness", "experiments/form"},
	"experiments/form":         {"harness", "experiments"},
	"reports":                  {"harness", "harness/record"},
	"clusters":                 {},
	"clusters/images":          {},
	"clusters/metrics":         {},
	"clusters/kube":            {"harness", "harness/evidence", "clusters", "clusters/embedded", "clusters/images", "clusters/metrics"},
	"clusters/embedded":        {"clusters", "clusters/images", "clusters/alb", "clusters/metrics"},
	"clusters/embedded/build":  {},
	"clusters/alb":             {"clusters/alb"},
	"clusters/alb/accesslog":   {},
	"clusters/alb/certificate": {},
	"clusters/alb/scripted":    {},
	"clusters/alb/proxy":       {"harness", "clusters/alb/accesslog", "clusters/alb/scripted"},
	"clusters/alb/elb":         {"harness", "clusters/alb/accesslog", "clusters/alb/certificate", "clusters/alb/proxy"},
	"clusters/alb/controller":  {"clusters/alb/elb", "clusters/alb/proxy", "clusters/alb/certificate"},
	"cmd/target":               {"harness"},
	"docs/examples":            {},
	"cmd/lameduck":             {"harness", "harness/load", "harness/record", "experiments", "experiments/form", "reports", "clusters"},
}

// thirdParty says which directories may import a module, by the longest prefix
// of the import path that is listed. A new dependency needs a line here and a
// reason in ARCHITECTURE.md.
var thirdParty = map[string][]string{
	"github.com/tsenart/vegeta/v12":          {"harness/load"},
	"github.com/klauspost/compress":          {"harness/record"},
	"github.com/olekukonko/tablewriter":      {"reports", "clusters/alb/conformance"},
	"github.com/prometheus/client_golang":    {"clusters/alb/accesslog"},
	"github.com/spf13/cobra":                 {"cmd/lameduck"},
	"github.com/google/go-containerregistry": {"clusters/images"},
	"github.com/vishvananda":                 {"clusters/embedded"},
	"golang.org/x/term":                      {"cmd/lameduck"},
	"github.com/spf13/pflag":                 {"cmd/lameduck"},
	"golang.org/x/net":                       {"clusters/alb"},
	"golang.org/x/sys":                       {"clusters"},
	"golang.org/x/time":                      {"clusters/alb"},
	"k8s.io":                                 {"clusters", "harness/evidence", "cmd/lameduck"},
	"sigs.k8s.io/yaml":                       {"clusters"},
	"go.yaml.in/yaml/v3":                     {"experiments/form"},
	"github.com/invopop/jsonschema":          {"experiments/form"},
	"github.com/santhosh-tekuri/jsonschema":  {"experiments"}, // tests
	"sigs.k8s.io/kustomize":                  {"experiments/form"},
}

func TestImports(t *testing.T) {
	root := filepath.Join("..", "..")
	files := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		dir = filepath.ToSlash(dir)
		if d.IsDir() {
			// Modules of their own, and what is not source.
			nested := filepath.Dir(path) != path && dir != "." && fileExists(filepath.Join(path, "go.mod"))
			if nested || d.Name() == "testdata" || (strings.HasPrefix(d.Name(), ".") && dir != ".") {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		files++
		checkImports(t, path, filepath.ToSlash(filepath.Dir(dir)))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 20 {
		t.Fatalf("only %d Go files were seen; the walk is wrong", files)
	}
}

func checkImports(t *testing.T, path, dir string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range f.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		ours, isOurs := strings.CutPrefix(imported, "lameduck/")
		switch {
		case isOurs:
			allowed, known := longestPrefix(mayImport, dir)
			if !known {
				t.Errorf("%s: package %s has no line in mayImport", path, dir)
			}
			if !slices.Contains(allowed, ours) && !underAny(allowed, ours) {
				t.Errorf("%s imports %s; %s may import only %v", path, ours, dir, allowed)
			}
		case strings.Contains(strings.Split(imported, "/")[0], "."):
			allowed, known := longestPrefix(thirdParty, imported)
			if !known || !underAny(allowed, dir) {
				t.Errorf("%s imports %s; that is for %v only", path, imported, allowed)
			}
		}
	}
}

// underAny says whether path is one of dirs or below one of them; "harness"
// means that package alone, because its subpackages are other layers.
func underAny(dirs []string, path string) bool {
	for _, d := range dirs {
		if path == d || (d != "harness" && strings.HasPrefix(path, d+"/")) {
			return true
		}
	}
	return false
}

func longestPrefix(rules map[string][]string, path string) (value []string, ok bool) {
	best := -1
	for prefix, v := range rules {
		if (path == prefix || strings.HasPrefix(path, prefix+"/")) && len(prefix) > best {
			best, value, ok = len(prefix), v, true
		}
	}
	return value, ok
}

func fileExists(path string) bool {
	matches, err := filepath.Glob(path)
	return err == nil && len(matches) == 1
}
