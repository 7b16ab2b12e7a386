package kube

import (
	"context"
	"errors"
	"slices"
	"testing"
)

func TestRepairsAreDoneOnceAndInOrder(t *testing.T) {
	var r repairs
	var did []string
	step := func(name string, errs ...error) func(context.Context) error {
		return r.add(func(context.Context) error {
			did = append(did, name)
			if len(errs) > 0 {
				err := errs[0]
				errs = errs[1:]
				return err
			}
			return nil
		})
	}
	step("a")
	b := step("b")
	step("c", errNotNow)
	if err := b(t.Context()); err != nil {
		t.Error(err)
	}
	if err := r.all(t.Context()); !errors.Is(err, errNotNow) {
		t.Errorf("error %v, want that of c", err)
	}
	if err := r.all(t.Context()); err != nil {
		t.Error(err)
	}
	if want := []string{"b", "a", "c", "c"}; !slices.Equal(did, want) {
		t.Errorf("did %v, want %v", did, want)
	}
}
