package form

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"lameduck/harness"
)

const workloadPath = "spec.workload"

// app is the user's own application; nil: the built-in one.
func (d *decoder) app(w workload, dir string) *harness.App {
	var kinds []string
	for _, kind := range []string{"builtin", "image", "manifests"} {
		if d.has(join(workloadPath, kind)) {
			kinds = append(kinds, kind)
		}
	}
	if len(kinds) > 1 {
		d.at(join(workloadPath, kinds[1]), "is there as well as %s: want one of builtin, image, manifests", kinds[0])
		return nil
	}
	kind := strings.Join(kinds, "")
	d.checkUse(kind)
	path := cmp.Or(w.Path, "/")
	app := &harness.App{Port: w.Port, Path: path, Ready: cmp.Or(w.ReadinessPath, path)}
	switch kind {
	case "image":
		app.Image, app.Args = w.Image.Name, w.Image.Args
		if w.Image.Archive != "" || w.Image.Binary != "" {
			app.Images = d.images([]imageSource{{w.Image.Name, w.Image.Archive, w.Image.Binary}}, dir,
				func(int) string { return join(workloadPath, "image") })
		}
	case "manifests":
		app.Service = w.Service
		app.Images = d.images(w.Images, dir, func(i int) string { return fmt.Sprintf("%s.images[%d]", workloadPath, i) })
		app.Manifests = d.manifests(w, dir)
	default:
		return nil
	}
	return app
}

// checkUse notes fields that a kind of application needs and has not, or has and
// does not use.
func (d *decoder) checkUse(kind string) {
	needs := map[string][]string{"image": {"port"}, "manifests": {"service", "port"}}
	for _, field := range needs[kind] {
		if !d.has(join(workloadPath, field)) {
			d.at(join(workloadPath, field), "is missing: want it with %s", kind)
		}
	}
	of := map[string][]string{
		"service": {"manifests"}, "images": {"manifests"},
		"port": {"image", "manifests"}, "path": {"image", "manifests"}, "readinessPath": {"image", "manifests"},
	}
	for field, kinds := range of {
		if d.has(join(workloadPath, field)) && !slices.Contains(kinds, kind) {
			d.at(join(workloadPath, field), "has no effect here: want it with %s only", strings.Join(kinds, " or "))
		}
	}
}

// images are those that come from files.
func (d *decoder) images(sources []imageSource, dir string, path func(i int) string) []harness.ImageSource {
	var out []harness.ImageSource
	for i, s := range sources {
		if (s.Archive == "") == (s.Binary == "") {
			d.at(path(i), "want one of archive and binary")
			continue
		}
		image := harness.ImageSource{Name: s.Name}
		for _, f := range []struct {
			name, from string
			to         *string
		}{{"archive", s.Archive, &image.Archive}, {"binary", s.Binary, &image.Binary}} {
			if f.from == "" {
				continue
			}
			*f.to = beside(dir, f.from)
			if info, err := os.Stat(*f.to); err != nil {
				d.at(join(path(i), f.name), "%v: want a file, relative to the experiment file", err)
			} else if !info.Mode().IsRegular() {
				d.at(join(path(i), f.name), "%s is %s: want a file", *f.to, modeOf(info))
			}
		}
		out = append(out, image)
	}
	return out
}

// manifests are the user's objects as YAML documents.
func (d *decoder) manifests(w workload, dir string) string {
	field := join(workloadPath, "manifests")
	text, err := render(beside(dir, w.Manifests))
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: want a file, a directory of files or a kustomize directory, relative to the experiment file", err)
	}
	if err != nil {
		d.at(field, "%v", err)
		return ""
	}
	objects, err := manifestsOf(text)
	if err != nil {
		d.at(field, "%s: %v: want Kubernetes objects as YAML", w.Manifests, err)
		return ""
	}
	var services []string
	var ports []int
	deployments := 0
	for _, o := range objects {
		switch o.Kind {
		case "Deployment":
			deployments++
		case "Service":
			services = append(services, o.Metadata.Name)
			if o.Metadata.Name == w.Service {
				for _, p := range o.Spec.Ports {
					ports = append(ports, p.Port)
				}
			}
		}
	}
	if deployments == 0 {
		d.at(field, "%s has no Deployment: want the application's", w.Manifests)
	}
	if w.Service != "" && !slices.Contains(services, w.Service) {
		d.at(join(workloadPath, "service"), "is %q: want a Service of the manifests: %s", w.Service, cmp.Or(strings.Join(services, ", "), "there is none"))
	} else if w.Port != 0 && w.Service != "" && !slices.Contains(ports, w.Port) {
		d.at(join(workloadPath, "port"), "is %d: want a port of Service %s: %s", w.Port, w.Service, strings.Trim(fmt.Sprint(ports), "[]"))
	}
	return text
}

// manifest is what has to be known of a manifest.
type manifest struct {
	Kind     string `yaml:"kind"`
	Metadata struct {
		Name string `yaml:"name"`
	} `yaml:"metadata"`
	Spec struct {
		Ports []struct {
			Port int `yaml:"port"`
		} `yaml:"ports"`
	} `yaml:"spec"`
	Items []yaml.Node `yaml:"items"` // of a List
}

// manifestsOf reads YAML documents; Lists are taken apart.
func manifestsOf(text string) ([]manifest, error) {
	decoder := yaml.NewDecoder(strings.NewReader(text))
	var objects []manifest
	for {
		var node yaml.Node
		if err := decoder.Decode(&node); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, err
		}
		o, err := manifestOf(&node)
		if err != nil {
			return nil, err
		}
		if o.Items == nil {
			objects = append(objects, o)
		}
		for _, item := range o.Items {
			inner, err := manifestOf(&item)
			if err != nil {
				return nil, err
			}
			objects = append(objects, inner)
		}
	}
}

func manifestOf(node *yaml.Node) (o manifest, err error) {
	// Fields of other kinds of objects may have the same names and other types.
	if err := node.Decode(&o); err != nil && (o.Kind == "Service" || o.Kind == "") {
		return o, err
	}
	return o, nil
}

// render reads manifests: a file, the files of a directory, or what kustomize
// makes of it.
func render(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		data, err := readFile(path)
		return string(data), err
	}
	if isKustomize(path) {
		return kustomize(path)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return "", err
	}
	var docs [][]byte
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); e.IsDir() || (ext != ".yaml" && ext != ".yml" && ext != ".json") {
			continue
		}
		data, err := readFile(filepath.Join(path, e.Name()))
		if err != nil {
			return "", err
		}
		docs = append(docs, bytes.TrimSpace(data))
	}
	if len(docs) == 0 {
		return "", fmt.Errorf("%s has no .yaml, .yml or .json file", path)
	}
	return string(bytes.Join(docs, []byte("\n---\n"))) + "\n", nil
}

func beside(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}
