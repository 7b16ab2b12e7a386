package form_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"lameduck/experiments"
	"lameduck/experiments/form"
)

const shopObjects = `apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
---
apiVersion: v1
kind: Service
metadata: {name: shop}
spec: {ports: [{port: 80}]}
`

// manifestsIn parses an experiment whose manifests are what is called name in a
// directory with the files given.
func manifestsIn(t *testing.T, name string, files map[string]string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	for file, text := range files {
		file = filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return parseManifests(dir, name)
}

func parseManifests(dir, name string) (string, error) {
	doc, err := form.Parse(filepath.Join(dir, "f.yaml"), []byte(head+rolling+"  workload: {manifests: "+name+", service: shop, port: 80}\n"), experiments.Words())
	if err != nil {
		return "", err
	}
	return doc.Experiment.Base.Workload.App.Manifests, nil
}

// Nothing that a kustomization names is fetched, wherever it names it. The
// addresses are of no interface: a fetch would end with another error.
func TestKustomizeFetchesNothing(t *testing.T) {
	const url = "http://198.18.255.1/x.yaml"
	for name, c := range map[string]struct {
		text  string
		field string
	}{
		"resource":           {"resources: [" + url + "]", "resources"},
		"in other letters":   {"Resources: ['" + strings.ToUpper(url) + "']", "resources"},
		"base":               {"bases: [" + url + "]", "resources"},
		"git":                {"resources: ['git::" + url + "?ref=v1']", "resources"},
		"file of git":        {"resources: ['file:///x.git//y']", "resources"},
		"ssh":                {"resources: ['git@198.18.255.1:org/repo']", "resources"},
		"directory as git":   {"resources: [github.com/org/repo]", "resources"},
		"no such file":       {"resources: [none.yaml]", "resources"},
		"component":          {"components: [" + url + "]", "components"},
		"patch":              {"patches: [{path: '" + url + "'}]", "patches"},
		"JSON patch":         {"patchesJson6902: [{path: '" + url + "', target: {kind: Service, name: shop, version: v1}}]", "patches"},
		"strategic merge":    {"patchesStrategicMerge: [" + url + "]", "patchesStrategicMerge"},
		"replacement":        {"replacements: [{path: '" + url + "'}]", "replacements"},
		"ConfigMap":          {"configMapGenerator: [{name: c, files: ['k=" + url + "']}]", "configMapGenerator"},
		"Secret":             {"secretGenerator: [{name: c, envs: ['" + url + "']}]", "secretGenerator"},
		"CRD":                {"crds: [" + url + "]", "crds"},
		"configuration":      {"configurations: [" + url + "]", "configurations"},
		"OpenAPI":            {"openapi: {path: '" + url + "'}", "openapi"},
		"generator":          {"generators: [" + url + "]", "generators"},
		"validator":          {"validators: [" + url + "]", "validators"},
		"transformer's file": {"transformers: [transformer.yaml]", "transformers"},
		"inline transformer": {"transformers: [\"kind: PatchTransformer\\npath: " + url + "\\n\"]", "transformers"},
		"a base's":           {"resources: [base]", "resources"},
		"chart":              {"helmCharts: [{name: x}]", "helmCharts"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := manifestsIn(t, "k", map[string]string{
				"k/kustomization.yaml":                     c.text + "\n",
				"k/transformer.yaml":                       "apiVersion: builtin\nkind: PatchTransformer\nmetadata: {name: p}\npath: " + url + "\n",
				"k/base/kustomization.yaml":                "resources: [" + url + "]\n",
				"k/github.com/org/repo/kustomization.yaml": "resources: []\n",
			})
			want := "nothing is fetched"
			if name == "chart" {
				want = "charts are not rendered"
			}
			if err == nil || !strings.Contains(err.Error(), c.field+": ") || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %s of %s", err, want, c.field)
			}
		})
	}
}

// What is local is made as before.
func TestKustomizeOfLocalPaths(t *testing.T) {
	text, err := manifestsIn(t, "k/overlay", map[string]string{
		"k/base/kustomization.yaml": "resources: [shop.yaml]\n",
		"k/base/shop.yaml":          shopObjects,
		"k/overlay/kustomization.yaml": `resources: [../base]
patches: [{path: p.yaml}, {patch: "{apiVersion: v1, kind: Service, metadata: {name: shop, annotations: {see: 'http://a.b/c'}}}"}]
configMapGenerator: [{name: c, files: [key=file.txt]}]
transformers: ["{apiVersion: builtin, kind: AnnotationsTransformer, metadata: {name: a}, annotations: {b: c}, fieldSpecs: [{path: metadata/annotations, create: true}]}"]
`,
		"k/overlay/file.txt": "content of the file",
		"k/overlay/p.yaml":   "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: shop}\nspec: {replicas: 7}\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"replicas: 7", "see: http://a.b/c", "content of the file", "b: c"} {
		if !strings.Contains(text, want) {
			t.Errorf("lacks %q:\n%s", want, text)
		}
	}
}

func TestManifestsInAList(t *testing.T) {
	_, err := manifestsIn(t, "m.yaml", map[string]string{"m.yaml": `apiVersion: v1
kind: List
items:
  - {apiVersion: apps/v1, kind: Deployment, metadata: {name: shop}}
  - {apiVersion: v1, kind: Service, metadata: {name: shop}, spec: {ports: [{port: 80}]}}
`})
	if err != nil {
		t.Error(err)
	}
}

// Only regular files are read, and only of a sensible size.
func TestReadsRegularFilesOnly(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	large := filepath.Join(dir, "large")
	if err := os.WriteFile(large, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(large, 4<<20+1); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		pipe: "is a named pipe: want a file", dir: "is a directory: want a file",
		"/dev/zero": "is a device: want a file", large: "is too large: want at most 4 MiB",
	} {
		if _, err := form.Read(path, experiments.Words()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("experiment %s: got %v, want %s", path, err, want)
		}
		if path == dir {
			continue // its files are read
		}
		if _, err := parseManifests(dir, path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("manifests %s: got %v, want %s", path, err, want)
		}
	}
}
