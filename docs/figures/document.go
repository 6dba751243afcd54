package main

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// A document is a page of Markdown.
type document struct {
	name, text string
}

// A part of a document is what one claim says: a figure, a cell, or a block.
type part struct {
	at, end int
	text    string
	what    string   // for whoever reads the verdict
	find    patterns // with the row's words in them
	group   int      // of one expression for several figures; 0: all
}

type span struct{ at, end int }

func (d *document) line(at int) int { return 1 + strings.Count(d.text[:at], "\n") }

// locate finds words, broken into lines in whatever way. They must be there once.
func (d *document) locate(words string) (span, error) {
	escaped := strings.Fields(words)
	for i, w := range escaped {
		escaped[i] = regexp.QuoteMeta(w)
	}
	found := regexp.MustCompile(strings.Join(escaped, `\s+`)).FindAllStringIndex(d.text, -1)
	if len(found) != 1 {
		return span{}, fmt.Errorf("these words stand there %d times, want once", len(found))
	}
	return span{found[0][0], found[0][1]}, nil
}

var braced = regexp.MustCompile(`\{([^{}]*)\}`)

// parts are the figures of a claim, where they stand.
func (c *claim) parts(d *document) ([]part, error) {
	switch {
	case c.Words != "" && c.Table == "" && c.Block == "":
		return c.inWords(d)
	case c.Table != "" && c.Words == "" && c.Block == "":
		return c.inTable(d)
	case c.Block != "" && c.Words == "" && c.Table == "":
		s, err := d.block(c.Block)
		return []part{{at: s.at, end: s.end, text: d.text[s.at:s.end], what: c.Block}}, err
	}
	return nil, errors.New("want one of words, table and block")
}

func (c *claim) inWords(d *document) (parts []part, err error) {
	plain := braced.ReplaceAllString(c.Words, "$1")
	s, err := d.locate(plain)
	if err != nil {
		return nil, err
	}
	marks := braced.FindAllStringSubmatchIndex(c.Words, -1)
	if n := len(c.Find); len(marks) == 0 || n != 1 && n != len(marks) {
		return nil, fmt.Errorf("%d figures in braces, and %d expressions to find them", len(marks), n)
	}
	for i, m := range marks {
		// What is before the figure is as long in the document but for spaces.
		before := strings.Fields(braced.ReplaceAllString(c.Words[:m[0]], "$1") + "\x00")
		for n, w := range before {
			before[n] = regexp.QuoteMeta(strings.TrimSuffix(w, "\x00"))
		}
		lead := regexp.MustCompile(`^` + strings.Join(before, `\s+`)).FindStringIndex(d.text[s.at:])
		at := s.at + lead[1]
		figure := c.Words[m[2]:m[3]]
		p := part{at: at, end: at + len(figure), text: figure, what: plain, find: c.Find}
		switch {
		case len(c.Find) > 1:
			p.find = c.Find[i : i+1]
		case len(marks) > 1:
			p.group = i + 1
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// A row of a table: its cells, and where they are.
type row struct {
	cells []string
	at    []int
}

// table is the rows below a head.
func (d *document) table(head string) (rows []row, err error) {
	at := strings.Index("\n"+d.text, "\n"+head+"\n")
	if at < 0 || strings.Count("\n"+d.text, "\n"+head+"\n") > 1 {
		return nil, errors.New("want one table with this head")
	}
	for line := range strings.Lines(d.text[at:]) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		rows = append(rows, split(line, at))
		at += len(line)
	}
	if len(rows) < 3 {
		return nil, errors.New("the table has no rows")
	}
	return rows[2:], nil
}

func split(line string, at int) (r row) {
	from := 1
	for i := 1; i < len(line); i++ {
		if line[i] == '|' {
			cell := line[from:i]
			lead := len(cell) - len(strings.TrimLeft(cell, " "))
			r.cells, r.at = append(r.cells, strings.TrimSpace(cell)), append(r.at, at+from+lead)
			from = i + 1
		}
	}
	return r
}

var placeholder = regexp.MustCompile(`\$(\d)`)

func (c *claim) inTable(d *document) (parts []part, err error) {
	rows, err := d.table(c.Table)
	if err != nil {
		return nil, err
	}
	if len(c.Columns) == 0 {
		return nil, errors.New("no columns")
	}
	used := make(map[string]bool) // names
	above := make(map[int]string)
	for _, r := range rows {
		for i, cell := range r.cells {
			if cell != "" {
				above[i+1] = cell
			}
		}
	columns:
		for _, column := range sorted(c.Columns) {
			if column > len(r.cells) {
				return nil, fmt.Errorf("no column %d", column)
			}
			cell := r.cells[column-1]
			if !hasDigit(cell) {
				continue
			}
			p := part{at: r.at[column-1], end: r.at[column-1] + len(cell), text: cell, what: strings.Join(r.cells, " | ")}
			for _, pattern := range c.Columns[column] {
				skip := false
				pattern = placeholder.ReplaceAllStringFunc(pattern, func(s string) string {
					key := above[int(s[1]-'0')]
					name, there := c.Names[key]
					used[key] = true
					if !there {
						name = regexp.QuoteMeta(strings.ReplaceAll(strings.Trim(key, "`"), ",", ""))
					}
					skip = skip || there && name == ""
					return name
				})
				if skip {
					continue columns
				}
				p.find = append(p.find, pattern)
			}
			parts = append(parts, p)
		}
	}
	for key := range c.Names {
		if !used[key] {
			return nil, fmt.Errorf("names: no row has %q", key)
		}
	}
	return parts, nil
}

func hasDigit(s string) bool { return strings.ContainsAny(s, "0123456789") }

// block is what stands between fences without a language, by a line of it.
func (d *document) block(line string) (span, error) {
	for _, b := range d.blocks() {
		for l := range strings.Lines(d.text[b.at:b.end]) {
			if strings.TrimSpace(l) == strings.TrimSpace(line) {
				return b, nil
			}
		}
	}
	return span{}, errors.New("no block has this line")
}

// fences are all blocks, with their language.
var fences = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```")

func (d *document) blocks() (list []span) {
	for _, m := range fences.FindAllStringSubmatchIndex(d.text, -1) {
		if m[2] == m[3] {
			list = append(list, span{m[4], m[5]})
		}
	}
	return list
}

var headings = regexp.MustCompile(`(?m)^(#+) .*$`)

// section is what stands under a heading, and under those below it.
func (d *document) section(heading string) (span, error) {
	depth, from := 0, 0
	for _, m := range headings.FindAllStringSubmatchIndex(d.text, -1) {
		switch level := m[3] - m[2]; {
		case depth > 0 && level <= depth:
			return span{from, m[0]}, nil
		case depth == 0 && d.text[m[0]:m[1]] == heading:
			depth, from = level, m[0]
		}
	}
	if depth == 0 {
		return span{}, errors.New("there is no such heading")
	}
	return span{from, len(d.text)}, nil
}

func sorted[K int | string, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
