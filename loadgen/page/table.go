package page

import (
	"strings"
	"unicode/utf8"
)

// WriteTable aligns the first column to the left and the others to the right.
func WriteTable(b *strings.Builder, table [][]string) {
	var widths []int
	for _, cells := range table {
		for i, c := range cells {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	for _, cells := range table {
		line := ""
		for i, c := range cells {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c))
			if i == 0 {
				line = c + pad
			} else {
				line += "  " + pad + c
			}
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}
