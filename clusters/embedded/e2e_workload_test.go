//go:build e2e

package embedded

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
)

// deploy creates an application, a NodePort Service (30080) and an Ingress.
func deploy(t testing.TB, c kubernetes.Interface, image string, replicas int32) {
	t.Helper()
	labels := map[string]string{"app": "app"}
	meta := metav1.ObjectMeta{Name: "app"}
	no := false
	d := &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas,
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			DNSPolicy:                    corev1.DNSDefault,
			AutomountServiceAccountToken: &no,
			Containers: []corev1.Container{{
				Name: "app", Image: image, ImagePullPolicy: corev1.PullNever,
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("20m")}},
				ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
					HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8080)},
				}},
			}},
		}},
	}}
	if _, err := c.AppsV1().Deployments("default").Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeNodePort, Selector: labels,
		Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080), NodePort: 30080}},
	}}
	if _, err := c.CoreV1().Services("default").Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	class, exact := IngressClass, networkingv1.PathTypePrefix
	i := &networkingv1.Ingress{ObjectMeta: meta, Spec: networkingv1.IngressSpec{
		IngressClassName: &class,
		Rules: []networkingv1.IngressRule{{IngressRuleValue: networkingv1.IngressRuleValue{
			HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{
				Path: "/", PathType: &exact,
				Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
					Name: "app", Port: networkingv1.ServiceBackendPort{Number: 80},
				}},
			}}},
		}}},
	}}
	if _, err := c.NetworkingV1().Ingresses("default").Create(t.Context(), i, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func scale(t testing.TB, c kubernetes.Interface, replicas int32) {
	t.Helper()
	s, err := c.AppsV1().Deployments("default").GetScale(t.Context(), "app", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.Spec.Replicas = replicas
	if _, err := c.AppsV1().Deployments("default").UpdateScale(t.Context(), "app", s, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// waitReplicas waits until exactly n pods exist and all are ready, and returns
// how long it took.
func waitReplicas(t testing.TB, c kubernetes.Interface, n int32) time.Duration {
	t.Helper()
	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), max(time.Minute, time.Duration(n)*time.Second))
	defer cancel()
	err := poll(ctx, func(ctx context.Context) error {
		d, err := c.AppsV1().Deployments("default").Get(ctx, "app", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if s := d.Status; s.ReadyReplicas != n || s.Replicas != n {
			return fmt.Errorf("%d pods, %d ready; want %d", s.Replicas, s.ReadyReplicas, n)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return time.Since(start)
}
