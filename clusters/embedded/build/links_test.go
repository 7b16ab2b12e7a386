package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestLinksOfRealComponents(t *testing.T) {
	b := &builder{components: components, store: store{dir: t.TempDir()}, out: t.TempDir()}
	var items []item
	for _, c := range components {
		items = append(items, item{component: c, key: "0123"})
	}
	for range 2 { // the second time over links that are there
		if err := b.link(items); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"kube":                    filepath.Join(b.store.dir, "kubernetes-0123", "kube"),
		"kubelet":                 "kube",
		"etcd":                    "kube",
		"metrics-server":          "kube",
		"containerd-shim-runc-v2": filepath.Join(b.store.dir, "containerd-0123", "containerd-shim-runc-v2"),
		"runc":                    filepath.Join(b.store.dir, "runc-0123", "runc"),
		"pause":                   filepath.Join(b.store.dir, "pause-0123", "pause"),
		"cni/host-local":          filepath.Join(b.store.dir, "containerd-0123", "host-local"),
	} {
		if got, err := os.Readlink(filepath.Join(b.out, name)); err != nil || got != want {
			t.Errorf("%s is a link to %q (%v), want %q", name, got, err, want)
		}
	}
	for dir, want := range map[string]int{b.out: 15, filepath.Join(b.out, "cni"): 5} {
		if list, err := os.ReadDir(dir); err != nil || len(list) != want {
			t.Errorf("%d names in the output (%v), want %d: %v", len(list), err, want, list)
		}
	}
}

func TestReplaceLinkNeverLeavesAGap(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "link")
	if err := replaceLink("a", path); err != nil {
		t.Fatal(err)
	}
	quit, done := make(chan struct{}), make(chan int)
	go func() {
		gaps := 0
		for {
			select {
			case <-quit:
				done <- gaps
				return
			default:
				if _, err := os.Readlink(path); err != nil {
					gaps++
				}
			}
		}
	}()
	for i := range 200 {
		if err := replaceLink([]string{"a", "b"}[i%2], path); err != nil {
			t.Error(err)
		}
	}
	close(quit)
	if gaps := <-done; gaps > 0 {
		t.Errorf("the link was missing %d times", gaps)
	}
	if list, _ := os.ReadDir(filepath.Dir(path)); len(list) != 1 {
		t.Errorf("left beside the link: %v", list)
	}
}

func TestReplaceLinkReplacesAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "link")
	write(t, path, "a binary of an older way to build")
	if err := replaceLink("target", path); err != nil {
		t.Fatal(err)
	}
	if got, err := os.Readlink(path); err != nil || got != "target" {
		t.Errorf("link is %q (%v)", got, err)
	}
}
