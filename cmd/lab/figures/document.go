package main

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

var (
	markers = regexp.MustCompile(`(?s)(<!-- figures ([\w-]+) -->\n)(.*?)(<!-- end -->)`)
	inline  = regexp.MustCompile(`(?s)(<!-- =([\w-]+) -->)(.*?)(<!-- = -->)`)
	marks   = regexp.MustCompile(`<!-- (?:figures |=|end )`)
)

// write is the document with what belongs in its places.
func (b *book) write(name, text string) (string, error) {
	var wrong error
	fill := func(marker *regexp.Regexp, of func(string) (string, error)) {
		text = marker.ReplaceAllStringFunc(text, func(s string) string {
			m := marker.FindStringSubmatch(s)
			b.used[m[2]] = true
			filled, err := of(m[2])
			wrong = errors.Join(wrong, err)
			if err != nil {
				return s
			}
			return m[1] + filled + m[4]
		})
	}
	fill(markers, b.markdown)
	fill(inline, b.inline)
	left := inline.ReplaceAllString(markers.ReplaceAllString(text, ""), "")
	if at := marks.FindStringIndex(left); at != nil {
		wrong = errors.Join(wrong, fmt.Errorf("a place has no end, or no beginning: %.60q", left[at[0]:]))
	}
	if wrong != nil {
		wrong = fmt.Errorf("%s: %w", name, wrong)
	}
	return text, wrong
}

// difference is the first line in which two texts differ, or 0.
func difference(a, b string) int {
	if a == b {
		return 0
	}
	was, is := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(was), len(is)) {
		if was[i] != is[i] {
			return i + 1
		}
	}
	return min(len(was), len(is))
}

// A figure in a sentence is a number with a unit, also on the next line, a share or a multiple; in a table, a cell that is a number as well.
var (
	measured = regexp.MustCompile(`\d[\d,]*(?:\.\d+)?(?:\s?%|\s?(?:ns|µs|ms|[kKMGT]B|[KMG]bit/s)\b|/s\b|\s(?:cores?|requests/s|(?:bytes|commands)\s(?:a|of|per|each|for))\b)` +
		`|\d\.\d+\s(?:times|s|seconds)\b|(?:^|\s)1/\d\d+`)
	cell = regexp.MustCompile(`\|\s*(?:\d[\d,.]*(?:e[+-]?\d+)?(?:\s?[-–/]\s?\d[\d,.]*)*)\s*(?:\|)`)
	code = regexp.MustCompile("(?s)```.*?```|`[^`\n]+(?:\n[^`\n]+)?`|<!--.*?-->|\\]\\([^)]*\\)")
)

// prose names the figures that stand outside of the places.
func prose(name, text string) (err error) {
	blank := func(s string) string {
		return strings.Map(func(r rune) rune {
			if r == '\n' || r == '|' {
				return r
			}
			return '_'
		}, s)
	}
	for _, e := range []*regexp.Regexp{markers, inline, code} {
		text = e.ReplaceAllStringFunc(text, blank)
	}
	for i, e := range []*regexp.Regexp{measured, cell} {
		for _, at := range e.FindAllStringIndex(text, -1) {
			line, _, _ := strings.Cut(text[strings.LastIndexByte(text[:at[0]], '\n')+1:], "\n")
			if i == 1 && !strings.HasPrefix(line, "|") {
				continue
			}
			err = errors.Join(err, fmt.Errorf("%s:%d: %q is a figure outside of the places that make figures writes; a setting, a limit or a constant is `code`",
				name, 1+strings.Count(text[:at[0]], "\n"), strings.TrimSpace(text[at[0]:at[1]])))
		}
	}
	return err
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
