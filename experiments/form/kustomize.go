package form

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// isKustomize says whether a directory has a kustomization file.
func isKustomize(dir string) bool {
	return slices.ContainsFunc(konfig.RecognizedKustomizationFileNames(), func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	})
}

// kustomize is what kustomize makes of a directory. It would fetch URLs and run
// git for what a kustomization names: that is refused before.
func kustomize(dir string) (string, error) {
	// A relative path can look like a repository, such as github.com/org/repo.
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	w := localOnly{seen: make(map[string]bool)}
	if err := w.directory(dir, false); err != nil {
		return "", fmt.Errorf("kustomize: %w", err)
	}
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return "", fmt.Errorf("kustomize: %w", err)
	}
	text, err := made.AsYaml()
	return string(text), err
}

// localOnly walks kustomizations and refuses what is not a local path.
type localOnly struct{ seen map[string]bool }

// directory walks a kustomization. plugins: its resources configure generators,
// transformers or validators, which can name paths too.
func (w localOnly) directory(dir string, plugins bool) error {
	// kustomize takes paths relative to where links lead.
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	at := fmt.Sprint(dir, plugins)
	if w.seen[at] {
		return nil
	}
	w.seen[at] = true
	for _, name := range konfig.RecognizedKustomizationFileNames() {
		file := filepath.Join(dir, name)
		if _, err := os.Stat(file); err != nil {
			continue
		}
		data, err := readFile(file)
		if err != nil {
			return err
		}
		var k types.Kustomization
		if err := k.Unmarshal(data); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		k.FixKustomization()
		if err := w.kustomization(k, dir, plugins); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

func (w localOnly) kustomization(k types.Kustomization, dir string, plugins bool) error {
	if len(k.HelmCharts) > 0 || len(k.HelmChartInflationGenerator) > 0 {
		return errors.New("helmCharts: want manifests that helm template wrote: charts are not rendered")
	}
	for _, list := range []struct {
		field   string
		entries []string
		plugins bool
	}{
		//lint:ignore SA1019 kustomize still reads them
		{"resources", slices.Concat(k.Resources, k.Bases), plugins},
		{"components", k.Components, plugins},
		{"generators", k.Generators, true}, {"transformers", k.Transformers, true}, {"validators", k.Validators, true},
	} {
		for _, entry := range list.entries {
			if err := w.entry(dir, entry, list.plugins); err != nil {
				return fmt.Errorf("%s: %w", list.field, err)
			}
		}
	}
	for field, paths := range filesOf(k) {
		for _, path := range paths {
			if _, err := local(dir, path); err != nil {
				return fmt.Errorf("%s: %w", field, err)
			}
		}
	}
	return nil
}

// filesOf are the files that a kustomization names besides other kustomizations
// and resources, by field.
func filesOf(k types.Kustomization) map[string][]string {
	files := map[string][]string{"crds": k.Crds, "configurations": k.Configurations}
	add := func(field string, paths ...string) {
		files[field] = append(files[field], slices.DeleteFunc(paths, func(p string) bool { return p == "" })...)
	}
	add("openapi", k.OpenAPI["path"])
	//lint:ignore SA1019 kustomize still reads them
	for _, p := range k.PatchesStrategicMerge {
		if !inline(string(p)) {
			add("patchesStrategicMerge", string(p))
		}
	}
	//lint:ignore SA1019 kustomize still reads them
	for _, p := range slices.Concat(k.Patches, k.PatchesJson6902) {
		add("patches", p.Path)
	}
	for _, r := range k.Replacements {
		add("replacements", r.Path)
	}
	of := func(field string, s types.KvPairSources) {
		add(field, slices.Concat(s.EnvSources, []string{s.EnvSource})...)
		for _, f := range s.FileSources {
			if _, path, named := strings.Cut(f, "="); named {
				f = path
			}
			add(field, f)
		}
	}
	for _, g := range k.ConfigMapGenerator {
		of("configMapGenerator", g.KvPairSources)
	}
	for _, g := range k.SecretGenerator {
		of("secretGenerator", g.KvPairSources)
	}
	return files
}

// entry is one that can be a file, a kustomization or, of a plugin, YAML.
func (w localOnly) entry(dir, entry string, plugins bool) error {
	if plugins && inline(entry) {
		return remoteIn([]byte(entry))
	}
	info, err := local(dir, entry)
	if err != nil {
		return err
	}
	path := beside(dir, entry)
	if info.IsDir() {
		return w.directory(path, plugins)
	}
	if !plugins {
		return nil
	}
	data, err := readFile(path)
	if err != nil {
		return err
	}
	return remoteIn(data)
}

// inline says whether an entry is YAML and no path: neither could be a URL.
func inline(entry string) bool {
	return strings.Contains(entry, "\n") || strings.HasPrefix(strings.TrimSpace(entry), "{")
}

// remote is what kustomize takes for a URL or a repository even if there is a
// path of that name.
var remote = regexp.MustCompile(`(?i)://|^git::|^(www\.)?github\.com[/:]|^[^/]+@[^/]+[/:]`)

// local looks at a path of a kustomization in dir.
func local(dir, path string) (os.FileInfo, error) {
	refused := fmt.Errorf("%q: want a local path: nothing is fetched", path)
	if remote.MatchString(path) {
		return nil, refused
	}
	info, err := os.Stat(beside(dir, path))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w (%v)", refused, err) // it is not the manifests that are missing
	case info.IsDir():
		return info, nil
	default:
		return info, checkFile(path, info)
	}
}

// remoteIn refuses documents that have a URL as a value: a built-in generator or
// transformer could be told by it to fetch something.
func remoteIn(data []byte) error {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var node yaml.Node
		if err := decoder.Decode(&node); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if len(node.Content) == 0 {
			continue // nothing but comments
		}
		if node.Content[0].Kind != yaml.MappingNode {
			return fmt.Errorf("line %d: is %s: want a mapping", node.Line, kindOf(node.Content[0]))
		}
		if url := firstRemote(&node); url != "" {
			return fmt.Errorf("line %d: %q: want a local path: nothing is fetched", node.Line, url)
		}
	}
}

func firstRemote(n *yaml.Node) string {
	// What an alias stands for is looked at where it is.
	if n.Kind == yaml.ScalarNode && !strings.Contains(n.Value, "\n") && remote.MatchString(n.Value) {
		return n.Value
	}
	for _, inner := range n.Content {
		if url := firstRemote(inner); url != "" {
			return url
		}
	}
	return ""
}
