package conformance

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"
)

const (
	// parallel is how many facts are tested at a time: most of them wait.
	parallel = 16
	// factLimit is for a test that hangs; they take less than two seconds.
	factLimit = 20 * time.Second
)

// Run tests the facts whose ID or name matches filter, a regular expression
// ("": all), and prints the table of results to w, with what went wrong below
// it. It returns how many facts do not hold. An error says that there is no
// complete table: a bad filter, a canceled context, a writer that fails.
func Run(ctx context.Context, w io.Writer, filter string) (failed int, err error) {
	facts, err := Select(filter)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	results := testAll(ctx, facts)
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("conformance: %w", context.Cause(ctx))
	}
	table, err := Table(results)
	if err != nil {
		return 0, err
	}
	var details strings.Builder
	for _, r := range results {
		if len(r.Failures) > 0 {
			failed++
			fmt.Fprintf(&details, "\n%s: %s\n", r.Fact.ID, r.Fact.Name)
			for _, text := range append(r.Failures, r.Notes...) {
				fmt.Fprintf(&details, "    %s\n", strings.ReplaceAll(text, "\n", "\n    "))
			}
		}
	}
	summary := fmt.Sprintf("\n%d facts, %d hold, %d do not (%s)\n", len(results), len(results)-failed, failed, time.Since(start).Round(100*time.Millisecond))
	if _, err := io.WriteString(w, table+details.String()+summary); err != nil {
		return failed, fmt.Errorf("print table: %w", err)
	}
	return failed, nil
}

// Select returns the facts whose ID or name matches a regular expression.
func Select(filter string) ([]Fact, error) {
	re, err := regexp.Compile(filter)
	if err != nil {
		return nil, fmt.Errorf("filter %q: want a regular expression: %w", filter, err)
	}
	var facts []Fact
	for _, f := range Facts() {
		if re.MatchString(f.ID) || re.MatchString(f.Name) {
			facts = append(facts, f)
		}
	}
	if len(facts) == 0 {
		return nil, fmt.Errorf("filter %q matches no fact", filter)
	}
	return facts, nil
}

// testAll tests a bounded number of facts at a time. Results have the order of
// the facts.
func testAll(ctx context.Context, facts []Fact) []Result {
	results := make([]Result, len(facts))
	slots := make(chan struct{}, parallel)
	var running sync.WaitGroup
	for i, f := range facts {
		slots <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		running.Go(func() {
			defer func() { <-slots }()
			results[i] = check(ctx, f, factLimit)
		})
	}
	running.Wait()
	return results
}

// Table has a line for each result.
func Table(results []Result) (string, error) {
	var out strings.Builder
	table := tablewriter.NewTable(&out,
		tablewriter.WithHeaderAutoFormat(tw.Off),
		tablewriter.WithHeaderAlignment(tw.AlignLeft),
		tablewriter.WithRowAlignment(tw.AlignLeft),
		tablewriter.WithRowAutoWrap(tw.WrapNone),
		tablewriter.WithPadding(tw.Padding{Right: "  ", Overwrite: true}),
		tablewriter.WithRenderer(renderer.NewBlueprint(tw.Rendition{
			Borders:  tw.BorderNone,
			Settings: tw.Settings{Separators: tw.SeparatorsNone, Lines: tw.LinesNone},
		})))
	table.Header([]string{"", "grade", "fact", "source", "result"})
	for _, r := range results {
		outcome := "holds"
		if len(r.Failures) > 0 {
			outcome = "FAILS"
		}
		row := []string{strconv.Itoa(r.Fact.Section), string(r.Fact.Grade), r.Fact.Name, r.Fact.Source, outcome}
		if err := table.Append(row); err != nil {
			return "", fmt.Errorf("make table: %w", err)
		}
	}
	if err := table.Render(); err != nil {
		return "", fmt.Errorf("make table: %w", err)
	}
	var trimmed strings.Builder
	for line := range strings.Lines(out.String()) {
		trimmed.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return trimmed.String(), nil
}
