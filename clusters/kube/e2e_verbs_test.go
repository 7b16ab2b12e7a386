//go:build e2e

package kube

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"lameduck/clusters"
	"lameduck/harness"
)

// TestE2EVerbs shows of each thing that can be done to a deployment what it does
// on a real cluster. It needs root and what make build makes.
func TestE2EVerbs(t *testing.T) {
	cluster, world := realWorld(t, "e2e-verbs", 3)
	v := verbsOn{cluster, world}
	t.Run("cutover by selector", v.cutoverBySelector)
	t.Run("cutover by weights", v.cutoverByWeights)
	t.Run("rollout and pods killed", v.rolloutAndKill)
	t.Run("node drained and removed", v.drainAndRemove)
	t.Run("node lost", v.loseNode)
	t.Run("FIN dropped", v.dropFIN)
	t.Run("application stops", v.applicationStops)
	t.Run("grace and deregistration delay with a throttled API", v.graceAndDelay)
	t.Run("late deregistration", v.lateDeregistration)
	t.Run("lost deregistration", v.lostDeregistration)
	t.Run("node broken", v.nodeFaults)
	t.Run("kube-proxy configured", v.configure)
}

// allGreen checks a cutover that has been confirmed, and the end of Blue.
func (v verbsOn) allGreen(t *testing.T, d *deployment, rec *memory, service string) {
	t.Helper()
	names := v.endpoints(t, d, service)
	if len(names) != 3 || slices.ContainsFunc(names, func(n string) bool { return !strings.HasPrefix(n, "app-green-") }) {
		t.Errorf("Service %s has endpoints %v, want Green's three", service, names)
	}
	if n := rec.kinds()[harness.EventPodDeletionAsked]; n != 0 {
		t.Errorf("%d pods were deleted before Blue was", n)
	}
	pods, err := d.DeleteBlue(stepContext(t))
	if err != nil || pods != 3 {
		t.Errorf("%d pods of Blue deleted, error %v", pods, err)
	}
	list, err := v.world.client.CoreV1().Pods(d.namespace).List(stepContext(t), metav1.ListOptions{LabelSelector: colourLabel + "=" + blue})
	if err != nil || len(list.Items) > 0 {
		t.Errorf("%d pods of Blue are left, error %v", len(list.Items), err)
	}
	if err := d.WaitPods(stepContext(t), 3); err != nil {
		t.Error(err)
	}
	v.wantOnly(t, d, "v2")
	if k := rec.kinds(); k[harness.EventCutover] != 1 || k[harness.EventOldDeleted] != 1 || k[harness.EventPodDeletionAsked] != 3 {
		t.Errorf("recorded %v, want one cutover, one deletion, of three pods", k)
	}
}

func (v verbsOn) cutoverBySelector(t *testing.T) {
	d, rec := v.deploy(t, 31, func(s *harness.Setup) {
		s.Scenario = harness.ScenarioSpec{Name: blueGreen, Shift: harness.ShiftSelector}
	})
	if err := d.AddGreen(stepContext(t)); err != nil {
		t.Fatal(err)
	}
	v.wantOnly(t, d, "v1")
	if err := d.Cutover(stepContext(t)); err != nil {
		t.Fatal(err)
	}
	// The endpoints are confirmed; the rules of each node follow in kube-proxy's
	// time. The load balancer's old connections lead to Blue until that is gone.
	ports := v.nodePorts(t, d)
	err := wait.PollUntilContextCancel(stepContext(t), confirmPoll, true, func(context.Context) (bool, error) {
		return v.ask(t, 4*len(ports), ports)["v1"] == 0, nil
	})
	if err != nil {
		t.Error(err)
	}
	v.allGreen(t, d, rec, appName)
	removeReal(t, v.world, d)
}

func (v verbsOn) cutoverByWeights(t *testing.T) {
	d, rec := v.deploy(t, 32, func(s *harness.Setup) {
		s.LoadBalancer.TargetType = harness.TargetIP
		s.LoadBalancer.WeightLag = harness.DurationRange{Min: time.Second, Max: 2 * time.Second}
		s.Scenario = harness.ScenarioSpec{Name: blueGreen, Shift: harness.ShiftWeights}
	})
	if err := d.AddGreen(stepContext(t)); err != nil {
		t.Fatal(err)
	}
	states, err := d.targets(stepContext(t))
	if err != nil || healthy(states["app-green"]) != 3 || healthy(states[appName]) != 3 {
		t.Errorf("targets %v, error %v, want three healthy ones of each colour", states, err)
	}
	v.wantOnly(t, d, "v1")
	start := time.Now()
	if err := d.Cutover(stepContext(t)); err != nil {
		t.Fatal(err)
	}
	t.Logf("cutover by weights took %s", time.Since(start).Round(time.Millisecond))
	v.wantOnly(t, d, "v2")
	v.allGreen(t, d, rec, "app-green")
	removeReal(t, v.world, d)
}

func (v verbsOn) rolloutAndKill(t *testing.T) {
	const minReady = 2 * time.Second
	d, rec := v.deploy(t, 33, func(s *harness.Setup) {
		s.Workload.MaxSurge, s.Workload.MaxUnavailable, s.Workload.MinReadySeconds = "1", "0", int(minReady.Seconds())
	})
	before := d.pods()
	fewest, over := len(before), make(chan struct{})
	watched := make(chan error, 1)
	go func() {
		watched <- d.view.wait(stepContext(t), func() (bool, error) {
			fewest = min(fewest, count(d.pods()).ready)
			select {
			case <-over:
				return true, nil
			default:
				return false, nil
			}
		})
	}()
	pods, err := d.Rollout(stepContext(t))
	close(over)
	d.view.wake()
	if werr := <-watched; err != nil || werr != nil || pods != 3 {
		t.Fatalf("%d pods replaced, errors %v, %v", pods, err, werr)
	}
	if fewest < 3 {
		t.Errorf("only %d pods were ready at a time, in spite of maxUnavailable 0", fewest)
	}
	after := d.pods()
	first, _ := rec.firstOf(harness.EventPodDeletionAsked, before[0].Name)
	for _, p := range before {
		if e, ok := rec.firstOf(harness.EventPodDeletionAsked, p.Name); ok && e.At < first.At {
			first = e
		}
	}
	ready := first.At
	for _, p := range after {
		if e, ok := rec.firstOf(harness.EventPodReady, p.Name); ok {
			ready = min(ready, e.At)
		}
	}
	// The condition that minReadySeconds counts from has whole seconds.
	if first.At-ready < minReady-time.Second {
		t.Errorf("the first pod was deleted %s after a new one was ready, in spite of minReadySeconds %s", first.At-ready, minReady)
	}
	if !count(after).settled(3) || slices.ContainsFunc(after, func(p *corev1.Pod) bool {
		return slices.ContainsFunc(before, func(q *corev1.Pod) bool { return p.UID == q.UID })
	}) {
		t.Errorf("after the rollout: %s, or old ones among them", count(after))
	}
	if err := d.KillPods(stepContext(t), 2); err != nil {
		t.Fatal(err)
	}
	left := 0
	for _, p := range d.pods() {
		if slices.ContainsFunc(after, func(q *corev1.Pod) bool { return p.UID == q.UID }) {
			left++
		}
	}
	if left != 1 || !count(d.pods()).settled(3) {
		t.Errorf("after two of three were killed: %s, %d of them from before", count(d.pods()), left)
	}
	graces := make(map[string]int)
	rec.mu.Lock()
	for _, e := range rec.events {
		if e.Kind == harness.EventPodDeletionAsked {
			graces[e.Detail["grace"]]++
		}
	}
	rec.mu.Unlock()
	if graces["30"] != 3 || graces["0"] != 2 {
		t.Errorf("pods deleted by grace period: %v, want 3 with 30 by the rollout and 2 with 0", graces)
	}
	removeReal(t, v.world, d)
}

// nodeReady checks that a node is back as it was.
func (v verbsOn) nodeReady(t *testing.T, name string) {
	t.Helper()
	n, err := v.world.client.CoreV1().Nodes().Get(stepContext(t), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	if !ready || slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == autoscalerTaint }) {
		t.Errorf("node %s: ready %t, taints %v", name, ready, n.Spec.Taints)
	}
}

func (v verbsOn) drainAndRemove(t *testing.T) {
	d, rec := v.deploy(t, 34, func(s *harness.Setup) { s.Workload.PodDisruptionBudget = "3" })
	node, err := d.node()
	if err != nil {
		t.Fatal(err)
	}
	nodes := func() int {
		states, err := d.targets(stepContext(t))
		if err != nil {
			t.Error(err)
		}
		return healthy(states[appName])
	}
	if n := nodes(); n != 3 {
		t.Errorf("%d nodes are healthy targets, want 3", n)
	}
	type drained struct {
		pods int
		err  error
	}
	done := make(chan drained, 1)
	start := time.Now()
	go func() {
		pods, err := d.DrainNode(stepContext(t))
		done <- drained{pods, err}
	}()
	// Tainted, the node leaves the target group; the budget holds the pod.
	if err := wait.PollUntilContextCancel(stepContext(t), confirmPoll, true, func(context.Context) (bool, error) { return nodes() == 2, nil }); err != nil {
		t.Error(err)
	}
	time.Sleep(time.Until(start.Add(taintDelay + 2*time.Second))) // it has asked by then
	if n := len(done) + rec.kinds()[harness.EventPodDeletionAsked]; n != 0 || len(d.on(node)) != 1 {
		t.Error("a pod was evicted in spite of its disruption budget")
	}
	patch := []byte(`{"spec":{"minAvailable":1}}`)
	if _, err := v.world.client.PolicyV1().PodDisruptionBudgets(d.namespace).Patch(stepContext(t), d.names.Budget, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := <-done; got.err != nil || got.pods != 1 {
		t.Fatalf("%d pods evicted, error %v", got.pods, got.err)
	}
	if err := d.WaitPods(stepContext(t), 3); err != nil {
		t.Error(err)
	}
	if n := len(d.on(node)); n != 0 {
		t.Errorf("%d pods are on the drained node", n)
	}
	if err := d.RemoveNode(stepContext(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := v.world.client.CoreV1().Nodes().Get(stepContext(t), node, metav1.GetOptions{}); !gone(err) {
		t.Errorf("Node %s after its removal: %v, want none", node, err)
	}
	v.wantOnly(t, d, "v1")
	if got := rec.objects(harness.EventNodeRemoved); !slices.Equal(got, []string{node}) || rec.kinds()[harness.EventNodeDrained] != 1 {
		t.Errorf("removed %v, want %s, and drained once", got, node)
	}
	removeReal(t, v.world, d)
	v.nodeReady(t, node)
}

func (v verbsOn) loseNode(t *testing.T) {
	d, rec := v.deploy(t, 35, func(s *harness.Setup) { s.LoadBalancer.TargetType = harness.TargetIP })
	pods, err := d.LoseNode(stepContext(t))
	if err != nil || pods != 1 {
		t.Fatalf("%d pods lost, error %v", pods, err)
	}
	node := rec.objects(harness.EventNodeLost)[0]
	address := d.on(node)[0].Status.PodIP
	// Nobody has told the load balancer; it finds out by its checks.
	err = wait.PollUntilContextCancel(stepContext(t), confirmPoll, true, func(ctx context.Context) (bool, error) {
		states, err := d.targets(ctx)
		return states[appName][fmt.Sprintf("%s:%d", address, appPort)] == "unhealthy", err
	})
	if err != nil {
		t.Errorf("target %s does not become unhealthy: %v", address, err)
	}
	if n := rec.kinds()[harness.EventPodDeletionAsked]; n != 0 {
		t.Errorf("%d pods were deleted, want none", n)
	}
	removeReal(t, v.world, d)
	v.nodeReady(t, node)
}

// established counts the entries of all nodes for connections to the addresses.
func (v verbsOn) established(t *testing.T, addresses map[netip.Addr]bool) int {
	t.Helper()
	n := 0
	for _, node := range []string{"n1", "n2", "n3"} {
		flows, err := v.cluster.(clusters.Conntrack).Conntrack(stepContext(t), node)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range flows {
			if f.State == "ESTABLISHED" && addresses[f.Reply.Addr()] {
				n++
			}
		}
	}
	return n
}

// Pods that are killed while their FIN does not get out leave entries behind
// that say that their connections live; without the fault there are none.
func (v verbsOn) dropFIN(t *testing.T) {
	d, _ := v.deploy(t, 36, nil)
	kill := func() (before, after int) {
		addresses := make(map[netip.Addr]bool)
		for _, p := range d.pods() {
			addresses[netip.MustParseAddr(p.Status.PodIP)] = true
		}
		v.ask(t, 40, d.Target().Nodes) // the load balancer keeps connections to the targets
		before = v.established(t, addresses)
		if err := d.KillPods(stepContext(t), 3); err != nil {
			t.Fatal(err)
		}
		// The end of the last container comes a moment after its pod has gone.
		time.Sleep(2 * time.Second)
		return before, v.established(t, addresses)
	}
	if before, after := kill(); before == 0 || after != 0 {
		t.Errorf("without the fault: %d connections are established, and %d when the pods are gone, want some and none", before, after)
	}
	mend, err := d.Break(stepContext(t), harness.Fault{Kind: harness.FaultDropFIN})
	if err != nil {
		t.Fatal(err)
	}
	before, after := kill()
	t.Logf("FIN dropped: %d connections established, %d of them when the pods are gone", before, after)
	if before == 0 || after == 0 {
		t.Errorf("with FIN dropped: %d connections are established, and %d when the pods are gone, want some and some", before, after)
	}
	if err := mend(stepContext(t)); err != nil {
		t.Error(err)
	}
	if before, after := kill(); before == 0 || after != 0 {
		t.Errorf("mended: %d connections are established, and %d when the pods are gone, want some and none", before, after)
	}
	removeReal(t, v.world, d)
}

func (v verbsOn) configure(t *testing.T) {
	powers := v.cluster.(clusters.KubeProxies)
	first, err := powers.KubeProxy(stepContext(t))
	if err != nil {
		t.Fatal(err)
	}
	want := harness.ClusterSettings{KubeProxyMode: harness.KubeProxyNFTables, KubeProxyMinSyncPeriod: harness.Dur(2 * time.Second)}
	if first.Mode == want.KubeProxyMode {
		t.Fatalf("kube-proxy has mode %s already", first.Mode)
	}
	if err := v.world.Configure(stepContext(t), want); err != nil {
		t.Fatal(err)
	}
	d, _ := v.deploy(t, 37, func(s *harness.Setup) { s.Cluster = want }) // which reads it back
	v.wantOnly(t, d, "v1")
	removeReal(t, v.world, d)
	if err := v.world.Configure(stepContext(t), harness.ClusterSettings{}); err != nil {
		t.Fatal(err)
	}
	if last, err := powers.KubeProxy(stepContext(t)); err != nil || last != first {
		t.Errorf("kube-proxy at the end: %+v, %v, want %+v", last, err, first)
	}
}
