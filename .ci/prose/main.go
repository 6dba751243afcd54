// Command prose reports sentences of the documents that a reader may have to read twice: the longest
// ones, and those that begin with a pronoun where a noun belongs. It fails only where it is told how
// long the sentences of a page may be.
//
//	go run ./.ci/prose            the longest, and how many begin with a pronoun
//	go run ./.ci/prose -all       every one of them, by page
//	go run ./.ci/prose -p90 28    fails if one sentence in ten of a page has more words
package main

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"sluice/docs/pages"
)

// pronouns stand for a noun that was named before, or for none.
var pronouns = strings.Fields("It It's They This That These Those What Whatever Which Who Whoever Whose One Its Their He She His Her Neither")

type sentence struct {
	page, text string
	words      int
}

func main() {
	all := flag.Bool("all", false, "report every sentence that begins with a pronoun")
	most := flag.Int("p90", 0, "fail if more than one sentence in ten of a page has more words; 0: never")
	root := flag.String("root", ".", "the folder of the repository")
	flag.Parse()
	texts, err := pages.All(*root)
	if err != nil {
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(2)
	}
	if !report(texts, *all, *most) {
		os.Exit(1)
	}
}

// report prints what was found, and reports whether no page has too many long sentences.
func report(texts map[string]string, all bool, most int) (fine bool) {
	var list, referring []sentence
	fine = true
	for _, page := range slices.Sorted(maps.Keys(texts)) {
		if strings.HasPrefix(page, "CHANGELOG-") {
			continue // what was
		}
		var of []sentence
		for _, text := range pages.Sentences(texts[page]) {
			words := strings.Fields(text)
			s := sentence{page, text, len(words)}
			of = append(of, s)
			if slices.Contains(pronouns, words[0]) {
				referring = append(referring, s)
			}
		}
		if p90 := percentile(of, 90); most > 0 && p90 > most {
			fmt.Printf("%s: one sentence in ten has %d words or more, want %d at most\n", page, p90, most)
			fine = false
		}
		list = append(list, of...)
	}
	slices.SortStableFunc(list, func(a, b sentence) int { return cmp.Compare(b.words, a.words) })
	fmt.Printf("%d sentences; the longest:\n", len(list))
	for _, s := range list[:min(10, len(list))] {
		fmt.Printf("  %s: %d words: %.90s…\n", s.page, s.words, s.text)
	}
	fmt.Printf("%d begin with a pronoun\n", len(referring))
	for _, s := range referring {
		if all {
			fmt.Printf("  %s: %.90s\n", s.page, s.text)
		}
	}
	return fine
}

// percentile is the length that so many of a hundred sentences do not exceed.
func percentile(of []sentence, percent int) int {
	if len(of) == 0 {
		return 0
	}
	lengths := make([]int, len(of))
	for i, s := range of {
		lengths[i] = s.words
	}
	slices.Sort(lengths)
	return lengths[(len(of)*percent+99)/100-1]
}
