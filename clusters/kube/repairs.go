package kube

import (
	"context"
	"errors"
	"sync"
)

// repairs are what is to be undone of what was done to a cluster. The zero value
// is ready.
type repairs struct {
	mu   sync.Mutex
	open []func(context.Context) error
}

// add returns f as a function that does nothing once f has succeeded; all calls it too.
func (r *repairs) add(f func(context.Context) error) func(context.Context) error {
	var mu sync.Mutex
	done := false
	once := func(ctx context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if done {
			return nil
		}
		err := f(ctx)
		done = err == nil
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = append(r.open, once)
	return once
}

// all undoes everything, the oldest first: faults begin before a scenario does
// anything, and one may keep the API server from answering.
func (r *repairs) all(ctx context.Context) error {
	r.mu.Lock()
	open := r.open
	r.mu.Unlock()
	var errs []error
	for _, f := range open {
		errs = append(errs, f(ctx))
	}
	return errors.Join(errs...)
}
