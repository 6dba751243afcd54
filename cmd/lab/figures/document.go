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
	marks   = regexp.MustCompile(`<!-- (?:figures |=|end -->)`)
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
		wrong = errors.Join(wrong, fmt.Errorf("a place has no end, or no beginning: %.60q",
			left[at[0]:]))
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

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
