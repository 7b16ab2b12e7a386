package kube

import (
	"context"
	"testing"
	"time"

	"lameduck/harness"
)

func TestBreak(t *testing.T) {
	for _, c := range []struct {
		fault harness.Fault
		want  string
	}{
		{harness.Fault{Kind: harness.FaultPacketLoss, Share: 0.1}, "break packet-loss n2 [] 0.1; mend packet-loss n2"},
		{harness.Fault{Kind: harness.FaultLinkDown}, "break link-down n2 [] 0; mend link-down n2"},
		{harness.Fault{Kind: harness.FaultPausedKubelet}, "break paused-kubelet n2 [] 0; mend paused-kubelet n2"},
		{harness.Fault{Kind: harness.FaultPausedKubeProxy}, "break paused-kube-proxy n2 [] 0; mend paused-kube-proxy n2"},
		{harness.Fault{Kind: harness.FaultSlowAPIServer, Share: 0.5}, "break slow-api-server  [] 0.5; mend slow-api-server "},
		{harness.Fault{Kind: harness.FaultPausedAPIServer}, "break paused-api-server  [] 0; mend paused-api-server "},
		{
			harness.Fault{Kind: harness.FaultDropFIN},
			"break drop-fin n1 [198.18.1.3 198.18.1.6] 0; break drop-fin n2 [198.18.1.1 198.18.1.4] 0; break drop-fin n3 [198.18.1.2 198.18.1.5] 0; " +
				"mend drop-fin n3; mend drop-fin n2; mend drop-fin n1",
		},
	} {
		t.Run(string(c.fault.Kind), func(t *testing.T) {
			p := &powers{}
			_, d, _ := verbs(t, p, nil)
			mend, err := d.Break(t.Context(), c.fault)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second time there is nothing to do
				if err := mend(t.Context()); err != nil {
					t.Error(err)
				}
			}
			if err := d.Remove(testContext(t)); err != nil {
				t.Error(err)
			}
			if p.done() != c.want {
				t.Errorf("did %s, want %s", p.done(), c.want)
			}
		})
	}
}

func TestRemoveMends(t *testing.T) {
	p := &powers{}
	_, d, _ := verbs(t, p, nil)
	if _, err := d.Break(t.Context(), harness.Fault{Kind: harness.FaultLinkDown}); err != nil {
		t.Fatal(err)
	}
	if err := d.Remove(testContext(t)); err != nil {
		t.Error(err)
	}
	if want := "break link-down n2 [] 0; mend link-down n2"; p.done() != want {
		t.Errorf("did %s, want %s", p.done(), want)
	}
}

func TestBreakHalfDoneIsUndone(t *testing.T) {
	p := &powers{fail: "break drop-fin n2 [198.18.1.1 198.18.1.4] 0"}
	_, d, _ := verbs(t, p, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // it happens after Ctrl-C too
	_, err := d.Break(ctx, harness.Fault{Kind: harness.FaultDropFIN})
	checkError(t, err, "drop-fin n2", errNotNow.Error())
	if want := "break drop-fin n1 [198.18.1.3 198.18.1.6] 0; mend drop-fin n1"; p.done() != want {
		t.Errorf("did %s, want %s", p.done(), want)
	}
}

func TestBreakRefuses(t *testing.T) {
	_, d, _ := verbs(t, nil, nil)
	_, err := d.Break(t.Context(), harness.Fault{Kind: harness.FaultDropFIN})
	checkError(t, err, "nothing can be broken on this cluster")
	_, d, _ = verbs(t, &powers{}, nil)
	_, err = d.Break(t.Context(), harness.Fault{Kind: harness.FaultThrottledAPI, Every: harness.Dur(time.Second)})
	checkError(t, err, "throttled-api", "drop-fin")
}

func TestConfigure(t *testing.T) {
	p := &powers{}
	w := newFakeCluster().world()
	settings := harness.ClusterSettings{KubeProxyMode: harness.KubeProxyNFTables, KubeProxyMinSyncPeriod: harness.Dur(2 * time.Second)}
	checkError(t, w.Configure(t.Context(), settings), "cluster.kubeProxyMode", "cannot be set on this cluster")
	if err := w.Configure(t.Context(), harness.ClusterSettings{}); err != nil {
		t.Error(err)
	}
	w.cfg.KubeProxies = p
	for _, s := range []harness.ClusterSettings{settings, {}} {
		if err := w.Configure(t.Context(), s); err != nil {
			t.Error(err)
		}
	}
	if want := "kube-proxy nftables 2s; kube-proxy  0s"; p.done() != want {
		t.Errorf("did %s, want %s", p.done(), want)
	}
}
