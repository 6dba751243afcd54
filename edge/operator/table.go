package operator

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// width is how many columns a table may take.
const width = 100

// least is how far a column is cut.
const least = 8

// A Table is rows of text in aligned columns, a title above each. A column in which there is
// nothing is left out. What is too wide for the terminal is cut (…), in the columns that may be
// cut, the widest first: sources are always whole, because one copies them. So is a text in the
// last column, because half of a sentence may say the opposite; the terminal wraps it.
type Table struct {
	Columns []Column
	rows    [][]string
}

// Column is one of a Table.
type Column struct {
	Title string
	Form  Form
}

// Form says how a column is written.
type Form uint8

const (
	Whole Form = iota
	Cut        // may be cut
	Right      // numbers: aligned at the right
	Text       // the last column: whole, however wide
)

// Add adds a row. What would move a terminal's cursor is not in it.
func (t *Table) Add(cells ...string) {
	for i := range cells {
		cells[i] = Printable(cells[i])
	}
	t.rows = append(t.rows, cells)
}

// Write prints the table.
func (t *Table) Write(w io.Writer) error {
	widths := make([]int, len(t.Columns))
	for _, row := range t.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	total := -2
	for i, c := range t.Columns {
		if widths[i] > 0 {
			widths[i] = max(widths[i], len(c.Title))
			if total += 2; c.Form == Text {
				total += max(least, len(c.Title))
			} else {
				total += widths[i]
			}
		}
	}
	for total > width {
		widest := -1
		for i, c := range t.Columns {
			if c.Form == Cut && widths[i] > max(least, len(c.Title)) &&
				(widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
		total--
	}
	titles := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		titles[i] = c.Title
	}
	for _, row := range append([][]string{titles}, t.rows...) {
		var line strings.Builder
		for i, cell := range row {
			if widths[i] == 0 {
				continue
			}
			if line.Len() > 0 {
				line.WriteString("  ")
			}
			runes := []rune(cell)
			if len(runes) > widths[i] {
				cell = string(runes[:widths[i]-1]) + "…"
			}
			pad := strings.Repeat(" ", max(0, widths[i]-len(runes)))
			if t.Columns[i].Form == Right {
				cell = pad + cell
			} else {
				cell += pad
			}
			line.WriteString(cell)
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(line.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

// Printable is text without what would move a terminal's cursor or change its colours: reasons,
// paths and names are written by others.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '·'
	}, s)
}

// Clock writes a time for people, with its zone, which is that of logs and of the API: people of
// several zones read one page.
func Clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

// Span writes a duration to the second, to the minute from an hour on.
func Span(d time.Duration) string {
	if d >= time.Hour {
		d = d.Round(time.Minute)
	}
	s := d.Round(time.Second).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Number writes a count with its thousands apart.
func Number(n uint64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
