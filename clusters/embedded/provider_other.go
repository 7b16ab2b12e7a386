//go:build !linux

package embedded

import (
	"context"
	"errors"
	"io"

	"lameduck/clusters"
)

var errNotLinux = errors.New("an embedded cluster needs Linux")

// RunHost works on Linux only.
func RunHost(context.Context, string) error { return errNotLinux }

// Up works on Linux only.
func (p *Provider) Up(context.Context, clusters.Options, io.Writer) (clusters.Cluster, error) {
	return nil, errNotLinux
}

// Open works on Linux only.
func (p *Provider) Open(context.Context, string) (clusters.Cluster, error) { return nil, errNotLinux }

// Status works on Linux only.
func (p *Provider) Status(context.Context, string) (clusters.Status, error) {
	return clusters.Status{}, errNotLinux
}

// Clean works on Linux only.
func (p *Provider) Clean(context.Context, string, io.Writer) error { return errNotLinux }
