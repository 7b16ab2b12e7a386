package conformance

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestFacts tests every fact.
func TestFacts(t *testing.T) {
	for _, f := range Facts() {
		t.Run(f.ID, func(t *testing.T) {
			t.Parallel()
			r := check(t.Context(), f, factLimit)
			for _, text := range r.Failures {
				t.Errorf("%s: %s", f.Name, text)
			}
			for _, text := range r.Notes {
				t.Log(text)
			}
		})
	}
}

func TestFactsAreWellFormed(t *testing.T) {
	id := regexp.MustCompile(`^[1-8](-[a-z0-9]+)+$`)
	seen := map[string]bool{}
	for _, f := range Facts() {
		if !id.MatchString(f.ID) || int(f.ID[0]-'0') != f.Section || seen[f.ID] || seen[f.Name] {
			t.Errorf("%s: want <section>-<words>, no ID and no name twice", f.ID)
		}
		seen[f.ID], seen[f.Name] = true, true
		if !strings.Contains("DSOIU", string(f.Grade)) || len(f.Grade) != 1 || f.Source == "" || f.Test == nil {
			t.Errorf("%s: grade %q, source %q", f.ID, f.Grade, f.Source)
		}
	}
}

func factOf(test func(*T)) Fact { return Fact{"1-x", 1, Inferred, "none", "a fact", test} }

func TestCheckReports(t *testing.T) {
	var order []string
	for name, c := range map[string]struct {
		test func(*T)
		want []string
	}{
		"holds":  {func(t *T) { t.Logf("note") }, nil},
		"errors": {func(t *T) { t.Errorf("a %d", 1); t.Errorf("b") }, []string{"a 1", "b"}},
		"fatal":  {func(t *T) { t.Fatalf("end"); t.Errorf("not reached") }, []string{"end"}},
		"panics": {func(*T) { panic("ouch") }, []string{"panic: ouch"}},
		"cleanups, the last first, each although another fails": {func(t *T) {
			for _, s := range []string{"one", "two"} {
				t.Cleanup(func() { order = append(order, s); t.Fatalf("%s", s) })
			}
			panic("test")
		}, []string{"panic: test", "two", "one"}},
		"hangs": {func(t *T) { <-t.Context().Done(); t.eventually("end", func() bool { return false }) }, []string{"no end: the time limit of 50ms is over"}},
	} {
		limit := time.Minute
		if name == "hangs" {
			limit = 50 * time.Millisecond
		}
		r := check(t.Context(), factOf(c.test), limit)
		if len(r.Failures) != len(c.want) {
			t.Errorf("%s: %q, want %q", name, r.Failures, c.want)
			continue
		}
		for i, want := range c.want {
			if !strings.HasPrefix(r.Failures[i], want) {
				t.Errorf("%s: %q, want %q", name, r.Failures[i], want)
			}
		}
	}
	if strings.Join(order, " ") != "two one" {
		t.Errorf("cleanups ran in order %v", order)
	}
}

func TestTempDirGoes(t *testing.T) {
	var dir string
	r := check(t.Context(), factOf(func(t *T) { dir = t.TempDir() }), time.Minute)
	if len(r.Failures) > 0 || dir == "" {
		t.Fatal(r.Failures, dir)
	}
}

func TestRunPrintsTable(t *testing.T) {
	var out strings.Builder
	failed, err := Run(t.Context(), &out, "^1-refused-no-retry$")
	if err != nil || failed != 0 {
		t.Fatalf("%d failed, %v\n%s", failed, err, out.String())
	}
	for _, want := range []string{"grade", "source", "a request whose connection is refused", "holds", "1 facts, 1 hold, 0 do not"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestTableTellsFailures(t *testing.T) {
	table, err := Table([]Result{{Fact: factOf(nil)}, {Fact: factOf(nil), Failures: []string{"x"}}})
	if err != nil || strings.Count(table, "holds") != 1 || strings.Count(table, "FAILS") != 1 {
		t.Errorf("%v\n%s", err, table)
	}
}

func TestRunRefuses(t *testing.T) {
	for filter, want := range map[string]string{"(": `filter "("`, "no such fact": "matches no fact"} {
		if _, err := Run(t.Context(), &strings.Builder{}, filter); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", filter, err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, &strings.Builder{}, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want canceled", err)
	}
}
