package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"

	"lameduck/clusters"
	"lameduck/harness"
)

func coloured(shift string) func(*harness.Setup) {
	return func(s *harness.Setup) {
		s.Workload.Replicas = 2
		s.Scenario = harness.ScenarioSpec{Name: blueGreen, Shift: shift}
		s.LoadBalancer.WeightLag = harness.DurationRange{Min: 10 * time.Second, Max: 20 * time.Second}
	}
}

func TestManifestsHaveColours(t *testing.T) {
	for shift, want := range map[string]string{
		"": "app= control=", harness.ShiftSelector: "app=blue control=", harness.ShiftWeights: "app=blue control= app-green=green",
	} {
		trial := testTrial()
		if shift != "" {
			coloured(shift)(&trial.Setup)
		}
		o, err := Manifests(trial, "target:1", 20007)
		if err != nil {
			t.Fatal(err)
		}
		var selectors []string
		for _, s := range o.Services {
			selectors = append(selectors, s.Name+"="+s.Spec.Selector[colourLabel])
		}
		if got := strings.Join(selectors, " "); got != want {
			t.Errorf("shift %q: Services select %s, want %s", shift, got, want)
		}
		colour := ""
		if shift != "" {
			colour = blue
		}
		app, control := o.Deployments[0], o.Deployments[1]
		for where, got := range map[string]string{
			"pods": app.Spec.Template.Labels[colourLabel], "selector": app.Spec.Selector.MatchLabels[colourLabel],
			"spread": app.Spec.Template.Spec.TopologySpreadConstraints[0].LabelSelector.MatchLabels[colourLabel],
		} {
			if got != colour {
				t.Errorf("shift %q: colour of Blue's %s is %q, want %q", shift, where, got, colour)
			}
		}
		if control.Spec.Template.Labels[colourLabel] != "" {
			t.Errorf("shift %q: the control target has a colour", shift)
		}
		backend := o.Ingress.Spec.Rules[0].HTTP.Paths[1].Backend.Service
		action := o.Ingress.Annotations["alb.ingress.kubernetes.io/actions."+backend.Name]
		if shift != harness.ShiftWeights {
			if backend.Name != appName || action != "" {
				t.Errorf("shift %q: backend %v, action %q", shift, backend, action)
			}
			continue
		}
		if backend.Port.Name != "use-annotation" {
			t.Errorf("shift %q: backend %v", shift, backend)
		}
		action += " " + o.Ingress.Annotations["alb.lameduck.dev/weight-lag"]
		if want := `{"type":"forward","forwardConfig":{"targetGroups":[{"serviceName":"app","servicePort":80,"weight":100},{"serviceName":"app-green","servicePort":80,"weight":0}]}} 10s..20s`; action != want {
			t.Errorf("action and lag are %s, want %s", action, want)
		}
	}
}

func TestGreenOf(t *testing.T) {
	two := int32(2)
	own := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "shop", Namespace: "ns"}, Spec: appsv1.DeploymentSpec{
		Replicas: &two, Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Exists"}}},
	}}
	own.Spec.Template.Labels = map[string]string{"a": "b"}
	own.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Args: []string{"--x"}}}
	paint(own, blue)
	for builtin, want := range map[bool]string{true: "--x --version=v2", false: "--x"} {
		g := greenOf(own, builtin)
		if got := strings.Join(g.Spec.Template.Spec.Containers[0].Args, " "); got != want || g.Name != "shop-green" || *g.Spec.Replicas != 2 {
			t.Errorf("built-in %t: Green is %s with %s", builtin, g.Name, got)
		}
		if g.Spec.Selector.MatchLabels[colourLabel] != green || len(g.Spec.Selector.MatchExpressions) != 1 || g.Spec.Template.Labels["a"] != "b" {
			t.Errorf("Green selects %v, has labels %v", g.Spec.Selector, g.Spec.Template.Labels)
		}
	}
	if own.Spec.Template.Labels[colourLabel] != blue || own.Spec.Selector.MatchLabels[colourLabel] != blue {
		t.Error("making Green has changed Blue")
	}
}

// endpointSlice is one of the Service app.
func endpointSlice(pods ...string) discoveryv1.EndpointSlice {
	s := discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
		Name: "app-1", Namespace: testNamespace, Labels: map[string]string{discoveryv1.LabelServiceName: appName},
	}}
	for _, p := range pods {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{"198.18.1.1"}, TargetRef: &corev1.ObjectReference{Name: p},
			Conditions: discoveryv1.EndpointConditions{Ready: new(!strings.HasPrefix(p, "unready"))},
		})
	}
	return s
}

func TestNotOnly(t *testing.T) {
	var pods []*corev1.Pod
	for _, name := range []string{"g1", "g2"} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
		makeReady(p)
		pods = append(pods, p)
	}
	for _, c := range []struct {
		endpoints [][]string // by slice
		want      string
	}{
		{[][]string{{"g1"}, {"g2"}}, ""},
		{[][]string{{"g1", "g2", "b1"}}, "pod b1 is still an endpoint"},
		{[][]string{{"g1", "g2", "unready-b1"}}, "pod unready-b1 is still an endpoint"},
		{[][]string{{"g1"}}, "pod g2 is not an endpoint yet"},
	} {
		var all []discoveryv1.EndpointSlice
		for _, s := range c.endpoints {
			all = append(all, endpointSlice(s...))
		}
		if got := notOnly(all, pods); got != c.want {
			t.Errorf("%v: %q, want %q", c.endpoints, got, c.want)
		}
	}
	if got := notOnly(nil, nil); got != "Green has no ready pod" {
		t.Error(got)
	}
}

// deletesPods lets the pods of a Deployment go some time after it.
func deletesPods(t *testing.T, c *fakeCluster, after time.Duration) {
	c.before("delete", "deployments", func(a clienttesting.Action) error {
		o, err := c.Tracker().Get(a.GetResource(), a.GetNamespace(), a.(clienttesting.DeleteAction).GetName())
		if err != nil {
			return err
		}
		d := o.(*appsv1.Deployment)
		time.AfterFunc(after, func() {
			for i := range *d.Spec.Replicas {
				c.replace(t, fmt.Sprintf("%s-%d", d.Name, i), "")
			}
		})
		return nil
	})
}

func TestCutoverBySelector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d, rec := verbs(t, nil, coloured(harness.ShiftSelector))
		_, err := d.DeleteBlue(t.Context())
		checkError(t, err, "cut over first")
		if err := d.AddGreen(testContext(t)); err != nil {
			t.Fatal(err)
		}
		names := func() string {
			live, err := d.Observe(t.Context())
			if err != nil {
				t.Error(err)
			}
			var all []string
			for _, p := range live.Pods {
				all = append(all, p.Name)
			}
			return strings.Join(all, " ")
		}
		if got := names(); got != "app-0 app-1" || d.WaitPods(testContext(t), 2) != nil {
			t.Errorf("Blue is %q", got)
		}
		// The endpoints follow the selector in two steps.
		slices := c.DiscoveryV1().EndpointSlices(testNamespace)
		s := endpointSlice("app-0", "app-1")
		if _, err := slices.Create(t.Context(), &s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		update := func(pods ...string) {
			s := endpointSlice(pods...)
			if _, err := slices.Update(context.Background(), &s, metav1.UpdateOptions{}); err != nil {
				t.Error(err)
			}
		}
		c.before("patch", "services", func(a clienttesting.Action) error {
			if got := string(a.(clienttesting.PatchAction).GetPatch()); got != `{"spec":{"selector":{"lameduck.dev/colour":"green"}}}` {
				t.Errorf("patch %s", got)
			}
			time.AfterFunc(time.Second, func() { update("app-1", "app-green-0", "app-green-1") })
			time.AfterFunc(3*time.Second, func() { update("app-green-0", "app-green-1") })
			return nil
		})
		start := time.Now()
		if err := d.Cutover(testContext(t)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took < 3*time.Second {
			t.Errorf("confirmed after %s, while Blue had endpoints", took)
		}
		if got := names(); got != "app-green-0 app-green-1" {
			t.Errorf("Green is %q", got)
		}
		deletesPods(t, c, 5*time.Second)
		start = time.Now()
		pods, err := d.DeleteBlue(testContext(t))
		if err != nil || pods != 2 || time.Since(start) < 5*time.Second {
			t.Errorf("%d pods deleted in %s, error %v", pods, time.Since(start), err)
		}
		if left := c.left(t, testNamespace); fmt.Sprint(left) != "[3 Pod 2 Service 2 Deployment 1 Ingress]" {
			t.Errorf("left: %v", left)
		}
		if rec.kinds()[harness.EventCutover] != 1 || rec.kinds()[harness.EventOldDeleted] != 1 {
			t.Errorf("events %v", rec.kinds())
		}
	})
}

func TestCutoverByWeights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var healthy atomic.Bool
		c, d, _ := verbs(t, nil, coloured(harness.ShiftWeights))
		d.world.cfg.LoadBalancerLog = fakeLog(func(namespace, _ string, _ clusters.LogName) (string, error) {
			state := "unhealthy"
			if healthy.Load() {
				state = "healthy"
			}
			return fmt.Sprintf(`{"group":"%s/app-green:80","target":"198.18.0.11:30081","node":"","state":%q}`, namespace, state), nil
		})
		start := time.Now()
		time.AfterFunc(10*time.Second, func() { healthy.Store(true) })
		if err := d.AddGreen(testContext(t)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took < 10*time.Second {
			t.Errorf("Green was added after %s, before its targets were healthy", took)
		}
		event := &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: "e", Namespace: testNamespace},
			InvolvedObject: corev1.ObjectReference{Kind: "Ingress", Name: appName}, Reason: reconciled, Count: 1,
		}
		if err := c.Tracker().Add(event); err != nil {
			t.Fatal(err)
		}
		c.before("patch", "ingresses", func(clienttesting.Action) error {
			time.AfterFunc(2*time.Second, func() {
				again := event.DeepCopy()
				again.Count = 2
				if _, err := c.CoreV1().Events(testNamespace).Update(context.Background(), again, metav1.UpdateOptions{}); err != nil {
					t.Error(err)
				}
			})
			return nil
		})
		start = time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := d.Cutover(ctx); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took < 22*time.Second {
			t.Errorf("confirmed after %s, before all nodes can have the weights", took)
		}
		ing, err := c.NetworkingV1().Ingresses(testNamespace).Get(t.Context(), appName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want := `[{"serviceName":"app","servicePort":80,"weight":0},{"serviceName":"app-green","servicePort":80,"weight":100}]`
		if got := ing.Annotations[weightsAnnotation]; !strings.Contains(got, want) {
			t.Errorf("weights %s, want %s", got, want)
		}
	})
}

func TestColoursFail(t *testing.T) {
	_, d, _ := verbs(t, nil, nil)
	checkError(t, d.AddGreen(t.Context()), "deployed without colours", "blue-green")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, d, rec := verbs(t, nil, coloured(harness.ShiftSelector))
	err := d.Cutover(ctx)
	checkError(t, err, "cut over to Green", "Green has no ready pod")
	if !errors.Is(err, context.DeadlineExceeded) || slices.Contains(rec.objects(harness.EventCutover), "app-green") {
		t.Errorf("error %v", err)
	}
}
