package controller

import (
	"cmp"
	"regexp"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
)

// IngressClass is the class of the Ingresses that the load balancer serves.
const IngressClass = "alb"

// legacyClassAnnotation named the class before spec.ingressClassName did. It
// wins (controller, pkg/ingress/group_loader.go).
const legacyClassAnnotation = "kubernetes.io/ingress.class"

func ours(ing *networkingv1.Ingress) bool {
	if class, ok := ing.Annotations[legacyClassAnnotation]; ok {
		return class == IngressClass
	}
	return ing.Spec.IngressClassName != nil && *ing.Spec.IngressClassName == IngressClass
}

// groupKey names the Ingresses that share a load balancer: one with its own, or
// all with the same group.name, which have no namespace.
type groupKey struct{ namespace, name string }

func (k groupKey) explicit() bool { return k.namespace == "" }

// loadBalancer is the name of the load balancer. No namespace can be called
// group.name.
func (k groupKey) loadBalancer() string {
	if k.explicit() {
		return "group.name/" + k.name
	}
	return k.namespace + "/" + k.name
}

func (k groupKey) String() string { return k.loadBalancer() }

// groupName allows what the original does (controller,
// pkg/ingress/group_loader.go).
var groupName = regexp.MustCompile(`^([a-z0-9][-a-z0-9.]{0,61})?[a-z0-9]$`)

// checkGroupName is the error of a wrong group.name.
func checkGroupName(ing *networkingv1.Ingress) error {
	name, ok := annotationsOf(ing.Annotations)["group.name"]
	if ok && !groupName.MatchString(name) {
		return badValue(annotationPrefix+"group.name", name, "at most 63 of a-z, 0-9, - and ., with a letter or digit at both ends")
	}
	return nil
}

// keyOf is the group of an Ingress. One with a wrong group.name is alone, so
// that its mistake is told to nobody else.
func keyOf(ing *networkingv1.Ingress) groupKey {
	if name, ok := annotationsOf(ing.Annotations)["group.name"]; ok && checkGroupName(ing) == nil {
		return groupKey{name: name}
	}
	return groupKey{ing.Namespace, ing.Name}
}

// ingressGroup is a group with its members in the order of their rules.
type ingressGroup struct {
	key     groupKey
	members []*networkingv1.Ingress
}

// newIngressGroup sorts by group.order, then by namespace/name.
func newIngressGroup(key groupKey, members []*networkingv1.Ingress) (ingressGroup, error) {
	type ordered struct {
		order   int
		ingress *networkingv1.Ingress
	}
	var all []ordered
	for _, ing := range members {
		order, err := annotationsOf(ing.Annotations).number("group.order", 0, -1000, 1000)
		if err != nil {
			return ingressGroup{key, members}, err
		}
		all = append(all, ordered{order, ing})
	}
	slices.SortFunc(all, func(x, y ordered) int {
		return cmp.Or(cmp.Compare(x.order, y.order), cmp.Compare(x.ingress.Namespace+"/"+x.ingress.Name, y.ingress.Namespace+"/"+y.ingress.Name))
	})
	g := ingressGroup{key: key}
	for _, o := range all {
		g.members = append(g.members, o.ingress)
	}
	return g, nil
}
