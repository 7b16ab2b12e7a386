//go:build e2e

package embedded

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lameduck/clusters"
	"lameduck/clusters/embedded/network"
)

// TestE2EPowers does to a cluster what can be done to it, and undoes it. Each
// node has one pod, and a node's port 30080 leads to its own.
func TestE2EPowers(t *testing.T) {
	const name = "emb-powers"
	p := newProvider(t, name)
	made, client := up(t, p, name, 2)
	c := powers{Cluster: made.(*Cluster), provider: p, client: client}
	c.onePodPerNode(t, loadTarget(t, made))
	for _, n := range []int{1, 2} {
		c.awaitAnswer(t, n, nodePort)
	}
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"conntrack", c.testConntrack},
		{"drop-fin", c.testDropFIN},
		{"packet-loss", c.testPacketLoss},
		{"link-down", c.testLinkDown},
		{"paused kubelet", c.testPausedKubelet},
		{"paused kube-proxy", c.testPausedKubeProxy},
		{"paused API server", c.testPausedAPIServer},
		{"slow API server", c.testSlowAPIServer},
		{"killed while the API server is paused", c.testKilledWhilePaused},
		{"kube-proxy", c.testKubeProxy},
		{"minSyncPeriod", c.testMinSyncPeriod},
		{"node stopped", c.testStopNode},
		{"node stopped and deleted", c.testStopDeletedNode},
		{"mend all", c.testMendAll},
		{"clean with a stopped node", c.testCleanStopped},
	} {
		if !t.Run(test.name, test.run) {
			t.FailNow() // what is broken would break the rest
		}
	}
}

// flowOf finds what a node tracks of a connection of the client.
func (c powers) flowOf(t *testing.T, node, source string) (clusters.Flow, bool) {
	t.Helper()
	flows, err := c.Conntrack(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(flows, func(f clusters.Flow) bool { return f.Source.String() == source })
	if i < 0 {
		return clusters.Flow{}, false
	}
	return flows[i], true
}

func (c powers) testConntrack(t *testing.T) {
	conn := c.connect(t, 1)
	f, found := c.flowOf(t, "n1", conn.LocalAddr().String())
	pod := netip.AddrPortFrom(c.pod(t, 1), 8080)
	if !found || f.State != "ESTABLISHED" || f.Reply != pod || f.Destination.String() != conn.RemoteAddr().String() {
		t.Errorf("flow is %+v; want one to %s, ESTABLISHED", f, pod)
	}
	conn.Close()
	eventually(t, func(context.Context) error {
		if f, _ := c.flowOf(t, "n1", conn.LocalAddr().String()); f.State == "ESTABLISHED" {
			return errors.New("closed, and still ESTABLISHED")
		}
		return nil
	})
}

func (c powers) testDropFIN(t *testing.T) {
	pod := c.pod(t, 1)
	mend := c.broken(t, clusters.Breakage{Kind: clusters.BreakDropFIN, Node: "n1", Addresses: []netip.Addr{pod}})
	// Another trial's, which comes and goes meanwhile.
	c.broken(t, clusters.Breakage{Kind: clusters.BreakDropFIN, Node: "n1", Addresses: []netip.Addr{pod.Next()}})()
	conn := c.connect(t, 1)
	c.deletePod(t, 1)
	if err := readWithin(conn, time.Second); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the pod is gone, and the client reads: %v; want nothing", err)
	}
	if f, _ := c.flowOf(t, "n1", conn.LocalAddr().String()); f.State != "ESTABLISHED" {
		t.Errorf("the pod is gone, and the state is %q; want ESTABLISHED", f.State)
	}
	mend()
	c.awaitAnswer(t, 1, nodePort)
	conn = c.connect(t, 1)
	c.deletePod(t, 1)
	if err := readWithin(conn, 5*time.Second); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("mended; the client reads: %v; want the end", err)
	}
	c.awaitAnswer(t, 1, nodePort)
}

func (c powers) testPacketLoss(t *testing.T) {
	const sent = 200
	mend := c.broken(t, clusters.Breakage{Kind: clusters.BreakPacketLoss, Node: "n2", Share: 0.5})
	// Half there, half of these back: 50, with a standard deviation of 6.
	if got := c.echoes(t, 2, sent); got < 15 || got > 85 {
		t.Errorf("%d of %d echoes, with half of the packets lost in each direction; want about 50", got, sent)
	}
	if got := c.echoes(t, 1, sent); got != sent {
		t.Errorf("%d of %d echoes of the other node", got, sent)
	}
	mend()
	if got := c.echoes(t, 2, sent); got != sent {
		t.Errorf("%d of %d echoes after it was mended", got, sent)
	}
}

func (c powers) testLinkDown(t *testing.T) {
	mend := c.broken(t, clusters.Breakage{Kind: clusters.BreakLinkDown, Node: "n2"})
	c.silent(t, 2)
	mend()
	c.awaitAnswer(t, 2, nodePort)
}

func (c powers) testPausedKubelet(t *testing.T) {
	mend := c.broken(t, clusters.Breakage{Kind: clusters.BreakPauseKubelet, Node: "n1"})
	pod := c.podObject(t, 1)
	if err := c.client.CoreV1().Pods("default").Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second) // the pod's grace period is 1 s
	if now, err := c.client.CoreV1().Pods("default").Get(t.Context(), pod.Name, metav1.GetOptions{}); err != nil || now.UID != pod.UID {
		t.Errorf("the kubelet is paused, and the pod is gone: %v", err)
	}
	mend()
	eventually(t, func(ctx context.Context) error {
		_, err := c.client.CoreV1().Pods("default").Get(ctx, pod.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("the pod is still there: %v", err)
	})
	c.awaitAnswer(t, 1, nodePort)
}

func (c powers) testPausedKubeProxy(t *testing.T) {
	mend := c.broken(t, clusters.Breakage{Kind: clusters.BreakPauseKubeProxy, Node: "n1"})
	c.service(t, "late", latePort)
	c.awaitAnswer(t, 2, latePort) // so n1 would have it as well
	if err := c.request(1, latePort, time.Second); err == nil {
		t.Error("kube-proxy is paused, and a new Service is served")
	}
	mend()
	c.awaitAnswer(t, 1, latePort)
}

// apiAnswers asks the API server once.
func (c powers) apiAnswers(limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	return err
}

func (c powers) testPausedAPIServer(t *testing.T) {
	mend := c.broken(t, clusters.Breakage{Kind: clusters.BreakPauseAPIServer})
	if err := c.apiAnswers(time.Second); err == nil {
		t.Error("the API server is paused, and answers")
	}
	mend()
	if err := c.apiAnswers(5 * time.Second); err != nil {
		t.Error(err)
	}
}

func (c powers) testSlowAPIServer(t *testing.T) {
	mend := c.broken(t, clusters.Breakage{Kind: clusters.BreakSlowAPIServer, Share: 0.6})
	const looks = 60
	stopped := 0
	for range looks { // over a second and more: it is stopped and let run twice in each
		if c.processState(t, hostCP, apiServer) == "T" {
			stopped++
		}
		time.Sleep(20 * time.Millisecond)
	}
	if stopped < looks/4 || stopped > looks*9/10 {
		t.Errorf("stopped in %d of %d looks, want about 0.6 of them", stopped, looks)
	}
	if err := c.apiAnswers(5 * time.Second); err != nil {
		t.Errorf("slow, but it should answer: %v", err)
	}
	mend()
	if state := c.processState(t, hostCP, apiServer); state == "T" {
		t.Error("mended, and the API server is stopped")
	}
}

// pauseAPIServer is a process that breaks something and never mends it.
func pauseAPIServer(ctx context.Context, p *Provider, name string) error {
	c, err := p.Open(ctx, name)
	if err != nil {
		return err
	}
	if _, err := c.(clusters.Breaker).Break(ctx, clusters.Breakage{Kind: clusters.BreakPauseAPIServer}); err != nil {
		return err
	}
	fmt.Println("paused")
	<-ctx.Done()
	return nil
}

func (c powers) testKilledWhilePaused(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "pause", c.Name(), c.provider.config.StateDir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	bufio.NewReader(out).ReadString('\n')
	if err := c.apiAnswers(time.Second); err == nil {
		t.Error("the API server is paused, and answers")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, out)
	cmd.Wait()
	if err := c.apiAnswers(5 * time.Second); err != nil {
		t.Errorf("who paused the API server was killed: %v", err)
	}
}

func (c powers) testKubeProxy(t *testing.T) {
	for _, s := range []clusters.KubeProxySettings{
		{Mode: "nftables", MinSyncPeriod: 100 * time.Millisecond}, {},
	} {
		if err := c.SetKubeProxy(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		want := orDefaults(s)
		if got, err := c.KubeProxy(t.Context()); err != nil || got != want {
			t.Errorf("kube-proxy runs with %+v, error %v; want %+v", got, err, want)
		}
		for _, n := range []int{1, 2} {
			tables := c.inside(t, nodeName(n), "nft", "list", "tables")
			chains := c.inside(t, nodeName(n), "iptables-save", "-t", "nat")
			nftables, iptables := strings.Contains(tables, "table ip kube-proxy"), strings.Contains(chains, "-A PREROUTING") && strings.Contains(chains, "KUBE-SVC-")
			if nftables != (want.Mode == "nftables") || iptables != (want.Mode == "iptables") {
				t.Errorf("n%d, mode %s: rules of nftables %t, of iptables %t", n, want.Mode, nftables, iptables)
			}
			if err := c.request(n, nodePort, 2*time.Second); err != nil {
				t.Errorf("n%d, mode %s: %v", n, want.Mode, err)
			}
		}
	}
}

// testMinSyncPeriod adds two Services, one right after the other: the rules of the
// second come a period after those of the first.
func (c powers) testMinSyncPeriod(t *testing.T) {
	const period = 6 * time.Second
	if err := c.SetKubeProxy(t.Context(), clusters.KubeProxySettings{MinSyncPeriod: period}); err != nil {
		t.Fatal(err)
	}
	c.service(t, "sooner", soonerPort)
	c.awaitAnswer(t, 1, soonerPort)
	first := time.Now()
	c.service(t, "later", laterPort)
	c.awaitAnswer(t, 1, laterPort)
	// The first may have been noticed up to a second after its rules were there.
	if took := time.Since(first); took < period-2*time.Second {
		t.Errorf("rules follow rules after %s, want %s", took, period)
	}
	if err := c.SetKubeProxy(t.Context(), clusters.KubeProxySettings{}); err != nil {
		t.Fatal(err)
	}
}

func (c powers) testStopNode(t *testing.T) {
	conn := c.connect(t, 2)
	before := c.podObject(t, 2)
	for range 2 { // a stopped node is no error
		if err := c.StopNode(t.Context(), "n2"); err != nil {
			t.Fatal(err)
		}
	}
	if err := readWithin(conn, time.Second); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the node is gone, and the client reads: %v; want nothing", err)
	}
	c.silent(t, 2)
	s, err := c.provider.Status(t.Context(), c.Name())
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range s.Parts {
		if part.Running == (part.Host == "n2") {
			t.Errorf("%s on %s: running is %t", part.Name, part.Host, part.Running)
		}
	}
	if _, err := c.provider.Open(t.Context(), c.Name()); err != nil {
		t.Errorf("open with a stopped node: %v", err)
	}
	for range 2 {
		if err := c.StartNode(t.Context(), "n2"); err != nil {
			t.Fatal(err)
		}
	}
	if _, found := c.flowOf(t, "n2", conn.LocalAddr().String()); found {
		t.Error("connection tracking has outlived the machine")
	}
	c.awaitAnswer(t, 2, nodePort)
	after := c.podObject(t, 2)
	if after.UID == before.UID && after.Status.ContainerStatuses[0].ContainerID == before.Status.ContainerStatuses[0].ContainerID {
		t.Error("the container has outlived the machine")
	}
}

func (c powers) testStopDeletedNode(t *testing.T) {
	if err := c.StopNode(t.Context(), "n2"); err != nil {
		t.Fatal(err)
	}
	if err := c.client.CoreV1().Nodes().Delete(t.Context(), "n2", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.StartNode(t.Context(), "n2"); err != nil {
		t.Fatal(err)
	}
	// Its taint for not being ready goes a moment after it has become ready.
	eventually(t, func(ctx context.Context) error { return nodesReady(ctx, c.client, 2) })
	c.awaitAnswer(t, 2, nodePort)
}

func (c powers) testMendAll(t *testing.T) {
	if err := c.SetKubeProxy(t.Context(), clusters.KubeProxySettings{MinSyncPeriod: 2 * time.Second}); err != nil {
		t.Fatal(err)
	}
	for _, b := range []clusters.Breakage{
		{Kind: clusters.BreakPauseKubelet, Node: "n1"},
		{Kind: clusters.BreakPacketLoss, Node: "n1", Share: 0.5},
		{Kind: clusters.BreakDropFIN, Node: "n1", Addresses: []netip.Addr{c.pod(t, 1)}},
		{Kind: clusters.BreakLinkDown, Node: "n1"},
		{Kind: clusters.BreakPauseAPIServer},
	} {
		if _, err := c.Break(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.StopNode(t.Context(), "n2"); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Altered(t.Context()); err != nil || len(got) != 5 || got[4] != "node n2 is stopped" {
		t.Errorf("altered: %q, error %v; want n1's link (twice), dropped FINs and kube-proxy, and n2", got, err)
	}
	for range 2 {
		if err := c.MendAll(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := c.Altered(t.Context()); err != nil || got != nil {
		t.Errorf("altered after mending: %q, error %v", got, err)
	}
	if got, err := c.KubeProxy(t.Context()); err != nil || got != kubeProxyDefaults {
		t.Errorf("kube-proxy runs with %+v, error %v", got, err)
	}
	if got := c.echoes(t, 1, 50); got != 50 {
		t.Errorf("%d of 50 echoes", got)
	}
	if rules := c.inside(t, "n1", "nft", "list", "tables"); strings.Contains(rules, "lameduck") {
		t.Errorf("rules of ours are left: %s", rules)
	}
	if state := c.processState(t, "n1", kubelet); state == "T" {
		t.Error("the kubelet is stopped")
	}
	for _, n := range []int{1, 2} {
		c.awaitAnswer(t, n, nodePort)
	}
}

// testCleanStopped leaves the rest to the check for what is left over.
func (c powers) testCleanStopped(t *testing.T) {
	if err := c.StopNode(t.Context(), "n2"); err != nil {
		t.Fatal(err)
	}
	if err := c.provider.Clean(t.Context(), c.Name(), logWriter{t}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(network.Path(c.layout.netns("n2"))); err == nil {
		t.Error("the namespace of the stopped node is left")
	}
}
