package kube

import (
	"bytes"
	"encoding/json"
	"fmt"

	"sigs.k8s.io/yaml"
)

// All returns the objects in an order in which they can be created.
func (o Objects) All() []any {
	all := []any{o.Namespace}
	for _, u := range o.Others {
		all = append(all, u)
	}
	if o.Metric != nil {
		all = append(all, o.Metric)
	}
	for _, s := range o.Services {
		all = append(all, s)
	}
	all = append(all, o.Ingress)
	for _, d := range o.Deployments {
		all = append(all, d)
	}
	if all = append(all, o.HPA); o.Budget != nil {
		all = append(all, o.Budget)
	}
	return all
}

// YAML is what kubectl apply would take: the objects without their status.
func (o Objects) YAML() ([]byte, error) {
	var out bytes.Buffer
	for i, object := range o.All() {
		text, err := json.Marshal(object)
		if err != nil {
			return nil, fmt.Errorf("write manifest: %w", err)
		}
		var fields map[string]any
		if err := json.Unmarshal(text, &fields); err != nil {
			return nil, fmt.Errorf("write manifest: %w", err)
		}
		delete(fields, "status")
		dropEmpty(fields)
		document, err := yaml.Marshal(fields)
		if err != nil {
			return nil, fmt.Errorf("write manifest: %w", err)
		}
		if i > 0 {
			out.WriteString("---\n")
		}
		out.Write(document)
	}
	return out.Bytes(), nil
}

// dropEmpty removes the empty objects that Go's types write for what is unset.
func dropEmpty(fields map[string]any) {
	for key, value := range fields {
		switch v := value.(type) {
		case nil:
			delete(fields, key)
		case map[string]any:
			if dropEmpty(v); len(v) == 0 {
				delete(fields, key)
			}
		case []any:
			for _, item := range v {
				if m, ok := item.(map[string]any); ok {
					dropEmpty(m)
				}
			}
		}
	}
}
