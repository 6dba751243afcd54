package page

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// text writes the table with its first column to the left, if it holds names, and the others to the
// right.
func (t *Table) text(b *strings.Builder) {
	var widths []int
	for _, cells := range t.Rows {
		for i, c := range cells {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	for _, cells := range t.Rows {
		line := ""
		for i, c := range cells {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c))
			switch {
			case i > 0 && t.Words:
				line += "  " + c + pad
			case i > 0:
				line += "  " + pad + c
			case t.Right:
				line = pad + c
			default:
				line = c + pad
			}
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	if len(t.Notes) > 0 {
		b.WriteByte('\n')
	}
	for _, note := range t.Notes {
		b.WriteString(note + "\n")
	}
	if len(t.Terms) == 0 {
		return
	}
	b.WriteByte('\n')
	width := 0
	for _, term := range t.Terms {
		width = max(width, len(term[0]))
	}
	for _, term := range t.Terms {
		fmt.Fprintf(b, "%-*s  %s\n", width, term[0], term[1])
	}
}
