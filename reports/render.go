package reports

import (
	"fmt"
	"io"
	"slices"
)

// Format is a form in which a report can be written.
type Format string

// The formats.
const (
	FormatTable    Format = "table" // for a terminal
	FormatMarkdown Format = "md"    // for people who decide, e.g. on GitHub
	FormatJSON     Format = "json"  // for programs; see writeJSON
)

var formats = []Format{FormatTable, FormatMarkdown, FormatJSON}

// ParseFormat accepts the name of a format.
func ParseFormat(name string) (Format, error) {
	if f := Format(name); slices.Contains(formats, f) {
		return f, nil
	}
	return "", fmt.Errorf("format %q: want one of %s", name, joinWords(formats, ", "))
}

// Render writes a report. width is that of the terminal in columns, for
// FormatTable only; 0 is without limit.
func Render(w io.Writer, r Report, f Format, width int) error {
	switch f {
	case FormatTable:
		return writeTable(w, r, width)
	case FormatMarkdown:
		return writeMarkdown(w, r)
	case FormatJSON:
		return writeJSON(w, r)
	}
	_, err := ParseFormat(string(f))
	return err
}
