package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"lameduck/clusters"
	"lameduck/harness"
)

// powers note what they are told to do; one that is to fail says errNotNow.
type powers struct {
	mu   sync.Mutex
	did  []string
	fail string // the action that fails
}

func (p *powers) note(format string, args ...any) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	action := fmt.Sprintf(format, args...)
	if action == p.fail {
		return errNotNow
	}
	p.did = append(p.did, action)
	return nil
}

func (p *powers) done() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.did, "; ")
}

func (p *powers) StopNode(_ context.Context, node string) error  { return p.note("stop %s", node) }
func (p *powers) StartNode(_ context.Context, node string) error { return p.note("start %s", node) }
func (p *powers) MendAll(context.Context) error                  { return p.note("mend all") }

func (p *powers) Break(_ context.Context, b clusters.Breakage) (func(context.Context) error, error) {
	what := fmt.Sprintf("%s %s %v %g", b.Kind, b.Node, b.Addresses, b.Share)
	if err := p.note("break %s", what); err != nil {
		return nil, err
	}
	return func(context.Context) error { return p.note("mend %s %s", b.Kind, b.Node) }, nil
}

func (p *powers) SetKubeProxy(_ context.Context, s clusters.KubeProxySettings) error {
	return p.note("kube-proxy %s %s", s.Mode, s.MinSyncPeriod)
}

func (p *powers) KubeProxy(context.Context) (clusters.KubeProxySettings, error) {
	return clusters.KubeProxySettings{}, errNotNow
}

// spread puts the pods on nodes n1, n2, n3 in turn, and the control pod on n1.
func spread(c *fakeCluster) {
	n := 0
	c.newPod = func(p *corev1.Pod) {
		makeReady(p)
		if p.Labels[nameLabel] == controlName {
			p.Spec.NodeName = "n1"
			return
		}
		n++
		p.Spec.NodeName, p.Status.PodIP = fmt.Sprintf("n%d", 1+n%3), fmt.Sprintf("198.18.1.%d", n)
	}
}

// verbs is a deployment on a fake cluster of three nodes whose powers are p.
func verbs(t *testing.T, p *powers, edit func(*harness.Setup)) (*fakeCluster, *deployment, *memory) {
	t.Helper()
	c, rec, trial := newFakeCluster(), &memory{}, testTrial()
	spread(c)
	for _, name := range []string{"n1", "n2", "n3"} {
		node := &corev1.Node{}
		node.Name = name
		if err := c.Tracker().Add(node); err != nil {
			t.Fatal(err)
		}
	}
	if edit != nil {
		edit(&trial.Setup)
	}
	w := c.world()
	if p != nil {
		w.cfg.Machines, w.cfg.Breaker, w.cfg.KubeProxies = p, p, p
	}
	d, err := w.Deploy(testContext(t), trial, harness.NewClock(), rec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := d.Remove(ctx); err != nil {
			t.Error(err)
		}
	})
	return c, d.(*deployment), rec
}

// replace deletes a pod, and with by puts another one in its place.
func (c *fakeCluster) replace(t *testing.T, name, by string) {
	t.Helper()
	o, err := c.Tracker().Get(podsResource, testNamespace, name)
	if err != nil {
		t.Error(err)
		return
	}
	if err := c.Tracker().Delete(podsResource, testNamespace, name); err != nil {
		t.Error(err)
	}
	if by == "" {
		return
	}
	pod := o.(*corev1.Pod).DeepCopy()
	pod.Name, pod.UID = by, "uid-of-"+pod.UID
	if err := c.Tracker().Create(podsResource, pod, testNamespace); err != nil {
		t.Error(err)
	}
}

// before calls f whenever the client is about to do something; its error is the answer.
func (c *fakeCluster) before(verb, resource string, f func(clienttesting.Action) error) {
	c.PrependReactor(verb, resource, func(a clienttesting.Action) (bool, runtime.Object, error) {
		err := f(a)
		return err != nil, nil, err
	})
}

// objects are those of the events of a kind.
func (m *memory) objects(kind harness.EventKind) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []string
	for _, e := range m.events {
		if e.Kind == kind {
			all = append(all, e.Object)
		}
	}
	slices.Sort(all)
	return all
}
