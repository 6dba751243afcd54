package main

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A figure in a sentence is a number with a unit, a share or a multiple. In a table every cell with a digit is one, but for the
// first of a row, which says what the row is about; and so is a whole block of output.
var measured = regexp.MustCompile(`\d[\d,]*(?:\.\d+)?(?: to \d[\d,]*(?:\.\d+)?| and \d[\d,]*(?:\.\d+)?)?(?:` +
	` ?(?:%|ns\b|µs|ms\b|[KMGT]i?B\b|[KMG]bit/s)` +
	`| (?:s\b|bytes?\b|seconds?\b|minutes?\b|times\b|cores?\b|commands?\b|decisions?\b|wrong\b|requests refused)` +
	`|/s\b)`)

var (
	code  = regexp.MustCompile("`[^`\n]*`")
	cells = regexp.MustCompile(`(?m)^\|.*\|$`)
	rule  = regexp.MustCompile(`^[|\s:-]+$`)
)

// figures are where a document says a figure.
func (d *document) figures() (list []span) {
	for _, b := range d.blocks() {
		if hasDigit(d.text[b.at:b.end]) {
			list = append(list, b)
		}
	}
	// What is not prose is blanked, so that places stay what they are.
	blank := func(s string) string {
		spaces := bytes.Repeat([]byte(" "), len(s))
		for i := range len(s) {
			if s[i] == '\n' {
				spaces[i] = '\n'
			}
		}
		return string(spaces)
	}
	text := fences.ReplaceAllStringFunc(d.text, blank)
	text = code.ReplaceAllStringFunc(text, blank)
	head := ""
	for _, m := range cells.FindAllStringIndex(text, -1) {
		line := text[m[0]:m[1]]
		if m[0] == 0 || strings.HasSuffix(strings.TrimRight(text[:m[0]], " "), "\n\n") {
			head = line
		}
		if line == head || rule.MatchString(line) {
			continue
		}
		r := split(line, m[0])
		for i := 1; i < len(r.cells); i++ {
			if hasDigit(r.cells[i]) {
				list = append(list, span{r.at[i], r.at[i] + len(r.cells[i])})
			}
		}
	}
	text = cells.ReplaceAllStringFunc(text, blank)
	for _, m := range measured.FindAllStringIndex(text, -1) {
		list = append(list, span{m[0], m[1]})
	}
	return list
}

// uncovered names each figure that neither a claim nor an exemption has, and each exemption that does not fit.
func (b *book) uncovered() (err error) {
	for _, name := range sorted(b.texts) {
		d := b.texts[name]
		var covered []span
		for _, c := range b.Claims[name] {
			parts, e := c.parts(d)
			if err = errors.Join(err, e); c.Table != "" {
				covered = append(covered, c.keys(d)...)
			}
			for _, p := range parts {
				covered = append(covered, span{p.at, p.end})
			}
			if c.Block == "" && len(parts) > 0 { // a block of which a line is claimed is what that line belongs to
				for _, s := range d.blocks() {
					if s.at <= parts[0].at && parts[0].at < s.end {
						covered = append(covered, s)
					}
				}
			}
		}
		for _, e := range b.Exempt[name] {
			place, bad := e.place(d)
			if bad == nil && e.Why == "" {
				bad = errors.New("want why it needs no command")
			}
			if bad != nil {
				err = errors.Join(err, fmt.Errorf("claims.yaml, %s: exempt %q: %w", name, short(e.title()), bad))
			}
			covered = append(covered, place)
		}
		for _, f := range d.figures() {
			if !slices.ContainsFunc(covered, func(c span) bool { return c.at < f.end && f.at < c.end }) {
				err = errors.Join(err, fmt.Errorf("%s:%d: %q has no claim", name, d.line(f.at), short(d.text[f.at:f.end])))
			}
		}
	}
	if err != nil {
		err = fmt.Errorf("%w\nSay in %s/claims.yaml which command prints a figure, or why none does", err, folder)
	}
	return err
}

// keys are the cells by which the rows of a claimed table are known.
func (c *claim) keys(d *document) (list []span) {
	rows, err := d.table(c.Table)
	if err != nil {
		return nil
	}
	known := make(map[int]bool)
	for _, patterns := range c.Columns {
		for _, m := range placeholder.FindAllStringSubmatch(strings.Join(patterns, " "), -1) {
			known[int(m[1][0]-'0')] = true
		}
	}
	for _, r := range rows {
		for i, at := range r.at {
			if known[i+1] {
				list = append(list, span{at, at + len(r.cells[i])})
			}
		}
	}
	return list
}

func (e *exemption) title() string { return e.Words + e.Table + e.Section + e.Block }

func (e *exemption) place(d *document) (span, error) {
	switch {
	case e.Section != "":
		return d.section(e.Section)
	case e.Block != "":
		return d.block(e.Block)
	case e.Table != "":
		rows, err := d.table(e.Table)
		if err != nil {
			return span{}, err
		}
		last := rows[len(rows)-1]
		return span{rows[0].at[0], last.at[len(last.at)-1] + len(last.cells[len(last.cells)-1])}, nil
	}
	return d.locate(e.Words)
}
