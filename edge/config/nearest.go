package config

import "strings"

// Nearest is the one of some words that another was likely meant to be: it differs by a letter that
// is missing, too many, wrong or swapped with its neighbour, by two such in a long word, or in
// nothing but _ and -. "": none does.
func Nearest(word string, words []string) string {
	plain := func(s string) string {
		return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(s))
	}
	is := plain(word)
	best, least := "", 2
	if len(is) >= 8 {
		least = 3
	}
	if len(is) < 3 {
		least = 1
	}
	for _, w := range words {
		if n := distance(is, plain(w)); n < least {
			best, least = w, n
		}
	}
	return best
}

// DidYouMean is Nearest as a part of an error, with a space before it.
func DidYouMean(word string, words []string) string {
	if w := Nearest(word, words); w != "" {
		return " (did you mean " + w + "?)"
	}
	return ""
}

// distance counts the letters by which two words differ (optimal string alignment). Words are
// short, or no word is near.
func distance(a, b string) int {
	if d := len(a) - len(b); len(a) > 64 || d > 3 || d < -3 {
		return 64
	}
	var before, last, row [72]int // by letters of b
	for j := range len(b) + 1 {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
