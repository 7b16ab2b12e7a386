package form_test

import (
	"errors"
	"testing"

	"lameduck/experiments"
	"lameduck/experiments/form"
)

// Whatever a file has in it, it is an experiment or has problems with a line.
func FuzzParse(f *testing.F) {
	f.Add(form.Starter())
	for _, c := range wrongFiles {
		f.Add([]byte(head + c.spec))
	}
	f.Add([]byte(head + "  scenario: &s {baseline: {length: &d 5s, limit: *d}}\n  vary: {mitigation: [&m {prestop-sleep: 5s}, *m]}\n  <<: *s\n"))
	f.Add([]byte(head + "  ? [a]\n  : b\n  ~: 1\n  scenario: {baseline: !!binary aGk=}\n"))
	f.Add([]byte("&a {spec: *a}"))
	words := experiments.Words()
	f.Fuzz(func(t *testing.T, text []byte) {
		_, err := form.Parse("f.yaml", text, words)
		var problems form.Problems
		if err == nil {
			return
		}
		if !errors.As(err, &problems) || len(problems) == 0 {
			t.Fatalf("got %v, want problems", err)
		}
		for _, p := range problems {
			if p.Line < 1 || p.Text == "" || p.File != "f.yaml" {
				t.Errorf("problem %+v has no line, text or file", p)
			}
		}
	})
}
