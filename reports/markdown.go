package reports

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
)

// writeMarkdown writes a report for a colleague who decides on a change: the
// verdict, the table, the edit, and then what stands behind them.
func writeMarkdown(w io.Writer, r Report) error {
	md := &markdown{r: r}
	for _, part := range []func() error{
		md.verdict, md.table, md.edit, md.setAside, md.pods, md.limits, md.environment,
	} {
		if err := part(); err != nil {
			return err
		}
	}
	_, err := md.WriteTo(w)
	return err
}

type markdown struct {
	bytes.Buffer
	r Report
}

func (md *markdown) printf(format string, args ...any) { fmt.Fprintf(md, format, args...) }

func (md *markdown) list(items []string) {
	for _, item := range items {
		md.printf("- %s\n", escape(oneLine(item)))
	}
}

// escape keeps texts of others from becoming markup.
var escape = strings.NewReplacer("|", `\|`, "<", "&lt;", "`", "'", "*", `\*`, "[", `\[`).Replace

func (md *markdown) verdict() error {
	e := md.r.Run.Experiment
	md.printf("# %s: %s\n\n", e.Name, e.About)
	for _, v := range verdicts(md.r) {
		md.printf("**%s** %s\n\n", v[0], v[1])
	}
	result := Judge(md.r)
	switch {
	case result.Code == CodeAsExpected && len(e.Expect) > 0:
		md.printf("All expectations of the experiment were met.\n\n")
	case result.Code == CodeUnexpected:
		md.printf("Not as the experiment expects:\n\n")
	case result.Code == CodeNoResult:
		md.printf("What the experiment expects can not be judged:\n\n")
	}
	reasons := result.Reasons
	if incomplete := incompleteText(md.r); incomplete != "" && !slices.Contains(reasons, incomplete) {
		reasons = append(reasons, incomplete)
	}
	if len(reasons) > 0 {
		md.list(reasons)
		md.printf("\n")
	}
	return nil
}

func (md *markdown) table() error {
	cols := columns(md.r.Cells, ownColumn)
	perTrial := column{"failed per trial", true, func(c Cell) string {
		if c.Valid() == 0 {
			return "-"
		}
		return listText(c.FailedPerTrial())
	}}
	worst := slices.IndexFunc(cols, func(c column) bool { return c.head == "worst" })
	cols = slices.Insert(cols, worst, perTrial)
	table, err := markdownTable(heads(cols), alignments(cols), rows(cols, md.r.Cells))
	if err != nil {
		return err
	}
	md.printf("## What clients got\n\n%s\n\n%s\n", headline(md.r), table)
	md.printf("Counts are exact, over the requests of the valid trials; \"worst\" is the most failed requests in one trial. " +
		"\"gap\" is the longest time in which no request succeeded, in the worst trial. A dash is a zero.\n\n")
	if text := bounds(md.r); text != "" {
		md.printf("%s\n\n", text)
	}
	return nil
}

func (md *markdown) edit() error {
	all := groups(md.r)
	for _, g := range all {
		about := g.about(all)
		if about != "" {
			about = " (" + about + ")"
		}
		if err := md.change(md.r.of(g), about); err != nil {
			return err
		}
	}
	return nil
}

// change shows the recommended mitigation of one group.
func (md *markdown) change(r Report, about string) error {
	o, ok := recommended(r)
	if !ok {
		return nil
	}
	base := r.Run.Experiment.Base
	text, err := editDiff(base, o.Mitigation)
	advice := editAdvice(base, o.Mitigation)
	if err != nil || (text == "" && len(advice) == 0) {
		return err
	}
	md.printf("## The change to make: %s%s\n\n", o.Name, about)
	md.printf("Of the mitigations without a failure it has the shortest disruption, %.1f s on average.\n\n", o.scenario)
	if text != "" {
		md.printf("```diff\n%s```\n\n", text)
	}
	for _, a := range advice {
		md.printf("- %s\n", a)
	}
	md.printf("\n")
	return nil
}

func (md *markdown) setAside() error {
	if lines := setAside(md.r); len(lines) > 0 {
		md.printf("## Trials that do not count\n\n")
		md.list(lines)
		md.printf("\n")
	}
	if notes := resumedNotes(md.r); len(notes) > 0 {
		md.printf("## Interruptions\n\n")
		md.list(notes)
		md.printf("\n")
	}
	if len(md.r.Warnings) > 0 {
		md.printf("## Warnings about the record\n\n")
		md.list(md.r.Warnings)
		md.printf("\n")
	}
	return nil
}

func (md *markdown) limits() error {
	md.printf("## What this can not tell\n\n")
	if p := md.r.Run.Environment.Provider; p != "eks" {
		md.printf("- The load balancer is a stand-in that behaves as the Application Load Balancer's documentation says. " +
			"Where that is silent (order of its connection pool, lag of registration and deregistration) a real one may differ.\n")
		if p == "embedded" {
			md.printf("- Clients, load balancer and nodes share one machine: network delay is next to nothing, and no packet is lost but by a fault.\n")
		}
	}
	if md.r.Run.Experiment.Base.Workload.App == nil {
		md.printf("- The application is the built-in one. Yours may take longer to answer, to start and to stop.\n")
	}
	md.printf("- %s per cell. Failures come in bursts, so the trial is the unit: more repeats (`--repeats`) narrow the bounds.\n\n",
		count(md.r.Run.Experiment.Repeats, "repeat"))
	return nil
}
