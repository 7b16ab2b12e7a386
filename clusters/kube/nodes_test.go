package kube

import (
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"lameduck/harness"
)

// evictable lets evictions be carried out: the pod goes 2 s later. The first
// refusals ones meet a disruption budget.
func evictable(t *testing.T, c *fakeCluster, refusals int) *[]policyv1.Eviction {
	var seen []policyv1.Eviction
	c.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		e := a.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction)
		seen = append(seen, *e)
		if len(seen) <= refusals {
			return true, nil, apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
		}
		time.AfterFunc(2*time.Second, func() { c.replace(t, e.Name, "") })
		return true, nil, nil
	})
	return &seen
}

func (c *fakeCluster) node(t *testing.T, name string) *corev1.Node {
	t.Helper()
	n, err := c.CoreV1().Nodes().Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestDrainAndRemoveNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &powers{}
		c, d, rec := verbs(t, p, nil)
		checkError(t, d.RemoveNode(t.Context()), "none was drained")
		daemon := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: "daemon", Namespace: "kube-system",
			OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Controller: new(true)}},
		}, Spec: corev1.PodSpec{NodeName: "n2"}}
		if err := c.Tracker().Create(podsResource, daemon, daemon.Namespace); err != nil {
			t.Fatal(err)
		}
		evictions := evictable(t, c, 1)
		start := time.Now()
		pods, err := d.DrainNode(testContext(t))
		if err != nil || pods != 2 {
			t.Fatalf("%d pods, error %v, want 2", pods, err)
		}
		// Taint, delay, a refusal and what it costs, and the pods' own time.
		if took := time.Since(start); took < taintDelay+evictionRetry+2*time.Second {
			t.Errorf("took %s", took)
		}
		var names []string
		for _, e := range *evictions {
			names = append(names, e.Name)
			if o := e.DeleteOptions; *o.GracePeriodSeconds != 30 || *o.Preconditions.UID == "" {
				t.Errorf("evicted with %v", o)
			}
		}
		slices.Sort(names)
		if names = slices.Compact(names); !slices.Equal(names, []string{"app-0", "app-3"}) || len(*evictions) != 3 {
			t.Errorf("%d evictions of %v, want 3 of app-0 and app-3", len(*evictions), names)
		}
		node := c.node(t, "n2")
		want := corev1.Taint{Key: "ToBeDeletedByClusterAutoscaler", Value: strconv.FormatInt(start.Unix(), 10), Effect: corev1.TaintEffectNoSchedule}
		if !slices.Equal(node.Spec.Taints, []corev1.Taint{want}) || node.Spec.Unschedulable {
			t.Errorf("taints %v, unschedulable %t, want %v and false", node.Spec.Taints, node.Spec.Unschedulable, want)
		}
		if got := rec.objects(harness.EventNodeDrained); !slices.Equal(got, []string{"n2"}) || p.done() != "" {
			t.Errorf("drained %v, did %s", got, p.done())
		}
		if err := d.RemoveNode(testContext(t)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.CoreV1().Nodes().Get(t.Context(), "n2", metav1.GetOptions{}); !gone(err) {
			t.Errorf("Node n2 is still there: %v", err)
		}
		if got := rec.objects(harness.EventNodeRemoved); !slices.Equal(got, []string{"n2"}) {
			t.Errorf("removed %v", got)
		}
		if err := d.Remove(testContext(t)); err != nil {
			t.Error(err)
		}
		if p.done() != "stop n2; start n2" {
			t.Errorf("did %s", p.done())
		}
	})
}

func TestDrainIsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d, rec := verbs(t, nil, nil)
		evictable(t, c, 1000)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := d.DrainNode(ctx)
		checkError(t, err, "drain node n2", "evict pod", "disruption budget")
		if !errors.Is(err, context.DeadlineExceeded) || len(rec.objects(harness.EventNodeDrained)) > 0 {
			t.Errorf("error %v, want a deadline and no event", err)
		}
		if err := d.Remove(testContext(t)); err != nil {
			t.Error(err)
		}
		if n := c.node(t, "n2"); len(n.Spec.Taints) > 0 || len(n.Labels) > 0 {
			t.Errorf("taints %v and labels %v are left", n.Spec.Taints, n.Labels)
		}
	})
}

func TestLoseNode(t *testing.T) {
	p := &powers{}
	c, d, rec := verbs(t, p, nil)
	c.edit(t, testNamespace, "app-3", func(p *corev1.Pod) { p.Status.Conditions = nil })
	c.edit(t, testNamespace, "app-1", func(p *corev1.Pod) { p.Status.Conditions = nil })
	if err := d.view.wait(testContext(t), func() (bool, error) { return count(d.view.podsOf(appName)).ready == 4, nil }); err != nil {
		t.Fatal(err)
	}
	pods, err := d.LoseNode(t.Context())
	if err != nil || pods != 1 {
		t.Errorf("%d pods, error %v, want the one of two that is ready", pods, err)
	}
	if got := rec.objects(harness.EventNodeLost); !slices.Equal(got, []string{"n2"}) {
		t.Errorf("lost %v", got)
	}
	// The node comes back even if the first attempt fails; the namespace goes in
	// either case.
	p.fail = "start n2"
	checkError(t, d.Remove(testContext(t)), "bring node n2 back", errNotNow.Error())
	if left := c.left(t, testNamespace); left != nil {
		t.Errorf("left behind: %v", left)
	}
	p.fail = ""
	if err := d.repairs.all(t.Context()); err != nil {
		t.Error(err)
	}
	if p.done() != "stop n2; start n2" {
		t.Errorf("did %s", p.done())
	}
}

func TestNodesRefuse(t *testing.T) {
	_, powerless, rec := verbs(t, nil, nil)
	_, err := powerless.LoseNode(t.Context())
	checkError(t, err, "machines of this cluster's nodes cannot be ended")
	if n := len(rec.objects(harness.EventNodeLost)); n > 0 {
		t.Error("a node was recorded as lost")
	}
	// All pods beside the control target.
	c, d, _ := verbs(t, &powers{}, func(s *harness.Setup) { s.Workload.Replicas = 2 })
	for _, name := range []string{"app-0", "app-1"} {
		c.edit(t, testNamespace, name, func(p *corev1.Pod) { p.Spec.NodeName = "n1" })
	}
	if err := d.view.wait(testContext(t), func() (bool, error) { return len(d.on("n1")) == 2, nil }); err != nil {
		t.Fatal(err)
	}
	_, err = d.DrainNode(t.Context())
	checkError(t, err, "no node has ready pods of the workload but not the control target's", "more nodes")
}

func TestCleanUntaints(t *testing.T) {
	c, d, _ := verbs(t, nil, nil)
	if err := d.taint(t.Context(), "n2"); err != nil {
		t.Fatal(err)
	}
	// A real autoscaler's is none of our business.
	foreign := corev1.Taint{Key: autoscalerTaint, Value: "1", Effect: corev1.TaintEffectNoSchedule}
	if err := editNode(t.Context(), c, "n3", func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, foreign) }); err != nil {
		t.Fatal(err)
	}
	if got, err := leftovers(t.Context(), c); err != nil || !slices.Contains(got, "node n2 (drained)") || slices.Contains(got, "node n3 (drained)") {
		t.Errorf("left over: %q, error %v; want n2 and not n3", got, err)
	}
	if err := clean(testContext(t), c, "", io.Discard); err != nil {
		t.Error(err)
	}
	if got, err := leftovers(t.Context(), c); err != nil || got != nil {
		t.Errorf("left over after cleaning: %q, error %v", got, err)
	}
	if n := c.node(t, "n2"); len(n.Spec.Taints) > 0 {
		t.Errorf("taints %v are left", n.Spec.Taints)
	}
	if n := c.node(t, "n3"); len(n.Spec.Taints) != 1 {
		t.Errorf("taints of n3: %v", n.Spec.Taints)
	}
}
