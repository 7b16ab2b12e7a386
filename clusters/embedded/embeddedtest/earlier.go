//go:build linux

package embeddedtest

import (
	"context"
	"io"
	"testing"
)

// Cleaner removes what exists of a cluster, in any state. The embedded provider
// is one.
type Cleaner interface {
	Clean(ctx context.Context, name string, log io.Writer) error
}

// RemoveAround removes the test's cluster when the test ends, and before it
// begins: a test run that was killed could not do so. Clusters of tests have
// names of their own, so that nobody else's is touched.
func RemoveAround(t testing.TB, c Cleaner, name string) {
	t.Helper()
	if err := c.Clean(t.Context(), name, io.Discard); err != nil {
		t.Fatalf("remove what an earlier test run left: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Clean(context.Background(), name, io.Discard); err != nil {
			t.Error(err)
		}
	})
}
