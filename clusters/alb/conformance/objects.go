package conformance

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	prefix       = "alb.ingress.kubernetes.io/"
	ingressClass = "alb"
)

// annotated is an Ingress's annotations, without their prefix.
type annotated map[string]string

func node(name, addr string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeHostName, Address: name},
				{Type: corev1.NodeInternalIP, Address: addr},
			},
		},
	}
}

func service(name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, ClusterIP: "198.18.255.1", Selector: map[string]string{"app": name},
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080), NodePort: 30080}},
		},
	}
}

func ingress(name string, annotations annotated) *networkingv1.Ingress {
	class, prefixPath := ingressClass, networkingv1.PathTypePrefix
	ing := &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Annotations: map[string]string{}},
		Spec: networkingv1.IngressSpec{
			IngressClassName: &class,
			Rules: []networkingv1.IngressRule{{IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
				Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: &prefixPath, Backend: backend("app")}},
			}}}},
		},
	}
	for key, value := range annotations {
		ing.Annotations[prefix+key] = value
	}
	return ing
}

func backend(service string) networkingv1.IngressBackend {
	return networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
		Name: service, Port: networkingv1.ServiceBackendPort{Number: 80},
	}}
}

// podIP is the address of the nth pod of a Service.
func podIP(n int) string { return fmt.Sprintf("198.18.%d.%d", n>>8, n&255) }

// podTarget is its target.
func podTarget(n int) string { return podIP(n) + ":8080" }

func pod(n int, gates ...corev1.PodConditionType) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("app-%d", n), Labels: map[string]string{"app": "app"}},
		Spec:       corev1.PodSpec{NodeName: "a"},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: podIP(n), PodIPs: []corev1.PodIP{{IP: podIP(n)}},
			Conditions: []corev1.PodCondition{
				{Type: corev1.PodReady, Status: corev1.ConditionTrue},
				{Type: corev1.ContainersReady, Status: corev1.ConditionTrue},
			},
		},
	}
	for _, gate := range gates {
		p.Spec.ReadinessGates = append(p.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: gate})
		p.Status.Conditions[0].Status = corev1.ConditionFalse
	}
	return p
}

// slice lists pods as endpoints of Service app. ready and terminating are
// those that are not as usual.
func slice(pods []int, edits ...func(n int, e *discoveryv1.Endpoint)) *discoveryv1.EndpointSlice {
	port, name, protocol := int32(8080), "http", corev1.ProtocolTCP
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "ns", Name: "app-1", Labels: map[string]string{discoveryv1.LabelServiceName: "app"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}},
	}
	for _, n := range pods {
		yes, no := true, false
		e := discoveryv1.Endpoint{
			Addresses:  []string{podIP(n)},
			Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: fmt.Sprintf("app-%d", n)},
		}
		for _, edit := range edits {
			edit(n, &e)
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}
