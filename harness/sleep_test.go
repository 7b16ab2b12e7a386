package harness

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if err := Sleep(t.Context(), time.Minute); err != nil || time.Since(start) != time.Minute {
			t.Errorf("after %s: %v, want nil after 1m", time.Since(start), err)
		}
		reason := errors.New("the load has ended")
		ctx, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { stop(reason) })
		start = time.Now()
		if err := Sleep(ctx, time.Minute); !errors.Is(err, reason) || time.Since(start) != time.Second {
			t.Errorf("after %s: %v, want the cause after 1s", time.Since(start), err)
		}
	})
}
