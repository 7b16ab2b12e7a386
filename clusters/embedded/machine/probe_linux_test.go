package machine

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
)

func TestProbeURL(t *testing.T) {
	var asked atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) < 3 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer s.Close()
	conditions := &probes{ctx: t.Context(), all: make(map[Probe]func() error)}
	for range 2 { // the second wait is for the same condition and asks no more
		if err := conditions.wait(Probe{URL: s.URL}); err != nil {
			t.Fatal(err)
		}
	}
	if n := asked.Load(); n != 3 {
		t.Errorf("asked %d times, want 3", n)
	}
}

func TestProbeUnix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := (Probe{Unix: path}).wait(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestProbeEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (Probe{Unix: filepath.Join(t.TempDir(), "nobody")}).wait(ctx); err == nil {
		t.Error("a wait whose context has ended gives no error")
	}
	if err := (Probe{URL: "https://127.0.0.1:1", CA: "/nowhere"}).wait(t.Context()); err == nil {
		t.Error("a missing CA file gives no error")
	}
}
