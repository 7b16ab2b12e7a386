package elb

import (
	"context"
	"fmt"
	"slices"
)

// DescribeTargetHealth implements API.
func (s *Service) DescribeTargetHealth(ctx context.Context, name string) ([]TargetHealth, error) {
	if err := s.enter(ctx, s.describeCalls); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	g := s.groups[name]
	if g == nil {
		return nil, fmt.Errorf("target group %s: %w", name, ErrTargetGroupNotFound)
	}
	all := make([]TargetHealth, 0, len(g.order))
	for _, t := range g.order {
		all = append(all, t.shown)
	}
	slices.SortFunc(all, func(a, b TargetHealth) int { return a.Target.Compare(b.Target) })
	return all, nil
}
