package harness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// mendLimit bounds undoing one fault; like the removal of a trial it happens
// after Ctrl-C too.
const mendLimit = 30 * time.Second

// faults are what is broken during one trial.
type faults struct {
	event func(kind EventKind, object string) time.Duration

	wg   sync.WaitGroup
	over chan struct{} // closed when the load is over
	mu   sync.Mutex
	errs []error
}

// begin breaks what is to be broken, and starts the clock of what is to last
// only for a while.
func (b *faults) begin(ctx context.Context, d Deployment, fs []Fault) error {
	b.over = make(chan struct{})
	fs = slices.DeleteFunc(slices.Clone(fs), Fault.Deployed)
	if len(fs) == 0 {
		return nil
	}
	faulty, ok := d.(Faulty)
	if !ok {
		return fmt.Errorf("fault %s: nothing can be broken on this cluster", fs[0].Kind)
	}
	for _, f := range fs {
		mend, err := faulty.Break(ctx, f)
		if err != nil {
			return fmt.Errorf("fault %s: %w", f.Kind, err)
		}
		b.event(EventFault, string(f.Kind))
		b.wg.Go(func() { b.mendLater(context.WithoutCancel(ctx), f, mend) })
	}
	return nil
}

func (b *faults) mendLater(ctx context.Context, f Fault, mend func(context.Context) error) {
	var after <-chan time.Time
	if f.For.Duration > 0 {
		timer := time.NewTimer(f.For.Duration)
		defer timer.Stop()
		after = timer.C
	}
	select {
	case <-after:
	case <-b.over:
	}
	ctx, cancel := context.WithTimeout(ctx, mendLimit)
	defer cancel()
	if err := mend(ctx); err != nil {
		b.mu.Lock()
		b.errs = append(b.errs, fmt.Errorf("mend fault %s: %w", f.Kind, err))
		b.mu.Unlock()
		return
	}
	b.event(EventFaultMended, string(f.Kind))
}

// end mends what is still broken.
func (b *faults) end() error {
	if b.over == nil { // never begun
		return nil
	}
	close(b.over)
	b.wg.Wait()
	return errors.Join(b.errs...)
}

// DeregistrationLag is the load balancer's, or that of a fault.
func (s Setup) DeregistrationLag() DurationRange {
	lag := s.LoadBalancer.DeregistrationLag
	for _, f := range s.Faults {
		if f.Kind == FaultLateDeregistration {
			lag = f.Lag
		}
	}
	return lag
}
