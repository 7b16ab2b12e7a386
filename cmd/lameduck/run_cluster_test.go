package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"lameduck/clusters"
)

// usedCluster is a cluster that was there before.
type usedCluster struct {
	clusters.Cluster
	altered []string
	unseen  error
}

func (usedCluster) Name() string                                { return "used" }
func (c usedCluster) Altered(context.Context) ([]string, error) { return c.altered, c.unseen }

// kubeletRuns is a provider whose clusters have one process.
type kubeletRuns struct {
	clusters.Provider
	running bool
}

func (p kubeletRuns) Status(context.Context, string) (clusters.Status, error) {
	return clusters.Status{Parts: []clusters.Part{{Host: "n1", Name: "kubelet", Running: p.running}}}, nil
}

func TestCheckIntact(t *testing.T) {
	unseen := errors.New("no answer")
	for name, c := range map[string]struct {
		cluster usedCluster
		running bool
		want    string // in the error; "": none
	}{
		"as made": {usedCluster{}, true, ""},
		"changed": {usedCluster{altered: []string{"node n2 is stopped", "the link of node n1 is down"}}, true,
			"cluster used is not as it was made: node n2 is stopped; the link of node n1 is down: undo it with --clean-cluster"},
		// Its processes do not run either, and that can be undone.
		"stopped node":   {usedCluster{altered: []string{"node n1 is stopped"}, unseen: unseen}, false, "node n1 is stopped: undo it with --clean-cluster"},
		"dead part":      {usedCluster{unseen: unseen}, false, "kubelet on n1 has stopped"},
		"cannot be told": {usedCluster{unseen: unseen}, true, "no answer"},
	} {
		err := checkIntact(t.Context(), kubeletRuns{running: c.running}, c.cluster)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}
