package kube

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lameduck/harness"
)

const (
	// blueGreen is the scenario for which a trial is deployed with colours.
	blueGreen = "blue-green"

	colourLabel = "lameduck.dev/colour"
	blue        = "blue"
	green       = "green"
	// greenSuffix makes the names of Green's objects from Blue's.
	greenSuffix = "-green"
	// greenVersion is what Green's answers carry instead of the default v1.
	greenVersion = "v2"

	// weightsAnnotation holds the action of the backend blueGreen, as useAnnotation
	// says in place of its port (AWS Load Balancer Controller, guide, Ingress
	// annotations, actions.${action-name}).
	weightsAnnotation = "alb.ingress.kubernetes.io/actions." + blueGreen
	useAnnotation     = "use-annotation"
	allTraffic        = 100
)

// forward is the action with which two target groups share the traffic.
type forward struct {
	Type          string        `json:"type"`
	ForwardConfig forwardConfig `json:"forwardConfig"`
}

type forwardConfig struct {
	TargetGroups []weightedGroup `json:"targetGroups"`
}

type weightedGroup struct {
	ServiceName string `json:"serviceName"`
	ServicePort int32  `json:"servicePort"`
	Weight      int    `json:"weight"`
}

// colour makes the Deployment and the Service of the workload Blue's, so that
// Green can come beside them. With ShiftWeights Green has a Service of its own
// from the beginning: a rule must not name one that there is not.
func (o *Objects) colour(s harness.Setup) error {
	if s.Scenario.Name != blueGreen {
		return nil
	}
	deployment, service := o.Names.Deployment, o.Names.Service
	d := slices.IndexFunc(o.Deployments, func(d *appsv1.Deployment) bool { return d.Name == deployment })
	v := slices.IndexFunc(o.Services, func(v *corev1.Service) bool { return v.Name == service })
	if d < 0 || v < 0 {
		return fmt.Errorf("scenario %s needs a Deployment %s and a Service %s", blueGreen, deployment, service)
	}
	paint(o.Deployments[d], blue)
	o.Services[v] = serviceOf(o.Services[v], service, blue)
	if s.Scenario.Shift != harness.ShiftWeights {
		return nil
	}
	o.Services = append(o.Services, serviceOf(o.Services[v], service+greenSuffix, green))
	return weigh(o.Ingress, service)
}

// paint gives a Deployment a colour: to itself, its pods, and what selects them.
func paint(d *appsv1.Deployment, colour string) {
	with := func(labels map[string]string) map[string]string {
		labels = maps.Clone(labels)
		if labels == nil {
			labels = make(map[string]string)
		}
		labels[colourLabel] = colour
		return labels
	}
	selector := d.Spec.Selector.DeepCopy()
	if selector == nil {
		selector = &metav1.LabelSelector{}
	}
	selector.MatchLabels = with(selector.MatchLabels)
	d.Labels, d.Spec.Selector, d.Spec.Template.Labels = with(d.Labels), selector, with(d.Spec.Template.Labels)
	// Each colour is spread by itself, else Green would go where Blue is not.
	constraints := slices.Clone(d.Spec.Template.Spec.TopologySpreadConstraints)
	for i, c := range constraints {
		if c.LabelSelector != nil {
			spread := c.LabelSelector.DeepCopy()
			spread.MatchLabels = with(spread.MatchLabels)
			constraints[i].LabelSelector = spread
		}
	}
	d.Spec.Template.Spec.TopologySpreadConstraints = constraints
}

// greenOf is the Deployment Green, like Blue as it is now. The built-in
// application says another version.
func greenOf(b *appsv1.Deployment, builtin bool) *appsv1.Deployment {
	g := &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Name: b.Name + greenSuffix, Namespace: b.Namespace, Labels: b.Labels},
		Spec:       *b.Spec.DeepCopy(),
	}
	paint(g, green)
	if builtin {
		c := &g.Spec.Template.Spec.Containers[0]
		c.Args = append(c.Args, "--version="+greenVersion)
	}
	return g
}

// serviceOf is a Service like s for the pods of one colour.
func serviceOf(s *corev1.Service, name, colour string) *corev1.Service {
	s = s.DeepCopy()
	if s.Name != name {
		// What the cluster gives to each Service.
		s.Spec.ClusterIP, s.Spec.ClusterIPs, s.Spec.HealthCheckNodePort = "", nil, 0
		for i := range s.Spec.Ports {
			s.Spec.Ports[i].NodePort = 0
		}
	}
	s.Name = name
	if s.Spec.Selector == nil {
		s.Spec.Selector = make(map[string]string)
	}
	s.Spec.Selector[colourLabel] = colour
	return s
}

// weigh lets the Ingress's paths to service share their traffic between it and
// Green's, at first all to Blue.
func weigh(ing *networkingv1.Ingress, service string) error {
	var port int32
	for _, rule := range ing.Spec.Rules {
		if rule.HTTP == nil {
			continue
		}
		for i := range rule.HTTP.Paths {
			backend := rule.HTTP.Paths[i].Backend.Service
			if backend == nil || backend.Name != service {
				continue
			}
			port = backend.Port.Number
			rule.HTTP.Paths[i].Backend.Service = &networkingv1.IngressServiceBackend{
				Name: blueGreen, Port: networkingv1.ServiceBackendPort{Name: useAnnotation},
			}
		}
	}
	if port == 0 {
		return fmt.Errorf("no path of Ingress %s leads to a port number of Service %s", ing.Name, service)
	}
	action := forward{Type: "forward", ForwardConfig: forwardConfig{TargetGroups: []weightedGroup{
		{service, port, allTraffic}, {service + greenSuffix, port, 0},
	}}}
	text, err := json.Marshal(action)
	if err != nil {
		return fmt.Errorf("make annotation %s: %w", weightsAnnotation, err)
	}
	annotate(ing, weightsAnnotation, string(text))
	return nil
}

// shifted is the action with all traffic to Green, the last of its groups.
func shifted(text string) (string, error) {
	var action forward
	if err := json.Unmarshal([]byte(text), &action); err != nil {
		return "", fmt.Errorf("read annotation %s: %w", weightsAnnotation, err)
	}
	groups := action.ForwardConfig.TargetGroups
	for i := range groups {
		groups[i].Weight = 0
		if i == len(groups)-1 {
			groups[i].Weight = allTraffic
		}
	}
	b, err := json.Marshal(action)
	return string(b), err
}
