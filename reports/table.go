package reports

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"
)

// writeTable writes a report for a terminal: what was run, the cells, and what
// a reader of the numbers must know besides.
func writeTable(w io.Writer, r Report, width int) error {
	table, same, err := fitTable(r.Cells, width)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	out.WriteString(wrap(headline(r), width, "") + "\n" + table)
	if len(same) > 0 {
		out.WriteString(wrap("in every row: "+strings.Join(same, ", "), width, "  "))
	}
	out.WriteString("\n")
	for _, v := range verdicts(r) {
		out.WriteString(wrap(v[0], width, "") + wrap(v[1], width, ""))
	}
	if text := bounds(r); text != "" {
		out.WriteString(wrap(text, width, ""))
	}
	notes := Judge(r).Reasons
	if incomplete := incompleteText(r); incomplete != "" && !slices.Contains(notes, incomplete) {
		notes = append(notes, incomplete)
	}
	for _, note := range slices.Concat(notes, setAside(r), resumedNotes(r), r.Warnings) {
		out.WriteString(wrap("- "+oneLine(note), width, "  "))
	}
	_, err = out.WriteTo(w)
	return err
}

func heads(cols []column) []string {
	out := make([]string, len(cols))
	for i, col := range cols {
		out[i] = col.head
	}
	return out
}

func alignments(cols []column) tw.Alignment {
	out := make(tw.Alignment, len(cols))
	for i, col := range cols {
		out[i] = tw.AlignLeft
		if col.right {
			out[i] = tw.AlignRight
		}
	}
	return out
}

// plainTable has no lines, only columns.
func plainTable(head []string, align tw.Alignment, rows [][]string) (string, error) {
	text, err := makeTable(head, align, rows,
		tablewriter.WithPadding(tw.Padding{Left: " ", Right: " ", Overwrite: true}),
		tablewriter.WithRenderer(renderer.NewBlueprint(tw.Rendition{
			Borders:  tw.BorderNone,
			Settings: tw.Settings{Separators: tw.SeparatorsNone, Lines: tw.LinesNone},
		})))
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for line := range strings.Lines(text) {
		out.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return out.String(), nil
}

// markdownTable is a table in GitHub's Markdown.
func markdownTable(head []string, align tw.Alignment, rows [][]string) (string, error) {
	return makeTable(head, align, rows, tablewriter.WithRenderer(renderer.NewMarkdown()))
}

func makeTable(head []string, align tw.Alignment, rows [][]string, options ...tablewriter.Option) (string, error) {
	var out strings.Builder
	table := tablewriter.NewTable(&out, append([]tablewriter.Option{
		tablewriter.WithHeaderAutoFormat(tw.Off),
		tablewriter.WithHeaderAutoWrap(tw.WrapNone),
		tablewriter.WithRowAutoWrap(tw.WrapNone),
		tablewriter.WithHeaderAlignmentConfig(tw.CellAlignment{PerColumn: align}),
		tablewriter.WithRowAlignmentConfig(tw.CellAlignment{PerColumn: align}),
	}, options...)...)
	table.Header(head)
	if err := table.Bulk(rows); err != nil {
		return "", fmt.Errorf("make table: %w", err)
	}
	if err := table.Render(); err != nil {
		return "", fmt.Errorf("make table: %w", err)
	}
	return out.String(), nil
}
