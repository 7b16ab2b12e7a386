package controller

import (
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
)

// sortPaths orders one rule's paths as the controller does: exact ones, then
// prefixes, the longest first, then the others as they are given (controller,
// pkg/ingress/model_build_listener_rules.go).
func sortPaths(paths []networkingv1.HTTPIngressPath) []networkingv1.HTTPIngressPath {
	rank := func(p networkingv1.HTTPIngressPath) int {
		switch pathType(p) {
		case networkingv1.PathTypeExact:
			return 0
		case networkingv1.PathTypePrefix:
			return 1
		}
		return 2
	}
	sorted := slices.Clone(paths)
	slices.SortStableFunc(sorted, func(x, y networkingv1.HTTPIngressPath) int {
		if d := rank(x) - rank(y); d != 0 {
			return d
		}
		if rank(x) == 1 {
			return len(y.Path) - len(x.Path)
		}
		return 0
	})
	return sorted
}

func pathType(p networkingv1.HTTPIngressPath) networkingv1.PathType {
	if p.PathType == nil {
		return networkingv1.PathTypeImplementationSpecific
	}
	return *p.PathType
}

// pathPatterns are the patterns of a listener rule for a path: ? and * have a
// meaning in ImplementationSpecific ones only. Without a path there are none.
func pathPatterns(p networkingv1.HTTPIngressPath) ([]string, error) {
	kind := pathType(p)
	if kind != networkingv1.PathTypeImplementationSpecific && strings.ContainsAny(p.Path, "*?") {
		return nil, fmt.Errorf("path %q: want no * or ? with pathType %s", p.Path, kind)
	}
	switch {
	case p.Path == "":
		return nil, nil
	case kind == networkingv1.PathTypePrefix && p.Path == "/":
		return []string{"/*"}, nil
	case kind == networkingv1.PathTypePrefix:
		path := strings.TrimSuffix(p.Path, "/")
		return []string{path, path + "/*"}, nil
	}
	return []string{p.Path}, nil
}
