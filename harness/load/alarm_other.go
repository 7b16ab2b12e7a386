//go:build !linux

package load

import (
	"context"
	"time"
)

// alarm waits as exactly as a time.Timer does.
type alarm struct{ ctx context.Context }

// newAlarm makes an alarm whose waits end with ctx at the latest.
func newAlarm(ctx context.Context) (*alarm, error) { return &alarm{ctx}, nil }

// wait returns after d, or when the context ends.
func (a *alarm) wait(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-a.ctx.Done():
	}
	return nil
}

func (a *alarm) close() {}
