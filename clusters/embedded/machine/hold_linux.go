package machine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"
)

// holds are the requests that have a component stopped.
type holds struct {
	mu      sync.Mutex
	stopped map[*child]int // by how many at the moment
	all     map[*held]bool
}

type held struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// hold stops a component for a share of the time until ctx ends or all holds are
// released. When it returns, the component is stopped for the first time; it
// runs again when h.done is closed.
func (s *supervisor) hold(ctx context.Context, component string, share float64) (h *held, err error) {
	i, err := s.index(component)
	if err != nil {
		return nil, err
	}
	if share <= 0 || share > 1 {
		return nil, fmt.Errorf("share is %g: want more than 0 and at most 1", share)
	}
	ch := s.child(i)
	if ch == nil || !s.pause(ch) {
		return nil, errors.New("it does not run")
	}
	h = &held{done: make(chan struct{})}
	ctx, h.cancel = context.WithCancel(ctx)
	s.holds.mu.Lock()
	if s.holds.all == nil {
		s.holds.all = make(map[*held]bool)
	}
	s.holds.all[h] = true
	s.holds.mu.Unlock()
	go func() {
		defer close(h.done)
		duty(ctx, share, func() { s.pause(ch) }, func() { s.resume(ch) })
		s.holds.mu.Lock()
		defer s.holds.mu.Unlock()
		delete(s.holds.all, h)
	}()
	return h, nil
}

// duty goes on with what has begun with a stop, and ends with a resume.
func duty(ctx context.Context, share float64, stop, resume func()) {
	stopped := time.Duration(share * float64(holdPeriod))
	for {
		if share == 1 {
			<-ctx.Done()
		} else {
			sleep(ctx, stopped)
		}
		resume()
		sleep(ctx, holdPeriod-stopped)
		if ctx.Err() != nil {
			return
		}
		stop()
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// pause stops a component and says whether it runs otherwise.
func (s *supervisor) pause(ch *child) bool {
	s.holds.mu.Lock()
	defer s.holds.mu.Unlock()
	if !s.signal(ch, syscall.SIGSTOP) {
		return false
	}
	if s.holds.stopped == nil {
		s.holds.stopped = make(map[*child]int)
	}
	s.holds.stopped[ch]++
	return true
}

// resume lets a component run unless another hold has it stopped.
func (s *supervisor) resume(ch *child) {
	s.holds.mu.Lock()
	defer s.holds.mu.Unlock()
	if s.holds.stopped[ch]--; s.holds.stopped[ch] > 0 {
		return
	}
	delete(s.holds.stopped, ch)
	s.signal(ch, syscall.SIGCONT)
}

// release ends all holds, and lets run what somebody else has stopped.
func (s *supervisor) release() {
	s.holds.mu.Lock()
	var all []*held
	for h := range s.holds.all {
		all = append(all, h)
	}
	s.holds.mu.Unlock()
	for _, h := range all {
		h.cancel()
		<-h.done
	}
	for i := range s.spec.Components {
		if ch := s.child(i); ch != nil {
			s.signal(ch, syscall.SIGCONT)
		}
	}
}
