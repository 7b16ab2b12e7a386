package main

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// burnLimit ends a burn that nobody ends, so that a forgotten pod does not
// heat the machine.
const burnLimit = 10 * time.Minute

// burnPeriod is short, so that the application still answers in time between
// two bursts.
const burnPeriod = 10 * time.Millisecond

func maxMillicores() int { return 1000 * runtime.GOMAXPROCS(0) }

// burner uses CPU time. The amount is about right as long as the machine has
// it to give: a burst is timed by the wall clock.
type burner struct {
	mu   sync.Mutex
	stop func()
}

// set replaces what was burned before.
func (b *burner) set(millicores int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stop != nil {
		b.stop()
	}
	ctx, cancel := context.WithTimeout(context.Background(), burnLimit)
	b.stop = cancel
	for ; millicores > 0; millicores -= 1000 {
		go burn(ctx, burnPeriod*time.Duration(min(millicores, 1000))/1000)
	}
}

// burn is busy for the given time of every burnPeriod.
func burn(ctx context.Context, busy time.Duration) {
	tick := time.NewTicker(burnPeriod)
	defer tick.Stop()
	for {
		for end := time.Now().Add(busy); time.Now().Before(end); {
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
