package form

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong with a file.
type Problem struct {
	File string
	Line int    // from 1
	Path string // of the field, such as spec.load.rate; "": the file as a whole
	Text string // what is wrong and what would be right
}

// String is the problem in the form that editors and terminals make a link of.
func (p Problem) String() string {
	if p.Path == "" {
		return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Text)
	}
	return fmt.Sprintf("%s:%d: %s: %s", p.File, p.Line, p.Path, p.Text)
}

// Problems are all that is wrong with a file, in the order of its lines.
type Problems []Problem

// Error has a line for each problem.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// sorted is by line, and without those that are there twice.
func (ps Problems) sorted() Problems {
	slices.SortStableFunc(ps, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
	return slices.Compact(ps)
}

// hint asks for the one of words that text was most likely meant to be, if one
// is near.
func hint(text string, words []string) string {
	if word := nearest(text, words); word != "" && word != text {
		return fmt.Sprintf(", did you mean %s?", word)
	}
	return ""
}

// nearest is the one of words that text was most likely meant to be, "" if none
// is near.
func nearest(text string, words []string) string {
	best, distance := "", 1+max(2, len(text)/3)
	for _, w := range words {
		d := edits(strings.ToLower(text), strings.ToLower(w))
		if d < distance && d < len(w) {
			best, distance = w, d
		}
	}
	if i := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, text) }); best == "" && i >= 0 {
		return words[i]
	}
	return best
}

// edits is the Levenshtein distance: how many letters have to be put in, taken
// out or changed to make b of a.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
